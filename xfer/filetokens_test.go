package xfer

import (
	"context"
	"errors"
	"testing"
	"time"
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

// noBudget has room for nothing.
type noBudget struct{ took int }

func (b *noBudget) Take(int) bool { return false }
func (b *noBudget) Give(n int)    { b.took -= n }

// TestFileTokensWithinBudget: without room in the budget a few files may still be open.
func TestFileTokensWithinBudget(t *testing.T) {
	f, b := newFileTokens(100), &noBudget{}
	f.budget = b
	for range 3 {
		for i := range leastTokens {
			if err := f.take(); err != nil {
				t.Fatalf("file %d: %v", i, err)
			}
		}
		if err := f.take(); !errors.Is(err, errAllOpen) || f.takeSpare() {
			t.Errorf("one more: %v", err)
		}
		for range leastTokens {
			f.giveBack()
		}
	}
	if b.took != 0 {
		t.Errorf("it gave back %d that it had not taken", -b.took)
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
