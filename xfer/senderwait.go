package xfer

import "gdrcp/xfer/internal/stat"

// awaitLocked waits until something has changed. wanting says that the caller has
// something for a slot: if it has no room either, the time counts as what holds the slots
// up. Where that is not to be seen yet, recountLocked ends the wait when it is.
func (o *Sender[C]) awaitLocked(wanting bool) {
	stage, counts := o.heldUpLocked()
	if !wanting || !counts || o.roomLocked() {
		o.uncounted = wanting
		o.cond.Wait()
		o.uncounted = false
		return
	}
	from := stat.Now()
	o.cond.Wait()
	o.session.tally.Spend(stage, from, 1)
}

// recountLocked wakes who waits uncounted, so that the rest of the wait counts. With few slots
// all of them may be with workers when the wait begins, and in line for most of it.
func (o *Sender[C]) recountLocked() {
	if !o.uncounted || o.roomLocked() {
		return
	}
	if _, counts := o.heldUpLocked(); counts {
		o.uncounted = false
		o.cond.Broadcast()
	}
}

// heldUpLocked says what most of the source's slots wait for: the network, or slots of
// the sink. It says nothing where most are being filled, or are in line behind one that
// is: then the workers' own time shows why.
func (o *Sender[C]) heldUpLocked() (s stat.Stage, counts bool) {
	filling := o.fillingLocked()
	next, _ := o.nextLocked()
	switch behind := o.granted.Grants() > len(o.missing); {
	case o.under >= o.filled && o.under >= filling:
		return stat.Wire, true
	case next != nil: // the send queue is full, or no link is there
		return stat.Wire, true
	case o.filled >= filling && !behind:
		return stat.Slots, true
	}
	return 0, false
}

// fillingLocked is how many slots are with workers.
func (o *Sender[C]) fillingLocked() int { return len(o.slots) - len(o.free) - o.filled - o.under }
