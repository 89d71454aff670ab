//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"gdrcp/rdma"
)

// pollFD is a duplicate of one of the libraries' file descriptors, for waiting in Go's
// poller. The library keeps and closes its own descriptor.
type pollFD struct {
	file   *os.File
	raw    syscall.RawConn
	closed atomic.Bool
}

// newPollFD duplicates fd, which must be non-blocking: the mode belongs to the
// open file description and so applies to both.
func newPollFD(fd int, name string) (*pollFD, error) {
	dup, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 0)
	if e != 0 {
		return nil, fmt.Errorf("duplicate %s: %w", name, e)
	}
	f := os.NewFile(dup, name)
	raw, err := f.SyscallConn()
	if err == nil {
		// This fails if the poller did not accept the descriptor.
		err = f.SetReadDeadline(time.Time{})
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("poll %s: %w", name, err)
	}
	return &pollFD{file: f, raw: raw}, nil
}

// past is a deadline that wakes a reader immediately.
var past = time.Unix(1, 0)

// wake makes a running read, or the next one, return errWoken. The caller first
// stores the reason for the wake.
func (p *pollFD) wake() { _ = p.file.SetReadDeadline(past) }

// errWoken is the error of read after wake.
var errWoken = errors.New("woken")

// read parks until consume returns true. consume must itself read the event from the
// descriptor: Go's poller is edge-triggered, and would not report an unread event again.
func (p *pollFD) read(consume func(uintptr) bool) error {
	err := p.raw.Read(consume)
	switch {
	case err == nil:
		return nil
	case p.closed.Load():
		return rdma.ErrClosed
	case errors.Is(err, os.ErrDeadlineExceeded):
		// Reset the deadline before the caller checks the reason for the wake,
		// so that no later wake is lost.
		if err := p.file.SetReadDeadline(time.Time{}); err != nil {
			return rdma.ErrClosed
		}
		return errWoken
	}
	return err
}

// readContext is read with a context: it also ends with ctx, and returns its cause.
func (p *pollFD) readContext(ctx context.Context, consume func(uintptr) bool) error {
	stop := context.AfterFunc(ctx, p.wake)
	defer stop()
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := p.read(consume); !errors.Is(err, errWoken) {
			return err
		}
	}
}

// close wakes a reader and returns when the reader has returned. It leaves the
// library's own descriptor open.
func (p *pollFD) close() {
	if !p.closed.Swap(true) {
		_ = p.file.Close()
	}
}
