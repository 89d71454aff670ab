package credit_test

import (
	"slices"

	"gdrcp/xfer/internal/credit"
)

// mayUse reports whether the source uses a link.
func (w *world) mayUse(l credit.Link) bool {
	return w.talk.isUp(atSource, l) || w.scope.without == lostLinksUnused
}

// sourceSteps appends the possible steps of the source.
func (w *world) sourceSteps(to []step) []step {
	e := &w.source
	grants, again, fresh := e.slots.Grants(), 0, e.next < w.scope.chunks
	for _, u := range e.unposted {
		if slices.Contains(e.missing, u.chunk) {
			again++
		} else {
			fresh = false
		}
	}
	kept := len(e.missing) // a slot for each chunk that must be sent again, because the sink waits for it
	if w.scope.without == slotKeptForMissing {
		kept = 0
	}
	for l := credit.Link(1); int(l) <= w.talk.links; l++ {
		if !w.mayUse(l) {
			continue
		}
		if fresh && grants > kept {
			to = append(to, step{name: "address new chunk", link: l, arg: e.next, sure: true})
		}
		for _, c := range e.missing {
			if grants > 0 && !slices.ContainsFunc(e.unposted, func(u write) bool { return u.chunk == c }) {
				to = append(to, step{name: "address again chunk", link: l, arg: c, sure: true})
			}
		}
	}
	for i, u := range e.unposted {
		if w.mayUse(u.link) {
			to = append(to, step{name: "post addressed", link: u.link, arg: i, sure: true})
		}
	}
	if len(e.outbox) > 0 && w.talk.maySay(atSource) {
		to = append(to, step{name: "say", link: e.outbox[0].link, sure: true})
	}
	return to
}

func (w *world) sourceStep(s step) error {
	e := &w.source
	switch s.name {
	case "address new chunk", "address again chunk":
		near := uint32(0)
		if s.link > 1 { // slot 1 is near to all links except the first, which no slot is near to
			near = 1
		}
		p := e.slots.AddressNear(s.link, 1, near)
		e.posted[p.Slot] = posted{chunk: s.arg}
		e.unposted = with(e.unposted, write{place: p, chunk: s.arg, link: s.link})
		w.talk.record(credit.Step{Kind: credit.StepAddressed, Link: s.link, Place: p, Chunk: uint64(s.arg)})
		if !w.scope.queueFull {
			w.post(len(e.unposted) - 1)
		}
	case "post addressed":
		w.post(s.arg)
	case "say":
		m := e.outbox[0]
		e.outbox = e.outbox[1:]
		w.talk.say(atSource, m)
	case "lose":
		return w.sourceLoses(s.link)
	}
	return nil
}

// post sends an addressed chunk, followed by its announcement.
func (w *world) post(i int) {
	e := &w.source
	u := e.unposted[i]
	e.unposted = slices.Delete(slices.Clone(e.unposted), i, i+1)
	e.posted[u.place.Slot].sent = true
	if at := slices.Index(e.missing, u.chunk); at >= 0 {
		e.missing = slices.Delete(slices.Clone(e.missing), at, at+1)
	} else {
		e.next++
	}
	if w.talk.pipes[u.link-1].broken || w.sink.shut[u.link-1] {
		return // lost, like messages over a failed link
	}
	announcement := u
	announcement.announces = true
	w.data[u.link-1] = append(slices.Clip(w.data[u.link-1]), u, announcement)
}

// sourceLoses gives up a link: nothing more is posted over it, its connections
// are closed, and the sink is asked which of its places were never announced.
func (w *world) sourceLoses(l credit.Link) error {
	e := &w.source
	w.talk.lose(atSource, l)
	w.talk.record(credit.Step{Kind: credit.StepLost, Link: l})
	addressed := e.slots.Fence(l)
	named := addressed
	if w.scope.without == unpostedFenced {
		named = slices.DeleteFunc(slices.Clone(addressed), func(p credit.Place) bool { return !e.posted[p.Slot].sent })
	}
	if w.scope.without != lostLinksUnused {
		for _, u := range e.unposted {
			if u.link == l {
				w.talk.record(credit.Step{Kind: credit.StepDropped, Link: l, Place: u.place})
			}
		}
		e.unposted = slices.DeleteFunc(slices.Clone(e.unposted), func(u write) bool { return u.link == l })
	}
	w.talk.record(credit.Step{Kind: credit.StepFence, Link: l, Places: named})
	if m := (message{kind: messageFence, link: l, places: named}); w.scope.sound {
		w.talk.say(atSource, m) // a reliable conversation delivers it
	} else {
		e.outbox = with(e.outbox, m)
	}
	if err := w.shutIfIdle(l); err != nil {
		return err
	}
	if w.scope.without == quarantined {
		return w.regrant(l, addressed)
	}
	return nil
}

// regrant handles places that were lost. Their chunks are sent again, unless
// they were never posted: those are addressed again anyway.
func (w *world) regrant(l credit.Link, lost []credit.Place) error {
	e := &w.source
	for _, p := range lost {
		if err := e.slots.Fenced(l, p); err != nil {
			return wrongPlace("source regrants", p, err)
		}
		w.talk.record(credit.Step{Kind: credit.StepRegranted, Link: l, Place: p})
		if w.scope.without == nextGenerationAtBoth {
			e.slots.StepBack()
		}
		if e.posted[p.Slot].sent && w.scope.without != lostChunksAgain {
			e.missing = with(e.missing, e.posted[p.Slot].chunk)
		}
		e.posted[p.Slot] = posted{}
	}
	return nil
}

// sourceHears handles a message of the sink.
func (w *world) sourceHears(m *message) error {
	e := &w.source
	switch m.kind {
	case messageRailDown:
		if w.talk.isUp(atSource, m.link) {
			return w.sourceLoses(m.link)
		}
	case messageFenced:
		if w.scope.without != quarantined {
			return w.regrant(m.link, m.places)
		}
	case messageCredit:
		for i, p := range m.places {
			news, err := e.slots.Return(p)
			if err != nil {
				return wrongPlace("source takes back", p, err)
			}
			if !news {
				continue
			}
			again := m.again&(1<<i) != 0
			w.talk.record(credit.Step{Kind: credit.StepCredited, Place: p, Again: again})
			if c := e.posted[p.Slot].chunk; again {
				e.missing = with(e.missing, c)
			} else {
				e.ended |= 1 << c
			}
			e.posted[p.Slot] = posted{}
		}
	}
	return nil
}
