package chunker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// ErrInterrupted is what reading and writing a Pipe end with after Interrupt.
var ErrInterrupted = errors.New("interrupted")

const (
	// pipeAtOnce is how much a write that cannot block is given.
	pipeAtOnce = 1 << 20
	// pipeBuf is what a pipe that poll(2) calls writable takes without blocking
	// (PIPE_BUF, pipe(7)).
	pipeBuf = 4096
)

// Pipe is a descriptor that somebody else may keep waiting for as long as they
// like: standard input or output. Its Read, or its Write, is one goroutine's; at
// any time another may interrupt it. Flags of the open file that the program
// was given are not touched: others may have it too.
type Pipe struct {
	name string // for messages
	fd   int
	own  bool // fd is this Pipe's to close
	// atOnce is how much may be written when poll(2) says that there is room.
	atOnce int
	wake   int // eventfd: readable once interrupted

	mu     sync.Mutex
	closed bool
}

// NewInput returns a Pipe that reads the open file fd, which stays the caller's
// and is open at least as long as the Pipe. name is what errors call it.
func NewInput(fd int, name string) (*Pipe, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &Pipe{name: name, fd: fd, atOnce: pipeBuf, wake: wake}, nil
}

// NewOutput returns a Pipe that writes to the open file fd, likewise.
func NewOutput(fd int, name string) (*Pipe, error) {
	var st unix.Stat_t
	if err := fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	p, err := NewInput(fd, name)
	if err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFBLK:
		p.atOnce = pipeAtOnce // waits for a disk at the most
	case unix.S_IFIFO, unix.S_IFCHR:
		p.reopen()
	}
	return p, nil
}

// reopen gets an open file of the Pipe's own to write to, which does not block
// though the given one does. Where that is not to be had, what is written at
// once is little.
func (p *Pipe) reopen() {
	fd, err := openat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", p.fd), unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err == nil {
		p.fd, p.own, p.atOnce = fd, true, pipeAtOnce
	}
}

// wait blocks until fd is ready for what is asked, or gone.
func (p *Pipe) wait(events int16) error {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: events}, {Fd: int32(p.wake), Events: unix.POLLIN}}
	if err := uninterrupted(func() error { _, err := unix.Poll(fds, -1); return err }); err != nil {
		return err
	}
	if fds[1].Revents != 0 {
		return ErrInterrupted
	}
	return nil
}

// Read implements io.Reader. It blocks until there is something, or the end.
func (p *Pipe) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for {
		err := p.wait(unix.POLLIN)
		n := 0
		if err == nil {
			n, err = unix.Read(p.fd, b)
		}
		switch {
		case err == unix.EINTR, err == unix.EAGAIN: // another reader was faster
		case err != nil:
			return 0, fmt.Errorf("read %s: %w", p.name, err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer. It blocks until all of b is written. EPIPE: nobody
// reads any more.
func (p *Pipe) Write(b []byte) (int, error) {
	n := 0
	for n < len(b) {
		err := p.wait(unix.POLLOUT)
		m := 0
		if err == nil {
			m, err = unix.Write(p.fd, b[n:min(len(b), n+p.atOnce)])
		}
		switch {
		case err == unix.EINTR, err == unix.EAGAIN:
		case err != nil:
			return n, fmt.Errorf("write %s: %w", p.name, err)
		default:
			n += m
		}
	}
	return n, nil
}

// Finish has the file system say what it says of writing only when a file is
// closed (close(2): "may report write errors"), which is else left to the end of
// the process, where nobody hears it. Call it behind the last Write; it may block
// for the disk.
func (p *Pipe) Finish() error {
	if err := flushFD(p.fd); err != nil {
		return fmt.Errorf("close %s: %w", p.name, err)
	}
	return nil
}

// FinishFile is the Finish of a file that is written to without a Pipe.
func FinishFile(f *os.File) error { return flushFD(int(f.Fd())) }

// Interrupt ends the Read or Write that is under way, and every later one, with
// ErrInterrupted. It does not block.
func (p *Pipe) Interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only where it was interrupted 2^64 times
	}
}

// Close frees what the Pipe has of its own. No Read or Write may be under way.
func (p *Pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := closeFD(p.wake)
	if p.own {
		err = errors.Join(err, closeFD(p.fd))
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", p.name, err)
	}
	return nil
}
