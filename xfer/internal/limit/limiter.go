// Package limit bounds how many bytes pass in a second.
package limit

import (
	"context"
	"sync"
	"time"
)

const (
	minLimiterBytes = 512
	// limiterTurn and turnBytes bound how much is booked at once: the bytes of
	// 1/limiterTurn second, and turnBytes. Users of one limiter then take turns,
	// however large their chunks are.
	limiterTurn = 20
	turnBytes   = 64 << 10
	// limiterSlack is how much unused time may be caught up with: a goroutine that
	// slept a little too long does not lose that time.
	limiterSlack = 20 * time.Millisecond
)

// Limiter bounds how many bytes a second its users move together. Users get their turns
// in the order in which they ask. Several goroutines may use it at once.
type Limiter struct {
	bytesPerSecond int64

	mu sync.Mutex
	// paid is when the time for all bytes booked so far ends.
	paid time.Time
}

// New returns a limiter of that many bytes a second, at least 512. For 0 and less it
// returns nil, which limits nothing.
func New(bytesPerSecond int64) *Limiter {
	if bytesPerSecond <= 0 {
		return nil
	}
	return &Limiter{bytesPerSecond: max(bytesPerSecond, minLimiterBytes)}
}

// BytesPerSecond is the limit. It is 0 where there is none.
func (l *Limiter) BytesPerSecond() int64 {
	if l == nil {
		return 0
	}
	return l.bytesPerSecond
}

// book takes the time of n bytes behind that of all earlier callers, and returns when
// that time ends.
func (l *Limiter) book(now time.Time, n int64) time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	if since := now.Add(-limiterSlack); l.paid.Before(since) {
		l.paid = since
	}
	l.paid = l.paid.Add(time.Duration(float64(n) / float64(l.bytesPerSecond) * float64(time.Second)))
	return l.paid
}

// Limits are the limiters of a session, all in force at once. Nil limits nothing.
type Limits []*Limiter

// Of leaves out limiters that limit nothing.
func Of(all ...*Limiter) (ls Limits) {
	for _, l := range all {
		if l != nil {
			ls = append(ls, l)
		}
	}
	return ls
}

// Wait lets n bytes pass. It blocks for as long as they take at the lowest of the
// limits, beside all others that share one. It calls moved, which may be nil, after
// each part of the bytes. The error is the cause of the end of ctx.
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

// turn is how many bytes are booked at a time.
func (ls Limits) turn() int64 {
	turn := int64(turnBytes)
	for _, l := range ls {
		turn = min(turn, l.bytesPerSecond/limiterTurn)
	}
	return turn
}

// Slots is how many of a ring's slots are of use under the limits, at least two. More
// slots would be filled at once, whatever the limit.
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
