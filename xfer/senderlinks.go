package xfer

import (
	"fmt"
	"slices"

	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// linkReady notes that this end's ring is registered on the rail of a further link.
func (o *Sender[C]) linkReady(l *link.Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	l.Ready = true
	o.useLocked(l)
}

// useLocked sends chunks over a link from now on, if both ends' rings are on it.
func (o *Sender[C]) useLocked(l *link.Link) {
	if l.Ready && l.Target.Slots != 0 && !l.Lost.Load() {
		o.links = append(o.links, l)
	}
	o.pumpLocked()
}

// linkLost addresses nothing more over a link.
func (o *Sender[C]) linkLost(l *link.Link) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.links = slices.DeleteFunc(o.links, func(other *link.Link) bool { return other == l })
}

// shut takes back what a lost link had, once its connections are closed: this end's
// slots, for which no completion comes any more, and the chunks that were not posted
// whole. It returns the sink's slots that are quarantined until the sink has answered
// for them.
func (o *Sender[C]) shut(l *link.Link) []credit.Place {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.session.Trace.Step(credit.Step{Kind: credit.StepLost, Link: l.Number})
	for i := range o.slots {
		s := &o.slots[i]
		if s.postedOn == l {
			s.postedOn = nil
			o.under--
			o.free = append(o.free, s.index)
		}
		if s.lane != nil && s.lane.Link == l {
			o.session.Trace.Step(credit.Step{Kind: credit.StepDropped, Link: l.Number, Place: s.target})
			s.lane, s.headerSent = nil, false
		}
	}
	o.cond.Broadcast()
	quarantined := o.granted.Fence(l.Number)
	o.session.Trace.Step(credit.Step{Kind: credit.StepFence, Link: l.Number, Places: quarantined})
	o.pumpLocked()
	return quarantined
}

// fenced takes the slots of a lost link of which the sink never heard. Their chunks go
// over other links.
func (o *Sender[C]) fenced(b *wire.LostLink) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range b.Slots {
		r := &b.Slots[i]
		place := credit.Place{Slot: r.Slot, Generation: r.Generation}
		if err := o.granted.Fenced(credit.Link(b.Link), place); err != nil {
			return fmt.Errorf("%w: %w", ErrProtocol, err)
		}
		o.session.Trace.Step(credit.Step{Kind: credit.StepRegranted, Link: credit.Link(b.Link), Place: place})
		if p := &o.posted[r.Slot]; p.busy {
			p.busy = false
			o.missing = append(o.missing, p.chunk.ID)
			o.moved(&p.chunk)
		}
	}
	o.cond.Broadcast()
	o.pumpLocked()
	return nil
}

// fitRing leaves out the slots that the ring did not get. No slot may have been taken
// before.
func (o *Sender[C]) fitRing() {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := o.session.Link.Ring.Slots
	if n >= len(o.slots) {
		return
	}
	o.slots, o.free, o.ready = o.slots[:n], o.free[:n], o.ready[:n]
}
