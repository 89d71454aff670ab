package xfer

import (
	"context"
	"errors"
	"testing"
	"time"
)

// Whoever wants to open a file waits for those that are with the publisher, and
// for no others.
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
	// Of two who wait one gets the token, and the other nothing to wait for.
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
