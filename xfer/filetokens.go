package xfer

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"
)

// errAllOpen says that every file that may be open waits for more of its bytes.
var errAllOpen = fmt.Errorf("as many files as may be open wait for pieces that are sent again: %w", unix.EMFILE)

// fileTokens bounds the files that a sink has open: those that are being written, and
// those that are with the publisher. The publisher closes its files soon, whatever else
// happens. The other files are closed when the rest of their bytes has landed. The
// workers that land those bytes are the same that want to open more files. A worker
// that waited for such a file might wait for ever, for example where more files have
// damaged pieces at once than may be open.
type fileTokens struct {
	mu         sync.Mutex
	cond       *sync.Cond
	all        int
	free       int
	publishing int
	stopped    bool
}

func newFileTokens(n int) *fileTokens {
	f := &fileTokens{all: n, free: n}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// wakeOn ends every wait once the context has ended.
func (f *fileTokens) wakeOn(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stopped = true
		f.cond.Broadcast()
	})
}

// take takes a token. Where none is free, take waits as long as the publisher has files
// to close, and returns errAllOpen when the publisher has none. It returns
// context.Canceled once the session ends.
func (f *fileTokens) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for f.free == 0 && f.publishing > 0 && !f.stopped {
		f.cond.Wait()
	}
	if f.stopped {
		return context.Canceled
	}
	if f.free == 0 {
		return errAllOpen
	}
	f.free--
	return nil
}

// takeSpare takes a token if more than half of them are free. It does not wait. What is
// taken long before its bytes come must not keep other files from being opened.
func (f *fileTokens) takeSpare() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped || f.free <= f.all/2 {
		return false
	}
	f.free--
	return true
}

// publish notes that the file of a token is with the publisher.
func (f *fileTokens) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publishing++
}

// published gives back the token of a file that was with the publisher.
func (f *fileTokens) published() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.publishing--
	f.free++
	f.cond.Broadcast()
}

// giveBack gives back the token of any other file.
func (f *fileTokens) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free++
	f.cond.Broadcast()
}
