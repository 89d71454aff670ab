package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"
)

// Errors of starting a far end that can be fixed.
var (
	// ErrMissing: the remote shell has no such program.
	ErrMissing = errors.New("gdrcp was not found there")
	// ErrVersion: the far end has another version.
	ErrVersion = errors.New("gdrcp there is of another version")
)

// defaultPath is the default program: the one in the PATH there.
const defaultPath = "gdrcp"

// Origin starts far ends on one host.
type Origin struct {
	Rsh        []string // the remote shell command, see SplitCommand
	User, Host string   // User may be empty
	// RemotePath names the program there; if it is empty, defaultPath is used. The remote
	// shell evaluates it, so it may be more than a path, like rsync's --rsync-path.
	RemotePath string
	// Protocol is the version that the far end must speak, and Version is this
	// program's version text.
	Protocol int
	Version  string
	// Stderr receives the remote shell command's messages for the user.
	Stderr io.Writer
}

// Link is a running far end. Its Mux carries data.
type Link struct {
	Mux     *Mux
	Talk    *Conversation
	process *process
	origin  *Origin
	leaves  atomic.Bool // see Leave
}

// Connect starts a far end. It has no timeout except ctx, because asking for a
// password may take any time. The error is one line; the remote shell command's
// own message has already been shown.
func (o *Origin) Connect(ctx context.Context) (*Link, error) {
	link, silent, err := o.connect(ctx, []string{o.program(), FarEndCommand})
	if silent != nil {
		err = o.diagnose(silent)
	}
	return link, err
}

// program returns the program to start there.
func (o *Origin) program() string { return cmp.Or(o.RemotePath, defaultPath) }

// silence describes a command that ended without printing a banner.
type silence struct {
	process *process
	lines   []string // its output instead of a banner
}

// connect runs words on the host, which should start a far end.
func (o *Origin) connect(ctx context.Context, run []string) (*Link, *silence, error) {
	command := Command{Rsh: o.Rsh, User: o.User, Host: o.Host, Run: run}
	p, err := command.start(o.Stderr)
	if err != nil {
		return nil, nil, err
	}
	unblock := context.AfterFunc(ctx, func() { p.out.Close() })
	banner, err := readBanner(p.read)
	if !unblock() {
		p.abort()
		return nil, nil, context.Cause(ctx)
	}
	var none *noBannerError
	switch {
	case err == nil && banner.Protocol == o.Protocol && banner.SetUp < oneCopyVersion:
		err = fmt.Errorf("%w: %s on %s is too old to be limited to one copy, %s here", ErrVersion, banner.Version, o.Host, o.Version)
	case err == nil && banner.Protocol == o.Protocol && banner.SetUp != setUpVersion:
		err = fmt.Errorf("%w: %s on %s, %s here (set-up %d, here %d)", ErrVersion, banner.Version, o.Host, o.Version, banner.SetUp, setUpVersion)
	case err == nil && banner.Protocol == o.Protocol:
		link, err := o.link(ctx, p)
		return link, nil, err
	case err == nil:
		err = fmt.Errorf("%w: %s on %s, %s here (protocol %d, here %d)", ErrVersion, banner.Version, o.Host, o.Version, banner.Protocol, o.Protocol)
	case errors.As(err, &none):
		p.end()
		return nil, &silence{p, none.lines}, nil
	default:
		err = fmt.Errorf("%s: %w", o.Host, err)
	}
	p.abort()
	return nil, nil, err
}

// link starts to communicate with a far end that has sent its banner.
func (o *Origin) link(ctx context.Context, p *process) (*Link, error) {
	m, err := NewMux(p, true)
	if err != nil {
		p.abort()
		return nil, err
	}
	control, err := m.Control(ctx)
	if err != nil {
		m.Close()
		return nil, err
	}
	return &Link{Mux: m, Talk: converse(control), process: p, origin: o}, nil
}

// diagnose returns the reason why there was no banner. The process has ended. A
// shell that starts nothing, such as nologin, prints the reason on stdout.
func (o *Origin) diagnose(s *silence) error {
	p, program := s.process, o.program()
	switch p.code() {
	case exitSSH:
		return fmt.Errorf("%s cannot reach or log in to %s (exit code %d)", p.name(), o.Host, exitSSH)
	case exitNoCommand:
		where := " in the PATH of its shell"
		if strings.Contains(program, "/") { // a path, or more than a program
			where = ""
		}
		return fmt.Errorf("%w: %s has no %s%s", ErrMissing, o.Host, program, where)
	case exitNotRun:
		return fmt.Errorf("%w: %s on %s cannot be started", ErrMissing, program, o.Host)
	case exitUnknownCommand:
		return fmt.Errorf("%w: %s on %s does not know the command %s", ErrVersion, program, o.Host, FarEndCommand)
	}
	said := ""
	if line := firstText(s.lines); line != "" {
		said = fmt.Sprintf(" and said %q", line)
	}
	return fmt.Errorf("%s on %s ended before it answered%s (%s: %s)", program, o.Host, said, p.name(), p.ending())
}

// exitUnknownCommand is the exit code of a gdrcp without the far-end command.
const exitUnknownCommand = 2

// Failure returns the reason why the link has ended, in one line; nil while it is up.
func (l *Link) Failure() error {
	select {
	case <-l.Mux.Done():
	default:
		return nil
	}
	select {
	case <-l.process.ended:
		return fmt.Errorf("%w: %s to %s: %s", ErrPipe, l.process.name(), l.origin.Host, l.process.ending())
	case <-time.After(endTimeout): // the pipe is closed, but the command is still running
		return fmt.Errorf("%w: %s to %s", ErrPipe, l.process.name(), l.origin.Host)
	}
}

// Leave records that all went well. Then Close does not end a remote shell
// command that continues, as an ssh does that is the master of the user's other
// sessions (ssh_config(5), ControlMaster).
func (l *Link) Leave() { l.leaves.Store(true) }

// Close ends the far end, and waits briefly for the remote shell command to
// end. Without Leave it then kills the command: after a lost connection another
// attempt could not get past a hanging ssh master.
func (l *Link) Close() error {
	err := l.Talk.Close()
	if l.Talk.gaveUp.Load() {
		l.process.abort()
	}
	err = errors.Join(err, l.Mux.Close())
	if !l.leaves.Load() {
		l.process.abort()
	}
	return err
}
