package dest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// ErrInterrupted is the error of a Pipe's Read and Write after Interrupt.
var ErrInterrupted = errors.New("interrupted")

const (
	// pipeAtOnce is the most bytes in one write that cannot block.
	pipeAtOnce = 1 << 20
	// pipeBuf is how many bytes a pipe takes without blocking when poll(2) calls it
	// writable (PIPE_BUF, pipe(7)).
	pipeBuf = 4096
)

// Pipe is a descriptor on which another process can keep this one waiting without end:
// standard input or output. One goroutine calls Read or Write; another may interrupt it
// at any time. A Pipe leaves the flags of the given open file alone, because other
// processes may share the file.
type Pipe struct {
	name string // for messages
	fd   int
	own  bool // this Pipe closes fd
	// atOnce is how many bytes may be written when poll(2) says that there is room.
	atOnce int
	wake   int // eventfd: readable once interrupted

	mu     sync.Mutex
	closed bool
}

// NewInput returns a Pipe that reads the open file fd. The caller owns fd and keeps it
// open at least as long as the Pipe. Errors call it name.
func NewInput(fd int, name string) (*Pipe, error) {
	wake, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &Pipe{name: name, fd: fd, atOnce: pipeBuf, wake: wake}, nil
}

// NewOutput returns a Pipe that writes to the open file fd, which the caller owns as
// for NewInput.
func NewOutput(fd int, name string) (*Pipe, error) {
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	p, err := NewInput(fd, name)
	if err != nil {
		return nil, err
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFBLK:
		p.atOnce = pipeAtOnce // waits for a disk at most
	case unix.S_IFIFO, unix.S_IFCHR:
		p.reopen()
	}
	return p, nil
}

// reopen opens the file again for the Pipe alone, so that writing does not block though
// the given descriptor does. If that fails, the Pipe writes few bytes at once.
func (p *Pipe) reopen() {
	fd, err := fsys.Reopen(p.fd, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err == nil {
		p.fd, p.own, p.atOnce = fd, true, pipeAtOnce
	}
}

// wait blocks until fd is ready for the events, or closed at the other end.
func (p *Pipe) wait(events int16) error {
	fds := []unix.PollFd{{Fd: int32(p.fd), Events: events}, {Fd: int32(p.wake), Events: unix.POLLIN}}
	if err := fsys.Uninterrupted(func() error { _, err := unix.Poll(fds, -1); return err }); err != nil {
		return err
	}
	if fds[1].Revents != 0 {
		return ErrInterrupted
	}
	return nil
}

// Read implements io.Reader. It blocks until there are bytes, or the end.
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
		case err == unix.EINTR, err == unix.EAGAIN: // another reader took the bytes
		case err != nil:
			return 0, fmt.Errorf("read %s: %w", p.name, err)
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

// Write implements io.Writer. It blocks until all of b is written. EPIPE: the reader is
// gone.
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

// Finish makes the file system report the write errors that it reports only when a file
// is closed (close(2): "may report write errors"). Without Finish that happens at the
// end of the process, where nobody sees the errors. Call Finish after the last Write;
// it may block for the disk.
func (p *Pipe) Finish() error {
	if err := fsys.Flush(p.fd); err != nil {
		return fmt.Errorf("close %s: %w", p.name, err)
	}
	return nil
}

// FinishFile is Finish for a file that is written to without a Pipe.
func FinishFile(f *os.File) error { return fsys.Flush(int(f.Fd())) }

// Interrupt ends the Read or Write that is under way, and every later one, with
// ErrInterrupted. It does not block.
func (p *Pipe) Interrupt() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		_, _ = unix.Write(p.wake, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only after 2^64 interrupts
	}
}

// Close frees what the Pipe opened. No Read or Write may be under way.
func (p *Pipe) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil
	}
	p.closed = true
	err := fsys.CloseFD(p.wake)
	if p.own {
		err = errors.Join(err, fsys.CloseFD(p.fd))
	}
	if err != nil {
		return fmt.Errorf("close %s: %w", p.name, err)
	}
	return nil
}

// readerPause is how often a fifo without a reader is tried again.
const readerPause = 20 * time.Millisecond

// Special is a device or fifo that is itself the destination: a file is written to it, from
// its beginning to its end, as cp(1) writes. Links that lead to it are followed. One goroutine
// calls Write and Finish; another may interrupt it.
type Special struct {
	sink *Sink
	kind uint32 // of stat(2)'s mode
	stop chan struct{}
	once sync.Once

	mu   sync.Mutex
	pipe *Pipe // nil before the first Write
}

