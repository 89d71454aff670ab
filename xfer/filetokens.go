package xfer

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
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
	// budget, unless nil, must have room for each file beyond least. taken is how many have a part of
	// it. takeSpare leaves reserve tokens that need no more of it.
	budget         chunker.Budget
	taken          int
	least, reserve int
}

const (
	// spareTokens is how many files may be open without asking the budget, besides the large files
	// that are cut in parallel. Each of those may keep its token for long, and the source cuts other
	// files meanwhile.
	spareTokens = 8
	// filesOfToken is how many descriptors a file takes at most: itself, one past the page cache,
	// its journal, and its basis.
	filesOfToken = 4
	// tokenWait bounds the wait for files that are not with the publisher.
	tokenWait = 5 * time.Millisecond
)

func newFileTokens(n int) *fileTokens {
	f := &fileTokens{all: n, free: n}
	f.cond = sync.NewCond(&f.mu)
	return f
}

// within makes a budget bound the tokens of a session.
func (f *fileTokens) within(b chunker.Budget, p *wire.Terms) {
	transfers := cmp.Or(p.Transfers, DefaultTransfers)
	// Of all files that have a token, only the large files and one small one have bytes that the
	// source has not cut. The others are complete once what is in transit is written.
	f.budget, f.least, f.reserve = b, transfers+spareTokens, transfers+2
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

// take takes a token. If none is free, take waits as long as the publisher has files to close. If
// the publisher has none, take waits for tokenWait, because other workers may complete their files
// meanwhile, and then returns errAllOpen. It returns context.Canceled once the session ends.
func (f *fileTokens) take() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var timer *time.Timer
	late := false
	for !f.stopped {
		if f.takeLocked() {
			return nil
		}
		switch {
		case f.publishing > 0:
		case late:
			return errAllOpen
		case timer == nil:
			timer = time.AfterFunc(tokenWait, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				late = true
				f.cond.Broadcast()
			})
			defer timer.Stop()
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
	if !f.hasRoomLocked(1) {
		return false
	}
	f.free--
	return true
}

// hasRoomLocked makes room for n more files than are open, at most one of them in the budget.
func (f *fileTokens) hasRoomLocked(n int) bool {
	if f.budget == nil || f.all-f.free+n <= f.least+f.taken {
		return true
	}
	if !f.budget.Take(filesOfToken) {
		return false
	}
	f.taken++
	return true
}

// freeLocked gives a token back.
func (f *fileTokens) freeLocked() {
	f.free++
	if f.taken > max(0, f.all-f.free+f.reserve-f.least) {
		f.taken--
		f.budget.Give(filesOfToken)
	}
	f.cond.Broadcast()
}

// takeSpare takes a token if more than half of them are free. It does not wait. A token that is
// taken long before the file's bytes arrive must not keep other files from being opened, so it
// leaves the reserve.
func (f *fileTokens) takeSpare() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !f.stopped && f.free > f.all/2 && f.hasRoomLocked(1+f.reserve) && f.takeLocked()
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
