package xfer

import (
	"context"
	"errors"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// TestAttemptsOfOneCopy: a later attempt ends an earlier one of the same copy and key and waits for
// it, but not for ever; an earlier one that arrives late does not run; and nothing is kept.
func TestAttemptsOfOneCopy(t *testing.T) {
	var p pushes
	id := fileset.NewStageID()
	enter := func(key string, attempt uint32, patience time.Duration) (ctx context.Context, left func(), err error) {
		ctx, end := context.WithCancelCause(t.Context())
		h := &wire.Hello{Terms: wire.Terms{Mode: wire.ModePush}, Copy: wire.CopyAttempt{ID: id, Attempt: attempt}}
		left, err = p.enter(ctx, key, end, h, patience)
		return ctx, left, err
	}
	must := func(ctx context.Context, left func(), err error) (context.Context, func()) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return ctx, left
	}
	first, leftFirst := must(enter("key", 0, time.Minute))
	other, leftOther := must(enter("another key", 1, time.Minute))
	_, leftSecond, err := enter("key", 1, time.Millisecond)
	if !errors.As(err, new(*endingError)) || Classify(err) != ClassStopped {
		t.Errorf("beside the first: %v, of class %d", err, Classify(err))
	}
	leftSecond()
	if !errors.Is(context.Cause(first), fault.ErrSuperseded) || other.Err() != nil {
		t.Errorf("the first ended with %v, that of another key with %v", context.Cause(first), other.Err())
	}
	if _, left, err := enter("key", 0, time.Minute); !errors.Is(err, fault.ErrSuperseded) {
		t.Errorf("the first, late: %v", err)
	} else {
		left()
	}
	firstLeft := make(chan struct{})
	time.AfterFunc(50*time.Millisecond, func() { defer close(firstLeft); leftFirst() })
	begun := time.Now()
	_, leftThird := must(enter("key", 2, time.Minute))
	if took := time.Since(begun); took < 50*time.Millisecond {
		t.Errorf("the third waited for %v only", took)
	}
	<-firstLeft
	leftThird()
	leftOther()
	if len(p.copy) > 0 {
		t.Errorf("%d copies are kept", len(p.copy))
	}
}