// lookSpecial finds out whether a device or fifo is at the destination, also if a link
// leads to it. Below a served root it never looks: nothing there is written to that is not a
// file of the sink's own.
func (s *Sink) lookSpecial() error {
	var st unix.Stat_t
	if s.opt.Root != nil || s.leaf == "" || s.missing || s.adopts || s.opt.Whole != nil || fsys.Fstatat(s.base.FD, s.leaf, &st, 0) != nil || !isSpecial(&st) {
		return nil
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFSOCK {
		return ErrInTheWay
	}
	for fd := range 2 {
		var own unix.Stat_t
		if kind == unix.S_IFIFO && fsys.Fstat(fd, &own) == nil && fileset.InodeOf(&own) == fileset.InodeOf(&st) {
			return fmt.Errorf("%w: it is the standard input or output of gdrcp itself", ErrInTheWay)
		}
	}
	s.special = &Special{sink: s, kind: kind, stop: make(chan struct{})}
	return nil
}

// Special returns the device or fifo that the destination is, or nil.
func (s *Sink) Special() *Special { return s.special }

// Kind names what it is, for messages.
func (p *Special) Kind() string {
	if p.kind == unix.S_IFIFO {
		return "fifo"
	}
	return "device"
}

// TakesAgain reports whether a copy may begin anew after some of it was written. What reads a
// fifo, or is behind a character device, would get that part twice.
func (p *Special) TakesAgain() bool { return p.kind == unix.S_IFBLK }

// checkPlace refuses an entry that is no file.
func (p *Special) checkPlace(single *manifest.Entry) error {
	if p != nil && single.Type != manifest.File {
		return fileset.KindErr("copy to", p.sink.dest, ErrInTheWay)
	}
	return nil
}

// Write writes all of b, and blocks until that is done. Its first call opens the device or
// fifo, also if b is empty. That of a fifo waits until somebody opens it for reading.
func (p *Special) Write(b []byte) (int, error) {
	if err := p.open(); err != nil {
		return 0, fileset.OpErr("open", p.sink.dest, err)
	}
	return p.pipe.Write(b)
}

func (p *Special) open() error {
	if p.pipe != nil {
		return nil
	}
	for {
		fd, err := fsys.Openat(p.sink.base.FD, p.sink.leaf, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err == nil {
			return p.opened(fd)
		}
		if err != unix.ENXIO || p.kind != unix.S_IFIFO {
			return err
		}
		select {
		case <-time.After(readerPause):
		case <-p.stop:
			return ErrInterrupted
		}
	}
}

// opened takes the descriptor, if it is still of what was looked at.
func (p *Special) opened(fd int) error {
	var st unix.Stat_t
	err := fsys.Fstat(fd, &st)
	if err == nil && st.Mode&unix.S_IFMT != p.kind {
		err = fileset.ErrChanged
	}
	var pipe *Pipe
	if err == nil {
		pipe, err = NewInput(fd, fmt.Sprintf("%q", p.sink.dest))
	}
	if err != nil {
		fsys.CloseQuietly(fd)
		return err
	}
	pipe.own, pipe.atOnce = true, pipeAtOnce // nothing that it does blocks but for a disk
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pipe = pipe
	select {
	case <-p.stop:
		pipe.Interrupt()
	default:
	}
	return nil
}

// Finish reports the errors that come only at the end. What went to a disk is on it then,
// unless NoFsync. Nothing was opened if nothing was to be written.
func (p *Special) Finish() error {
	if p.pipe == nil {
		return nil
	}
	if err := p.pipe.Finish(); err != nil || p.kind != unix.S_IFBLK || p.sink.opt.NoFsync {
		return err
	}
	return fileset.OpErr("sync", p.sink.dest, p.sink.calls.fsync(p.pipe.fd))
}

// Interrupt ends the Write under way, and every later one, with ErrInterrupted.
func (p *Special) Interrupt() {
	p.once.Do(func() { close(p.stop) })
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pipe != nil {
		p.pipe.Interrupt()
	}
}

// close frees what Write opened. It may be called on nil.
func (p *Special) close() error {
	if p == nil || p.pipe == nil {
		return nil
	}
	return p.pipe.Close()
}
