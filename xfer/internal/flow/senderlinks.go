package flow

import (
	"fmt"
	"slices"

	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// LinkReady records that this end's ring is registered on the rail of a further link.
func (o *Sender[C]) LinkReady(l *link.Link) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	l.Ready = true
	o.useLocked(l)
}

// useLocked sends chunks over a link from now on, if both ends' rings are registered on it.
func (o *Sender[C]) useLocked(l *link.Link) {
	if l.Ready && l.Target.Slots != 0 && !l.Lost.Load() {
		o.links = append(o.links, l)
	}
	o.pumpLocked()
}

// LinkLost stops addressing chunks over a link.
func (o *Sender[C]) LinkLost(l *link.Link) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	o.links = slices.DeleteFunc(o.links, func(other *link.Link) bool { return other == l })
}

// Shut takes back what a lost link had, after its connections are closed: this end's slots, for
// which no completion will come, and the chunks that were not posted whole. It returns the sink's
// slots, which are quarantined until the sink has answered for them.
func (o *Sender[C]) Shut(l *link.Link) []credit.Place {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	o.Session.Trace.Step(credit.Step{Kind: credit.StepLost, Link: l.Number})
	for i := range o.Slots {
		s := &o.Slots[i]
		if s.postedOn == l {
			s.postedOn = nil
			o.Under--
			o.Free = append(o.Free, s.Index)
		}
		if s.lane != nil && s.lane.Link == l {
			o.Session.Trace.Step(credit.Step{Kind: credit.StepDropped, Link: l.Number, Place: s.target})
			s.lane, s.headerSent = nil, false
		}
	}
	o.Cond.Broadcast()
	quarantined := o.Granted.Fence(l.Number)
	o.Session.Trace.Step(credit.Step{Kind: credit.StepFence, Link: l.Number, Places: quarantined})
	o.pumpLocked()
	return quarantined
}

// Fenced takes back the slots of a lost link that were never announced to the sink. Their chunks go
// over other links.
func (o *Sender[C]) Fenced(b *wire.LostLink) error {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	for i := range b.Slots {
		r := &b.Slots[i]
		place := credit.Place{Slot: r.Slot, Generation: r.Generation}
		if err := o.Granted.Fenced(credit.Link(b.Link), place); err != nil {
			return fmt.Errorf("%w: %w", fault.ErrProtocol, err)
		}
		o.Session.Trace.Step(credit.Step{Kind: credit.StepRegranted, Link: credit.Link(b.Link), Place: place})
		if p := &o.posted[r.Slot]; p.busy {
			p.busy = false
			o.missing = append(o.missing, p.chunk.ID)
			o.Moved(&p.chunk)
		}
	}
	o.Cond.Broadcast()
	o.pumpLocked()
	return nil
}

// FitRing removes the slots that the ring did not get. No slot may have been taken before.
func (o *Sender[C]) FitRing() {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	n := o.Session.Link.Ring.Slots
	if n >= len(o.Slots) {
		return
	}
	o.Slots, o.Free, o.Ready = o.Slots[:n], o.Free[:n], o.Ready[:n]
}
