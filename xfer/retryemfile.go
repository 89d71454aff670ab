package xfer

import (
	"context"
	"time"

	"gdrcp/internal/fsys"
)

// retryOnEMFILE opens a file. It tries again while the process or the system has as
// many open files as it may: other sessions, and this one, are about to close some. The
// error is context.Canceled when stop is closed first.
func retryOnEMFILE[T any](stop <-chan struct{}, open func() (T, error)) (T, error) {
	const tries, pause = 100, 20 * time.Millisecond
	for i := 0; ; i++ {
		f, err := open()
		if i == tries || !fsys.LacksDescriptors(err) {
			return f, err
		}
		select {
		case <-stop:
			return f, context.Canceled
		case <-time.After(pause):
		}
	}
}
