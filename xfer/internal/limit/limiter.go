// Package limit bounds how many bytes a second pass.
package limit

import (
	"context"
	"sync"
	"time"
)

const (
	minLimiterBytes = 512
	// limiterTurn is the part of a second, and turnBytes the bytes, of which no
	// more is booked at once: those who share a limiter take turns, however
	// large their chunks are.
	limiterTurn = 20
	turnBytes   = 64 << 10
	// limiterSlack is how much of what nobody took may be caught up with: who
	// slept a little too long does not lose it.
	limiterSlack = 20 * time.Millisecond
)

// Limiter bounds how many bytes a second pass those who share it, in the order
// in which they ask. It may be used by many at once.
type Limiter struct {
	bytesPerSecond int64

	mu sync.Mutex
	// paid is until when what was asked for so far takes.
	paid time.Time
}

// New returns a limiter of that many bytes a second, 512 at the least;
// nil, which limits nothing, for 0 and less.
func New(bytesPerSecond int64) *Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &Limiter{bytesPerSecond: max(bytesPerSecond, minLimiterBytes)}
}

// BytesPerSecond is the limit; 0 for none.
func (l *Limiter) BytesPerSecond() int64 {
	if l == nil {
		return 0
	}
	return l.bytesPerSecond
}

// book takes n bytes' time behind that of all who asked before, and returns
// when it is over.
func (l *Limiter) book(now time.Time, n int64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Add(-limiterSlack); l.paid.Before(since) {
		l.paid = since
	}
	l.paid = l.paid.Add(time.Duration(float64(n) / float64(l.bytesPerSecond) * float64(time.Second)))
	return l.paid
}

// Limits are those that a session is under, all at once: nil for none.
type Limits []*Limiter

// Of leaves out those that limit nothing.
func Of(all ...*Limiter) (ls Limits) {
	for _, l := range all {
		if l != nil {
			ls = append(ls, l)
		}
	}
	return ls
}

// Wait lets n bytes pass: it blocks for as long as they take at the lowest of
// the limits, beside all that share one. moved, which may be nil, is called after
// each part of them. An error is why ctx has ended.
func (ls Limits) Wait(ctx context.Context, n int64, moved func()) error {
	if len(ls) == 0 {
		return nil
	}
	turn := ls.turn()
	for n > 0 {
		now := time.Now()
		var until time.Time
		part := min(n, turn)
		for _, l := range ls {
			if t := l.book(now, part); t.After(until) {
				until = t
			}
		}
		n -= part
		if err := sleepUntil(ctx, until); err != nil {
			return err
		}
		if moved != nil {
			moved()
		}
	}
	return nil
}

// turn is how much is booked at a time.
func (ls Limits) turn() int64 {
	turn := int64(turnBytes)
	for _, l := range ls {
		turn = min(turn, l.bytesPerSecond/limiterTurn)
	}
	return turn
}

// Slots is how many of a ring's slots are of use under the limits, two at the
// least: the others would be filled at once, whatever the limit.
func (ls Limits) Slots(slots, chunkBytes int) int {
	for _, l := range ls {
		slots = int(min(int64(slots), max(2, l.bytesPerSecond/int64(max(chunkBytes, 1)))))
	}
	return slots
}

func sleepUntil(ctx context.Context, until time.Time) error {
	d := time.Until(until)
	if d <= 0 {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return nil
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
