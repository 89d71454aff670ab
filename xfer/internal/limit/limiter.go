// Package limit limits the rate of bytes per second.
package limit

import (
	"context"
	"sync"
	"time"
)

const (
	minLimiterBytes = 512
	// limiterTurn and turnBytes bound how much is booked at a time: the bytes of
	// 1/limiterTurn second, and turnBytes. So users of one limiter take turns, however
	// large their chunks are.
	limiterTurn = 20
	turnBytes   = 64 << 10
	// limiterSlack is how much unused time may be made up for: a goroutine that slept
	// slightly too long does not lose that time.
	limiterSlack = 20 * time.Millisecond
)

// Limiter limits the total rate of its users in bytes per second. Users get their turns in
// the order in which they ask. It is safe for concurrent use.
type Limiter struct {
	bytesPerSecond int64

	mu sync.Mutex
	// paid is the end of the time of all bytes booked so far.
	paid time.Time
}

// New returns a limiter with the given rate, at least 512 bytes per second. For 0 and less
// it returns nil, which limits nothing.
func New(bytesPerSecond int64) *Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &Limiter{bytesPerSecond: max(bytesPerSecond, minLimiterBytes)}
}

// BytesPerSecond returns the limit, or 0 if there is none.
func (l *Limiter) BytesPerSecond() int64 {
	if l == nil {
		return 0
	}
	return l.bytesPerSecond
}

// book reserves the time for n bytes after that of all earlier callers, and returns its
// end.
func (l *Limiter) book(now time.Time, n int64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Add(-limiterSlack); l.paid.Before(since) {
		l.paid = since
	}
	l.paid = l.paid.Add(time.Duration(float64(n) / float64(l.bytesPerSecond) * float64(time.Second)))
	return l.paid
}

// Limits are the limiters of a session, which all apply. Nil limits nothing.
type Limits []*Limiter

// Of returns the limiters that are not nil.
func Of(all ...*Limiter) (ls Limits) {
	for _, l := range all {
		if l != nil {
			ls = append(ls, l)
		}
	}
	return ls
}

// Wait waits until n bytes may pass. It blocks for as long as they take at the lowest of
// the limits, taking turns with all others that share one. It calls moved, which may be
// nil, after each part of the bytes. The error is the cause of the end of ctx.
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

// turn is how many bytes to book at a time.
func (ls Limits) turn() int64 {
	turn := int64(turnBytes)
	for _, l := range ls {
		turn = min(turn, l.bytesPerSecond/limiterTurn)
	}
	return turn
}

// Slots returns how many of a ring's slots are useful under the limits, at least two. More
// slots would be filled immediately, regardless of the limit.
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
