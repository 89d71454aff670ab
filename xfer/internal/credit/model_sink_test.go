package credit_test

import (
	"fmt"
	"slices"

	"gdrcp/xfer/internal/credit"
)

// generationMask selects the bits of a generation in an announcement: a single
// bit, the worst case.
const generationMask = 1

// sinkSteps appends the possible steps of the sink.
func (w *world) sinkSteps(to []step) []step {
	e := &w.sink
	for l := credit.Link(1); int(l) <= w.talk.links; l++ {
		to = w.landings(to, l)
		if !w.talk.isUp(atSink, l) && !e.shut[l-1] {
			to = append(to, step{name: "close connections", side: atSink, link: l, sure: true})
		}
	}
	if len(e.arrived) > 0 {
		to = append(to, step{name: "take announcement", side: atSink, sure: true})
	}
	for i := range w.scope.slots {
		// A chunk that arrives before its turn waits in its slot.
		if h, m := &e.held[i], &e.memory[i]; h.by && (m.generation != h.place.Generation || m.chunk <= e.next) {
			to = append(to, step{name: "verify slot", side: atSink, arg: i, sure: true})
		}
	}
	if w.talk.maySay(atSink) {
		if len(e.credits) > 0 {
			to = append(to, step{name: "say credits", side: atSink, sure: true})
		}
		if len(e.outbox) > 0 {
			to = append(to, step{name: "say", side: atSink, link: e.outbox[0].link, sure: true})
		}
	}
	return to
}

// landings appends the writes that can land over a link, as long as the sink
// has not closed its connections. On a failed link a write may land, late, or
// never.
func (w *world) landings(to []step, l credit.Link) []step {
	sure := !w.talk.pipes[l-1].broken
	for i, d := range w.data[l-1] {
		if i > 0 && (!w.scope.lanes || slices.ContainsFunc(w.data[l-1][:i], func(o write) bool { return o.place.Slot == d.place.Slot })) {
			continue
		}
		to = append(to, step{name: "land", side: atSink, link: l, arg: i, sure: sure})
		if w.damages > 0 && !d.announces {
			to = append(to, step{name: "land astray", side: atSink, link: l, arg: i})
		}
	}
	return to
}

func (w *world) sinkStep(s step) error {
	e := &w.sink
	switch s.name {
	case "land":
		return w.land(s.link, s.arg, false)
	case "land astray":
		w.damages--
		return w.land(s.link, s.arg, true)
	case "take announcement":
		return w.announce(0)
	case "verify slot":
		return w.verify(s.arg)
	case "say credits":
		m := message{kind: messageCredit}
		for i, r := range e.credits {
			m.places = append(m.places, r.place)
			if r.again {
				m.again |= 1 << i
			}
		}
		e.credits = nil
		w.talk.say(atSink, m)
	case "say":
		m := e.outbox[0]
		e.outbox = e.outbox[1:]
		w.talk.say(atSink, m)
	case "lose":
		if !w.scope.sound { // otherwise the source detects it by itself, at any time
			e.outbox = with(e.outbox, message{kind: messageRailDown, link: s.link})
		}
		return w.sinkLoses(s.link)
	case "close connections":
		return w.shut(s.link)
	}
	return nil
}

// land moves a write to its slot, or an announcement to those that have
// arrived.
func (w *world) land(l credit.Link, i int, astray bool) error {
	e := &w.sink
	d := w.data[l-1][i]
	w.data[l-1] = slices.Delete(slices.Clone(w.data[l-1]), i, i+1)
	if d.announces {
		if e.arrived = with(e.arrived, d); e.slots.Closed(l) && w.scope.without != closedLinksStale {
			return w.announce(len(e.arrived) - 1) // it is stale whenever it is processed
		}
		return nil
	}
	m := &e.memory[d.place.Slot]
	if m.astray = astray; astray {
		return nil
	}
	if e.held[d.place.Slot].by {
		return fmt.Errorf("%w: slot %d by link %d", errOverwritten, d.place.Slot, l)
	}
	m.chunk, m.generation = d.chunk, d.place.Generation
	return w.shutIfIdle(l)
}

