package chunker

import (
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

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
	if s.opt.Root != nil || s.leaf == "" || s.missing || s.adopts || s.opt.Whole != nil || fsys.Fstatat(s.base.fd, s.leaf, &st, 0) != nil || !isSpecial(&st) {
		return nil
	}
	kind := st.Mode & unix.S_IFMT
	if kind == unix.S_IFSOCK {
		return ErrInTheWay
	}
	for fd := range 2 {
		var own unix.Stat_t
		if kind == unix.S_IFIFO && fsys.Fstat(fd, &own) == nil && inodeOf(&own) == inodeOf(&st) {
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
		return kindErr("copy to", p.sink.dest, ErrInTheWay)
	}
	return nil
}

// Write writes all of b, and blocks until that is done. Its first call opens the device or
// fifo, also if b is empty. That of a fifo waits until somebody opens it for reading.
func (p *Special) Write(b []byte) (int, error) {
	if err := p.open(); err != nil {
		return 0, opErr("open", p.sink.dest, err)
	}
	return p.pipe.Write(b)
}

func (p *Special) open() error {
	if p.pipe != nil {
		return nil
	}
	for {
		fd, err := fsys.Openat(p.sink.base.fd, p.sink.leaf, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
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
		err = ErrChanged
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
	return opErr("sync", p.sink.dest, p.sink.calls.fsync(p.pipe.fd))
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
