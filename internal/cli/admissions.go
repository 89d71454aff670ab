package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/served"
	"gdrcp/internal/trust"
	"gdrcp/xfer"
)

// accessFileVariable names the access file if --access-file does not.
const accessFileVariable = "GDRCP_ACCESS_FILE"

// admissions holds the clients that a server admits and the directories that each may
// access: either the keys of an access file, or one key and one directory. The server
// can reload them while it runs.
type admissions struct {
	accessFile    string // or
	keyFile, root string
	// These override the access file.
	readOnly, requireEncrypt bool
	// otherSecretFiles are files with secrets that serving does not use. They need not exist.
	otherSecretFiles []string

	keys atomic.Pointer[map[string]xfer.Admission]
	// dirs are the directories that the keys open. names is the number of names (hard
	// links) of the key file.
	dirs  *served.Set
	names int
}

// Len implements xfer.Keyring.
func (a *admissions) Len() int { return len(*a.keys.Load()) }

// Find implements xfer.Keyring.
func (a *admissions) Find(id string) (xfer.Admission, bool) {
	found, ok := (*a.keys.Load())[id]
	return found, ok
}

// read reads the files and opens the directories that the keys open. If it fails, the
// old directories remain in use. Otherwise the caller closes the old ones with
// old.Close(a.dirs) when no session needs them.
func (a *admissions) read() (old *served.Set, err error) {
	permits, err := a.permits()
	if err != nil {
		return nil, err
	}
	wanted := make([]served.Want, 0, len(permits))
	for _, p := range permits {
		// A client may have left a link there before --read-only was given.
		wanted = append(wanted, served.Want{Key: p.ID, Path: p.Root, Writable: !p.ReadOnly})
	}
	dirs, err := served.Hold(wanted, a.dirs)
	if err != nil {
		return nil, err
	}
	names, err := a.guard(dirs)
	if err == nil && a.accessFile == "" {
		err = dirs.Dir(a.root).Err()
	}
	if err != nil {
		dirs.Close(a.dirs)
		return nil, err
	}
	keys := make(map[string]xfer.Admission, len(permits))
	for _, p := range permits {
		keys[p.ID] = xfer.Admission{
			Secret: p.Secret, Root: dirs.Dir(p.Root), ReadOnly: p.ReadOnly || a.readOnly, MaxSessions: p.MaxSessions, BytesPerSecond: p.BytesPerSecond,
			RequireEncrypt: p.RequireEncrypt || a.requireEncrypt, AllAttributes: p.AllAttributes, ReadOnlyKey: !a.readOnly, EncryptKey: !a.requireEncrypt,
		}
	}
	a.keys.Store(&keys)
	old, a.dirs, a.names = a.dirs, dirs, names
	return old, nil
}

// close closes the directories that the keys open.
func (a *admissions) close() { a.dirs.Close(nil) }

// secretFile returns the file of the keys.
func (a *admissions) secretFile() string { return cmp.Or(a.accessFile, a.keyFile) }

