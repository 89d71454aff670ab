package flow

import "gdrcp/xfer/internal/stat"

// AwaitLocked waits until something has changed. wanting says that the caller has something to put
// into a slot. If there is also no room, the time counts for the reason that holds up the slots. If
// the reason is not known yet, recountLocked ends the wait when it is.
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

// recountLocked wakes an uncounted wait, so that the rest of the wait counts. With few slots all of
// them may be with workers when the wait begins, and in the queue for most of it.
func (o *Sender[C]) recountLocked() {
	if !o.uncounted || o.RoomLocked() {
		return
	}
	if _, counts := o.HeldUpLocked(); counts {
		o.uncounted = false
		o.Cond.Broadcast()
	}
}

// HeldUpLocked returns what most of the source's slots wait for: the network, or slots of the sink.
// counts is false if most are being filled, or are queued after one that is: then the workers' own
// time shows the reason.
func (o *Sender[C]) HeldUpLocked() (s stat.Stage, counts bool) {
	filling := o.FillingLocked()
	next, _ := o.nextLocked()
	switch behind := o.Granted.Grants() > len(o.missing); {
	case o.Under >= o.Filled && o.Under >= filling:
		return stat.Wire, true
	case next != nil: // the send queue is full, or there is no link
		return stat.Wire, true
	case o.Filled >= filling && !behind:
		return stat.Slots, true
	}
	return 0, false
}

// FillingLocked is the number of slots that workers have.
func (o *Sender[C]) FillingLocked() int { return len(o.Slots) - len(o.Free) - o.Filled - o.Under }
