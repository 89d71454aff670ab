package xfer

import (
	"context"
	"errors"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/fsys"
	"gdrcp/xfer/internal/flow"
)

// retryOnEMFILE opens a file. It tries again while the process or the system has as many open files
// as it may: other sessions, and this one, are about to close some. The error is context.Canceled
// when stop is closed first.
func retryOnEMFILE[T any](stop <-chan struct{}, open func() (T, error)) (T, error) {
	const tries, pause = 100, 20 * time.Millisecond
	for i := 0; ; i++ {
		f, err := open()
		if i == tries || !fsys.LacksDescriptors(err) || errors.Is(err, chunker.ErrBudget) {
			return f, err
		}
		select {
		case <-stop:
			return f, context.Canceled
		case <-time.After(pause):
		}
	}
}

// awaitBudget opens a file when this session's budget has room for it, after the session has closed
// others. A worker gives up its turn meanwhile, because those that close them need one. Others may
// keep their files open until this worker's chunk has been sent, so after longestWait one more file
// is opened, whatever the budget says. Call it with no lock held: see Turn.
func (s *source) awaitBudget(t *flow.Turn, open func() error) error {
	const pause, longestWait = 5 * time.Millisecond, time.Second
	for i := 1; ; i++ {
		err := open()
		if !errors.Is(err, chunker.ErrBudget) {
			return err
		}
		if t.Leave(); i%int(longestWait/pause) == 0 {
			s.tree.MayOpenAnother()
		}
		select {
		case <-s.stop:
			return context.Canceled
		case <-time.After(pause):
		}
	}
}