// guard checks that no client can access a file with secrets. It returns the number of
// names of the key file.
func (a *admissions) guard(dirs *served.Set) (names int, err error) {
	if names, err = dirs.Guard(a.secretFile()); err == nil {
		for _, file := range a.otherSecretFiles {
			if _, e := dirs.Guard(file); errors.As(e, new(*served.ReachedError)) {
				err = e
			}
		}
	}
	if errors.As(err, new(*served.ReachedError)) {
		err = &hintedError{err, "keep it, and the way to it, where no key leads"}
	}
	return names, err
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

// describe returns a description of what is served, for messages.
func (a *admissions) describe() string {
	if a.accessFile == "" {
		return args.Quote(a.root)
	}
	return fmt.Sprintf("%s of %s", count(int64(len(*a.keys.Load())), "key", "keys"), args.Quote(a.accessFile))
}

// warnings returns what is unusual about the directories that keys open, for the person
// who runs the server.
func (a *admissions) warnings() (texts []string) {
	keys, why := a.dirs.Missing()
	for i, key := range keys {
		texts = append(texts, fmt.Sprintf("key %s opens nothing until SIGHUP: %s", key, lineOf(why[i])))
	}
	if nested := a.dirs.Nested(); len(nested) > 0 {
		first := nested[0]
		text := fmt.Sprintf("key %s may change what key %s opens: %s lies below %s", first.OuterKey, first.Key, args.Quote(first.Path), args.Quote(first.OuterPath))
		if more := len(nested) - 1; more > 0 {
			text += fmt.Sprintf(" (and so do %d more below what others may change)", more)
		}
		texts = append(texts, text)
	}
	if a.names > 1 {
		texts = append(texts, fmt.Sprintf("%s holds secrets and has %d names (hard links): a client that reaches another of them reads it", args.Quote(a.secretFile()), a.names))
	}
	return texts
}

// newAdmissions reads which clients are admitted, from the options or else from the environment.
func (s *serveRun) newAdmissions() (*admissions, error) {
	switch {
	case s.accessFile != "" && (s.root != "" || s.keyFile != ""):
		return nil, args.UsageErrorf("--access-file says what each key opens: --root and --key-file are for serving one directory to one key")
	case s.accessFile == "" && s.root == "" && s.keyFile == "":
		s.accessFile = s.getenv(accessFileVariable)
	}
	a := &admissions{accessFile: s.accessFile, readOnly: s.readOnly, requireEncrypt: s.requireEncrypt}
	for _, name := range []string{keyFileVariable, accessFileVariable} {
		if file := s.getenv(name); file != "" {
			a.otherSecretFiles = append(a.otherSecretFiles, file)
		}
	}
	if a.accessFile != "" {
		return a.readFirst()
	}
	if s.root == "" {
		return nil, args.UsageErrorf("gdrcp serve needs --access-file FILE, or --root DIR and --key-file FILE")
	}
	if a.keyFile = cmp.Or(s.keyFile, s.getenv(keyFileVariable)); a.keyFile == "" {
		return nil, noKey()
	}
	var err error
	if a.root, err = filepath.Abs(s.root); err != nil {
		return nil, err
	}
	return a.readFirst()
}

// readFirst reads the files when the server starts.
func (a *admissions) readFirst() (*admissions, error) {
	if _, err := a.read(); err != nil {
		return nil, err
	}
	return a, nil
}

// handleSignals keeps the service manager informed and reloads the keys at each SIGHUP,
// until ctx ends.
func (s *serveRun) handleSignals(ctx context.Context, server *xfer.Server) {
	manager := notifier{s.getenv("NOTIFY_SOCKET")}
	s.tellError(manager.ready())
	for {
		select {
		case <-s.hangups:
			s.tellError(manager.reloading())
			s.reload(server)
			s.tellError(manager.ready())
		case <-ctx.Done():
			s.tellError(manager.stopping())
			return
		}
	}
}

// tellError prints an error that does not end the server. It ignores nil.
func (s *serveRun) tellError(err error) {
	if err != nil {
		s.console.line("gdrcp: %s", lineOf(err))
	}
}

// reload applies the current content of the files. If that fails, the previous content
// remains in force.
func (s *serveRun) reload(server *xfer.Server) {
	old, err := s.admissions.read()
	if err != nil {
		s.console.line("gdrcp: %s; the keys of before stay in force", lineOf(err))
		return
	}
	ended := server.Recheck()
	old.Close(s.admissions.dirs)
	if !s.quiet {
		s.console.line("gdrcp: the keys were read anew: %s; %s ended", s.admissions.describe(), count(int64(ended), "session", "sessions"))
	}
	s.tellWarnings()
}

func (s *serveRun) tellWarnings() {
	for _, text := range s.admissions.warnings() {
		s.console.line("gdrcp: %s", text)
	}
}
