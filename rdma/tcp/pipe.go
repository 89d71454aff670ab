package tcp

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
)

// pipeCopyBytes bounds how much is copied while a pipe's lock is held, so that
// Close and deadlines are not delayed any longer.
const pipeCopyBytes = 1 << 20

// pipe carries one direction of a stream within this process. It buffers
// nothing: a reader copies bytes directly from the writer's memory. A socket
// would copy them twice. A Write returns when all of it was read, or with an
// error. After that nobody reads the writer's memory.
type pipe struct {
	mu sync.Mutex
	// offered is the rest of the current Write, and taken the number of its
	// bytes that were read.
	offered [][]byte
	taken   int64
	// writing: a Write is in progress, and another one waits. ended: no byte
	// follows. refused: the reader is closed.
	writing, ended, refused bool
	read, write             pipeSide
}

// pipeSide is the state of one side: its waiters, deadline and whether it is
// closed. The pipe's mu guards it.
type pipeSide struct {
	changed *sync.Cond
	expired bool
	timer   *time.Timer // of the deadline; nil without one
	closed  bool        // at this side
}

func newPipe() *pipe {
	p := &pipe{}
	p.read.changed, p.write.changed = sync.NewCond(&p.mu), sync.NewCond(&p.mu)
	return p
}

// setDeadline sets the deadline of a side to t, or removes it if t is zero.
func (p *pipe) setDeadline(side *pipeSide, t time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if side.closed {
		return net.ErrClosed
	}
	side.stopTimer()
	side.expired = false
	if t.IsZero() {
		return nil
	}
	if until := time.Until(t); until > 0 {
		var timer *time.Timer
		timer = time.AfterFunc(until, func() {
			p.mu.Lock()
			defer p.mu.Unlock()
			if side.timer == timer { // otherwise there is a newer deadline
				side.expire()
			}
		})
		side.timer = timer
		return nil
	}
	side.expire()
	return nil
}

func (s *pipeSide) expire() {
	s.expired = true
	s.changed.Broadcast()
}

func (s *pipeSide) stopTimer() {
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
}

// close closes a side and ends every call that waits on it.
func (p *pipe) close(side *pipeSide) {
	p.mu.Lock()
	defer p.mu.Unlock()
	side.stopTimer()
	side.closed = true
	if side == &p.write {
		p.ended = true
	} else {
		p.refused = true
	}
	p.read.changed.Broadcast()
	p.write.changed.Broadcast()
}

// end reports to the reader that no byte follows, and ends a running Write.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.read.changed.Broadcast()
	p.write.changed.Broadcast()
}

// readTo copies bytes that a writer offers. It blocks until there are any.
func (p *pipe) readTo(dst []byte) (n int, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for {
		switch {
		case p.read.closed:
			return 0, net.ErrClosed
		case p.read.expired:
			return 0, os.ErrDeadlineExceeded
		case len(dst) == 0:
			return 0, nil
		case len(p.offered) > 0:
			return p.take(dst[:min(len(dst), pipeCopyBytes)]), nil
		case p.ended:
			return 0, io.EOF
		}
		p.read.changed.Wait()
	}
}

// take fills dst from the offered bytes, as far as they suffice.
func (p *pipe) take(dst []byte) (n int) {
	for len(p.offered) > 0 && n < len(dst) {
		part := copy(dst[n:], p.offered[0])
		n += part
		p.offered[0] = p.offered[0][part:]
		p.offered = withoutEmpty(p.offered)
	}
	p.taken += int64(n)
	if len(p.offered) == 0 {
		p.write.changed.Broadcast() // another Write may wait for its turn
	}
	return n
}

// writeFrom offers the buffers and blocks until all were read. It modifies the slice.
func (p *pipe) writeFrom(buffers [][]byte) (n int64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.writing {
		if err := p.unwritable(); err != nil {
			return 0, err
		}
		p.write.changed.Wait()
	}
	p.writing, p.offered, p.taken = true, withoutEmpty(buffers), 0
	defer func() {
		p.writing, p.offered = false, nil
		p.write.changed.Signal()
	}()
	p.read.changed.Signal()
	for len(p.offered) > 0 {
		if err := p.unwritable(); err != nil {
			return p.taken, err
		}
		p.write.changed.Wait()
	}
	return p.taken, nil
}

// unwritable returns the reason why a Write cannot continue.
func (p *pipe) unwritable() error {
	switch {
	case p.write.closed:
		return net.ErrClosed
	case p.ended || p.refused:
		return syscall.EPIPE
	case p.write.expired:
		return os.ErrDeadlineExceeded
	}
	return nil
}

// withoutEmpty drops the empty buffers at the front, so that the first one has a byte.
func withoutEmpty(buffers [][]byte) [][]byte {
	for len(buffers) > 0 && len(buffers[0]) == 0 {
		buffers = buffers[1:]
	}
	return buffers
}

// pipeEnd is one end of a stream within this process.
type pipeEnd struct{ in, out *pipe }

var _ Stream = (*pipeEnd)(nil)

// newPipeEnds makes a stream.
func newPipeEnds() (near, far *pipeEnd) {
	there, back := newPipe(), newPipe()
	return &pipeEnd{in: back, out: there}, &pipeEnd{in: there, out: back}
}

func (e *pipeEnd) Read(b []byte) (int, error) { return e.in.readTo(b) }

func (e *pipeEnd) Write(b []byte) (int, error) {
	n, err := e.out.writeFrom([][]byte{b})
	return int(n), err
}

// writeBuffers writes several buffers as one Write.
func (e *pipeEnd) writeBuffers(buffers [][]byte) error {
	_, err := e.out.writeFrom(buffers)
	return err
}

// CloseWrite implements [Stream].
func (e *pipeEnd) CloseWrite() error {
	e.out.end()
	return nil
}

// Close closes both directions at this end. The peer reads the end of the
// stream, and its writes fail.
func (e *pipeEnd) Close() error {
	e.out.close(&e.out.write)
	e.in.close(&e.in.read)
	return nil
}

func (e *pipeEnd) SetReadDeadline(t time.Time) error  { return e.in.setDeadline(&e.in.read, t) }
func (e *pipeEnd) SetWriteDeadline(t time.Time) error { return e.out.setDeadline(&e.out.write, t) }

// SetDeadline sets both deadlines.
func (e *pipeEnd) SetDeadline(t time.Time) error {
	return errors.Join(e.SetReadDeadline(t), e.SetWriteDeadline(t))
}

func (*pipeEnd) LocalAddr() net.Addr  { return pairAddr{} }
func (*pipeEnd) RemoteAddr() net.Addr { return pairAddr{} }
