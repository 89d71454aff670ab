package flow

import "gdrcp/xfer/internal/stat"

// AwaitLocked waits until something has changed. wanting says that the caller has
// something for a slot: if it has no room either, the time counts as what holds the slots
// up. Where that is not to be seen yet, recountLocked ends the wait when it is.
func (o *Sender[C]) AwaitLocked(wanting bool) {
	stage, counts := o.HeldUpLocked()
	if !wanting || !counts || o.RoomLocked() {
		o.uncounted = wanting
		o.Cond.Wait()
		o.uncounted = false
		return
	}
	from := stat.Now()
	o.Cond.Wait()
	o.Session.Tally.Spend(stage, from, 1)
}

// recountLocked wakes who waits uncounted, so that the rest of the wait counts. With few slots
// all of them may be with workers when the wait begins, and in line for most of it.
func (o *Sender[C]) recountLocked() {
	if !o.uncounted || o.RoomLocked() {
		return
	}
	if _, counts := o.HeldUpLocked(); counts {
		o.uncounted = false
		o.Cond.Broadcast()
	}
}

// HeldUpLocked says what most of the source's slots wait for: the network, or slots of
// the sink. It says nothing where most are being filled, or are in line behind one that
// is: then the workers' own time shows why.
func (o *Sender[C]) HeldUpLocked() (s stat.Stage, counts bool) {
	filling := o.FillingLocked()
	next, _ := o.nextLocked()
	switch behind := o.Granted.Grants() > len(o.missing); {
	case o.Under >= o.Filled && o.Under >= filling:
		return stat.Wire, true
	case next != nil: // the send queue is full, or no link is there
		return stat.Wire, true
	case o.Filled >= filling && !behind:
		return stat.Slots, true
	}
	return 0, false
}

// FillingLocked is how many slots are with workers.
func (o *Sender[C]) FillingLocked() int { return len(o.Slots) - len(o.Free) - o.Filled - o.Under }
