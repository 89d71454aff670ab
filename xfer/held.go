package xfer

import (
	"sync/atomic"
	"time"
)

// heldTime counts for how long the workers of a session have held slots, and how many slots have
// ended. A worker's time counts while it computes, with a turn, or waits for a disk, without one.
// What it waits for a turn does not: with more slots it would wait for longer.
type heldTime struct{ ns, slots atomic.Int64 }

// heldLook is what happened from one look to the next: the part of the workers' time in which they
// held slots, how many slots ended in a second, and for how long each was held.
type heldLook struct{ busy, perSecond, heldSeconds float64 }

// heldProbe takes the place of what an end measures, in tests.
type heldProbe func() heldLook

// heldMeter measures heldTime from one lap to the next. Only what has ended is counted, so that a
// lap goes on, and tells of nothing, until as many slots have ended as there are workers.
type heldMeter struct {
	of        *heldTime
	at        time.Time
	ns, slots int64
}

func (m *heldMeter) lap(at time.Time, workers int) (l heldLook) {
	now := heldMeter{m.of, at, m.of.ns.Load(), m.of.slots.Load()}
	ended := float64(now.slots - m.slots)
	if ended < float64(workers) {
		return l
	}
	seconds, held := now.at.Sub(m.at).Seconds(), float64(now.ns-m.ns)/1e9
	*m = now
	return heldLook{busy: held / seconds / float64(workers), perSecond: ended / seconds, heldSeconds: held / ended}
}
