package xfer

import (
	"context"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
)

// errAllOpen says that every file that may be open waits for more of its bytes.
var errAllOpen = fmt.Errorf("as many files as may be open wait for pieces that are sent again: %w", unix.EMFILE)

// fileTokens bounds the files that a sink has open: those that are being written, and those that
// are with the publisher. The publisher closes its files soon, whatever else happens. The other
// files are closed when the rest of their bytes has been written, by the same workers that want to
// open more files. A worker that waited for such a file might wait for ever, for example if more
// files than may be open have damaged pieces.
type fileTokens struct {
	mu         sync.Mutex
	cond       *sync.Cond
	all        int
	free       int
	publishing int
	stopped    bool
	// budget, unless nil, must have room for each file beyond leastTokens. taken is how many have a
	// part of it.
	budget chunker.Budget
	taken  int
}

const (
	// leastTokens is how many files may be open without asking the budget.
	leastTokens = 4
	// filesOfToken is how many descriptors a file takes at most: itself, one past the page cache,
	// its journal, and its basis.
	filesOfToken = 4
)

func newFileTokens(n int) *fileTokens {
	f := &fileTokens{all: n, free: n}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// wakeOn ends every wait when the context ends.
func (f *fileTokens) wakeOn(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.stopped = true
		f.cond.Broadcast()
	})
}

// take takes a token. If none is free, take waits as long as the publisher has files to close, and
// returns errAllOpen when the publisher has none. It returns context.Canceled once the session
// ends.
func (f *fileTokens) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.stopped {
		if f.takeLocked() {
			return nil
		}
		if f.publishing == 0 {
			return errAllOpen
		}
		f.cond.Wait()
	}
	return context.Canceled
}

// takeLocked takes a token if there is one, and room for it in the budget.
func (f *fileTokens) takeLocked() bool {
	if f.free == 0 {
		return false
	}
	if f.budget != nil && f.all-f.free >= leastTokens {
		if !f.budget.Take(filesOfToken) {
			return false
		}
		f.taken++
	}
	f.free--
	return true
}

// freeLocked gives a token back.
func (f *fileTokens) freeLocked() {
	f.free++
	if f.taken > max(0, f.all-f.free-leastTokens) {
		f.taken--
		f.budget.Give(filesOfToken)
	}
	f.cond.Broadcast()
}

// takeSpare takes a token if more than half of them are free. It does not wait. A token that is
// taken long before the file's bytes arrive must not keep other files from being opened.
func (f *fileTokens) takeSpare() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.stopped && f.free > f.all/2 && f.takeLocked()
}

// publish records that the file of a token is with the publisher.
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
	f.freeLocked()
}

// giveBack gives back the token of any other file.
func (f *fileTokens) giveBack() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.freeLocked()
}
