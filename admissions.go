package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"

	"gdrcp/trust"
	"gdrcp/xfer"
)

// accessFileVariable names the access file where --access-file does not.
const accessFileVariable = "GDRCP_ACCESS_FILE"

// admissions is who may come to a server, and to what: the keys of an access
// file, or one key and one directory. They can be read anew while clients come.
type admissions struct {
	accessFile    string // or
	keyFile, root string
	readOnly      bool // whatever the access file says

	keys atomic.Pointer[map[string]xfer.Admission]
}

// Len implements xfer.Keyring.
func (a *admissions) Len() int { return len(*a.keys.Load()) }

// Find implements xfer.Keyring.
func (a *admissions) Find(id string) (xfer.Admission, bool) {
	found, ok := (*a.keys.Load())[id]
	return found, ok
}

// read reads the files. After an error what was read before stays.
func (a *admissions) read() error {
	permits, err := a.permits()
	if err != nil {
		return err
	}
	keys := make(map[string]xfer.Admission, len(permits))
	for _, p := range permits {
		keys[p.ID] = xfer.Admission{
			Secret: p.Secret, Root: p.Root, ReadOnly: p.ReadOnly || a.readOnly, MaxSessions: p.MaxSessions, BytesPerSecond: p.BytesPerSecond,
		}
	}
	a.keys.Store(&keys)
	return nil
}

func (a *admissions) permits() ([]trust.Permit, error) {
	if a.accessFile == "" {
		key, err := trust.ReadKeyFile(a.keyFile)
		return []trust.Permit{{Key: key, Root: a.root}}, err
	}
	access, err := trust.ReadAccess(a.accessFile)
	if err != nil {
		return nil, err
	}
	return access.Permits(), nil
}

// text is what is served, for messages.
func (a *admissions) text() string {
	if a.accessFile == "" {
		return quoteArg(a.root)
	}
	return fmt.Sprintf("%s of %s", count(int64(len(*a.keys.Load())), "key", "keys"), quoteArg(a.accessFile))
}

// problems are the directories that keys open and that cannot be opened. They
// may come to be there later: a file system that is mounted when it is needed.
func (a *admissions) problems() (texts []string) {
	told := make(map[string]bool)
	for id, k := range *a.keys.Load() {
		if err := isDir(k.Root); err != nil && !told[k.Root] {
			told[k.Root] = true
			texts = append(texts, fmt.Sprintf("what key %s opens is not there: %s", id, lineOf(err)))
		}
	}
	slices.Sort(texts)
	return texts
}

// isDir makes sure at the start that there is something to serve.
func isDir(path string) error {
	root, err := os.OpenRoot(path)
	if err != nil {
		return err
	}
	return root.Close()
}

// admissions reads who may come, by the options or else the environment.
func (s *serving) admissions() (*admissions, error) {
	switch {
	case s.accessFile != "" && (s.root != "" || s.keyFile != ""):
		return nil, usageError("--access-file says what each key opens: --root and --key-file are for serving one directory to one key")
	case s.accessFile == "" && s.root == "" && s.keyFile == "":
		s.accessFile = s.getenv(accessFileVariable)
	}
	a := &admissions{accessFile: s.accessFile, readOnly: s.readOnly}
	if a.accessFile != "" {
		return a, a.read()
	}
	if s.root == "" {
		return nil, usageError("gdrcp serve needs --access-file FILE, or --root DIR and --key-file FILE")
	}
	if a.keyFile = cmp.Or(s.keyFile, s.getenv(keyFileVariable)); a.keyFile == "" {
		return nil, noKey()
	}
	var err error
	if a.root, err = filepath.Abs(s.root); err != nil {
		return nil, err
	}
	if err := isDir(a.root); err != nil {
		return nil, err
	}
	return a, a.read()
}

// attend keeps the service manager informed, and reads who may come anew
// whenever SIGHUP asks for it, until ctx ends.
func (s *serving) attend(ctx context.Context, server *xfer.Server) {
	manager := notifier{s.getenv("NOTIFY_SOCKET")}
	s.tellIf(manager.ready())
	for {
		select {
		case <-s.hangups:
			s.tellIf(manager.reloading())
			s.readAnew(server)
			s.tellIf(manager.ready())
		case <-ctx.Done():
			s.tellIf(manager.stopping())
			return
		}
	}
}

// tellIf tells an error that changes nothing.
func (s *serving) tellIf(err error) {
	if err != nil {
		s.console.line("gdrcp: %s", lineOf(err))
	}
}

// readAnew takes over what the files say now. If that makes no sense, what they
// said before goes on.
func (s *serving) readAnew(server *xfer.Server) {
	if err := s.who.read(); err != nil {
		s.console.line("gdrcp: %s; who may come stays as it was", lineOf(err))
		return
	}
	ended := server.Recheck()
	if !s.quiet {
		s.console.line("gdrcp: who may come was read anew: %s; %s ended", s.who.text(), count(int64(ended), "session", "sessions"))
	}
	s.tellProblems()
}

func (s *serving) tellProblems() {
	for _, text := range s.who.problems() {
		s.console.line("gdrcp: %s", text)
	}
}
