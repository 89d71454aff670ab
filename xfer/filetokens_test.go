package xfer

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"gdrcp/xfer/internal/wire"
)

// To open a file, a goroutine waits for files that are with the publisher, and for no others.
func TestFileTokens(t *testing.T) {
	OnHost(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	f := newFileTokens(2)
	f.wakeOn(ctx)
	if err := errors.Join(f.take(), f.take()); err != nil {
		t.Fatal(err)
	}
	if err := f.take(); !errors.Is(err, errAllOpen) {
		t.Errorf("two files wait for pieces: %v", err)
	}
	waiting := func() chan error {
		taken := make(chan error, 1)
		go func() { taken <- f.take() }()
		return taken
	}
	f.publish()
	third := waiting()
	select {
	case err := <-third:
		t.Errorf("a file is with the publisher, and was not waited for: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	f.published()
	if err := <-third; err != nil {
		t.Error(err)
	}
	// If two wait, one gets the token, and the other has nothing to wait for.
	f.publish()
	both := []chan error{waiting(), waiting()}
	time.Sleep(20 * time.Millisecond)
	f.published()
	if a, b := <-both[0], <-both[1]; (a == nil) == (b == nil) || !errors.Is(errors.Join(a, b), errAllOpen) {
		t.Errorf("two who waited for one file: %v, %v", a, b)
	}
	f.publish()
	last := waiting()
	cancel()
	if err := <-last; !errors.Is(err, context.Canceled) {
		t.Errorf("the session has ended: %v", err)
	}
}

// TestFileTokensWithinBudget: without room in the budget, the large files in transfer and some small
// ones may be open. Files that were opened early leave room for those. All that was taken comes back.
func TestFileTokensWithinBudget(t *testing.T) {
	for _, c := range []struct{ transfers, left int }{{0, 0}, {1, 0}, {MaxTransfers, 0}, {0, 240}} {
		f, b := newFileTokens(100), &countedBudget{left: c.left}
		f.within(b, &wire.Terms{Transfers: c.transfers})
		transfers := cmp.Or(c.transfers, DefaultTransfers)
		for _, most := range []int{0, 100} {
			early, others := 0, 0
			for ; early < most && f.takeSpare(); early++ {
			}
			for ; f.take() == nil; others++ {
			}
			if others < transfers+2 || early+others != transfers+spareTokens+c.left/filesOfToken || f.takeSpare() {
				t.Errorf("%+v: %d files were opened early, and then %d others", c, early, others)
			}
			for range early + others {
				f.giveBack()
			}
			if b.left != c.left {
				t.Errorf("%+v: %d are left", c, b.left)
			}
		}
	}
}

// TestFileBudget: a session takes blocks from its server, or what is left, and gives back what it
// does not use.
func TestFileBudget(t *testing.T) {
	server := &countedBudget{left: 150}
	b := &fileBudget{server: server}
	for i := range 150 {
		if !b.Take(1) {
			t.Fatalf("no room for %d", i)
		}
	}
	if b.Take(1) {
		t.Error("there was room for more than all")
	}
	b.Give(150)
	if server.left <= 150-2*budgetBlock || server.calls > 150/2 {
		t.Errorf("%d are left after %d calls", server.left, server.calls)
	}
}

type countedBudget struct{ left, calls int }

func (b *countedBudget) Take(n int) bool {
	if b.calls++; b.left < n {
		return false
	}
	b.left -= n
	return true
}

func (b *countedBudget) Give(n int) { b.calls++; b.left += n }