// announce processes an announcement that has arrived over its link.
func (w *world) announce(i int) error {
	e := &w.sink
	a := e.arrived[i]
	e.arrived = slices.Delete(slices.Clone(e.arrived), i, i+1)
	l := a.link
	if w.scope.without == closedLinksStale {
		l = maxLinks + 1
	}
	p, err := e.slots.Announce(l, int(a.place.Slot), a.place.Generation&generationMask, generationMask)
	if err != nil {
		if l == a.link && e.slots.Closed(l) {
			return nil
		}
		return wrongPlace("sink takes", a.place, err)
	}
	w.talk.record(credit.Step{Kind: credit.StepAnnounced, Link: a.link, Place: p})
	if m := &e.memory[p.Slot]; p != a.place || !m.astray && (m.generation != p.Generation || m.chunk != a.chunk) {
		return wrongPlace(fmt.Sprintf("sink takes generation %d, in which lies chunk %d, as chunk %d of", p.Generation, m.chunk, a.chunk), a.place, errOther)
	}
	e.held[p.Slot] = held{by: true, place: p, chunk: a.chunk}
	if w.scope.without == returnedLast {
		w.giveBack(p, false)
	}
	return nil
}

// verify is a worker with a slot: it reads the header, books and lands the
// chunk, and returns the slot. If the header belongs to another chunk, it
// requests the chunk again.
func (w *world) verify(slot int) error {
	e := &w.sink
	h, m := e.held[slot], e.memory[slot]
	e.held[slot] = held{}
	again := m.generation != h.place.Generation
	switch {
	case again:
	case m.chunk < e.next:
		return fmt.Errorf("%w: chunk %d", errTwice, m.chunk)
	case m.chunk != h.chunk:
		return wrongPlace(fmt.Sprintf("sink lands chunk %d as chunk %d of", m.chunk, h.chunk), h.place, errOther)
	default:
		e.next++
		w.talk.record(credit.Step{Kind: credit.StepBooked, Place: h.place, Chunk: uint64(m.chunk)})
	}
	if w.scope.without != returnedLast {
		w.giveBack(h.place, again)
	}
	return nil
}

func (w *world) giveBack(p credit.Place, again bool) {
	w.sink.slots.Return(p)
	w.sink.credits = with(w.sink.credits, returned{p, again})
	w.talk.record(credit.Step{Kind: credit.StepReturned, Sink: true, Place: p, Again: again})
}

// sinkLoses makes announcements over a link stale. Its connections are still
// open.
func (w *world) sinkLoses(l credit.Link) error {
	w.sink.slots.Close(l)
	w.talk.lose(atSink, l)
	w.talk.record(credit.Step{Kind: credit.StepClosed, Link: l})
	return w.shutIfIdle(l)
}

// shutIfIdle closes the connections of a link that both ends have given up, if
// nothing can land any more. Then the time of closing does not matter.
func (w *world) shutIfIdle(l credit.Link) error {
	if len(w.data[l-1]) > 0 || w.talk.isUp(atSource, l) || w.talk.isUp(atSink, l) || w.sink.shut[l-1] || w.scope.without == lostLinksUnused {
		return nil
	}
	return w.shut(l)
}

// shut closes the connections of a link. Writes that have not landed never
// will.
func (w *world) shut(l credit.Link) error {
	e := &w.sink
	e.shut[l-1] = true
	w.data[l-1] = nil
	w.talk.record(credit.Step{Kind: credit.StepShut, Link: l})
	for i := range e.fences {
		if f := e.fences[i]; f.link == l {
			e.fences = slices.Delete(slices.Clone(e.fences), i, i+1)
			return w.answer(&f)
		}
	}
	return nil
}

// sinkHears handles a message of the source.
func (w *world) sinkHears(m *message) error {
	if w.talk.isUp(atSink, m.link) {
		if err := w.sinkLoses(m.link); err != nil {
			return err
		}
	}
	if w.sink.shut[m.link-1] || w.scope.without == closedBeforeAnswer {
		return w.answer(m)
	}
	w.sink.fences = with(w.sink.fences, *m)
	return nil
}

// answer reports which places of a fence were never announced.
func (w *world) answer(m *message) error {
	e := &w.sink
	var busy []credit.Place
	if w.scope.without == announcedNotLost {
		for _, p := range m.places {
			if e.held[p.Slot].by && e.held[p.Slot].place == p {
				busy = append(busy, p)
			}
		}
	}
	lost, err := e.slots.Fence(m.link, m.places)
	if err != nil {
		return fmt.Errorf("sink answers the fence of link %d: %w", m.link, err)
	}
	if w.scope.without == nextGenerationAtSink || w.scope.without == nextGenerationAtBoth {
		for _, p := range lost {
			e.slots.StepBack(p.Slot)
		}
	}
	lost = append(lost, busy...)
	w.talk.record(credit.Step{Kind: credit.StepFenced, Link: m.link, Places: lost})
	answer := message{kind: messageFenced, link: m.link, places: lost}
	if w.scope.sound {
		w.talk.say(atSink, answer)
	} else {
		e.outbox = with(e.outbox, answer)
	}
	return nil
}
