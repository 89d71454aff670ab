package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

const (
	// leaveTimeout is how long gdrcp waits for the remote shell command to end after its
	// stdin has ended, and how long the command may take to end on SIGTERM.
	leaveTimeout = 3 * time.Second
	// endTimeout is the longest wait between the end of a command and that of
	// its pipe, in either order.
	endTimeout = 500 * time.Millisecond
	// exitNoCommand is the exit code of a shell that does not find the command,
	// and exitNotRun of one that cannot execute it (POSIX, 2.8.2). exitSSH is
	// ssh's exit code for its own errors (ssh(1)).
	exitNoCommand = 127
	exitNotRun    = 126
	exitSSH       = 255
)

// Command is a command to run on another host, through the user's own remote shell
// command.
type Command struct {
	Rsh        []string // the remote shell command, with options
	User, Host string   // User may be empty
	Run        []string // words for the remote shell, which evaluates them
}

// args returns the arguments of the remote shell command, in rsync's order.
func (c *Command) args() []string {
	args := append([]string(nil), c.Rsh...)
	if c.User != "" {
		args = append(args, "-l", c.User)
	}
	return append(append(args, c.Host), c.Run...)
}

// process is a running remote shell command.
type process struct {
	cmd   *exec.Cmd
	stdin *os.File
	out   *os.File
	read  *bufio.Reader // of out
	ended chan struct{}
	err   error // of Wait, once ended
}

// start runs the command. Its standard error goes to stderr. The command remains in this
// process group, so that it can ask for a password, and ^C ends it too.
func (c *Command) start(stderr io.Writer) (*process, error) {
	theirs, stdin, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	out, stdout, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), stdin.Close())
	}
	args := c.args()
	p := &process{cmd: exec.Command(args[0], args[1:]...), stdin: stdin, out: out, ended: make(chan struct{})}
	p.read = bufio.NewReaderSize(out, maxLineBytes)
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = theirs, stdout, stderr
	p.cmd.WaitDelay = leaveTimeout // a master connection of ssh may keep stderr open
	err = p.cmd.Start()
	theirs.Close()
	stdout.Close()
	if err != nil {
		stdin.Close()
		out.Close()
		var notFound *exec.Error
		if errors.As(err, &notFound) {
			err = notFound.Err
		}
		return nil, fmt.Errorf("start the remote shell command %q: %w", args[0], err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
		// A child of the command may still have the pipes open. Allow time to
		// read the bytes in them.
		time.AfterFunc(endTimeout, func() {
			stdin.Close()
			out.Close()
		})
	}()
	return p, nil
}

func (p *process) Read(b []byte) (int, error)  { return p.read.Read(b) }
func (p *process) Write(b []byte) (int, error) { return p.stdin.Write(b) }

// Close ends the command's stdin and stdout, and waits until the command has
// ended, but no longer than leaveTimeout. It never kills the command: an ssh
// master (ssh_config(5), ControlMaster) continues for the user's other
// sessions. The goroutine that waits for the command then ends with it.
func (p *process) Close() error {
	p.stdin.Close()
	select {
	case <-p.ended:
	case <-time.After(leaveTimeout):
	}
	p.out.Close()
	return nil
}

// abort ends a command that is no longer needed, and waits until it has ended. It uses
// SIGTERM first, on which an ssh that asks for a password restores the terminal.
func (p *process) abort() {
	p.stdin.Close()
	p.out.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // fails if it has just ended
	select {
	case <-p.ended:
	case <-time.After(leaveTimeout):
		_ = p.cmd.Process.Kill() // fails if it has just ended
		<-p.ended
	}
}

// end waits as Close does, and aborts a command that is still running.
func (p *process) end() {
	p.Close()
	p.abort()
}

// code returns the exit code, or -1 if a signal ended the command. Call it only after
// ended.
func (p *process) code() int { return p.cmd.ProcessState.ExitCode() }

// name returns the name of the remote shell command, for messages.
func (p *process) name() string { return filepath.Base(p.cmd.Path) }

// ending describes how the command ended. Call it only after ended.
func (p *process) ending() string {
	if p.cmd.ProcessState == nil {
		return p.err.Error()
	}
	return p.cmd.ProcessState.String()
}
