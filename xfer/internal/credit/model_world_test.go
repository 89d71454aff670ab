package credit_test

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gdrcp/xfer/internal/credit"
)

// scope is how much of the world a model explores.
type scope struct {
	slots, chunks  int
	links, rejoins int  // links at the beginning, and those that come later
	failures       int  // links that break, at any step
	damages        int  // writes that go astray
	window         int  // messages under way in each direction
	lanes          bool // a link has many queue pairs: only what is for one slot is in order
	sound          bool // the conversation does not depend on links
	queueFull      bool // what is addressed may be posted later
	without        rule
}

const maxSlots = 4

// The properties that a step can break.
var (
	errOverwritten = errors.New("a slot was written to that is still to be verified")
	errOther       = errors.New("a slot holds something else than what was announced")
	errTwice       = errors.New("taken twice")
)

// world is a state of the whole protocol: both ends of package credit, the links with what
// is on its way, the conversation, and the sink's workers.
type world struct {
	scope    *scope
	talk     talk
	source   sourceEnd
	sink     sinkEnd
	data     [maxLinks][]write // on its way to the sink's slots
	failures int               // left
	damages  int
	rejoins  int
}

// write is a chunk on its way to a slot, or the announcement behind it.
type write struct {
	announces bool
	place     credit.Place
	chunk     int
	link      credit.Link
}

func newWorld(s *scope) *world {
	w := &world{
		scope: s, talk: newTalk(s.window, s.links, s.without), failures: s.failures, damages: s.damages, rejoins: s.rejoins,
		source: sourceEnd{slots: credit.NewSource(s.slots)}, sink: sinkEnd{slots: credit.NewSink(s.slots)},
	}
	w.talk.isSound = s.sound
	return w
}

func (w *world) steps(to []step) []step {
	to = w.talk.steps(to, w.failures, w.rejoins)
	to = w.sourceSteps(to)
	return w.sinkSteps(to)
}

func (w *world) after(s step) (state, error) {
	n := *w
	n.source.slots, n.sink.slots = w.source.slots.Clone(), w.sink.slots.Clone()
	var err error
	switch {
	case s.side == between:
		n.fail(s)
	case s.name == "hear":
		err = n.hear(s.side, s.link)
	case s.name == "move":
		n.talk.move(s.side, s.link)
	case s.side == atSource:
		err = n.sourceStep(s)
	default:
		err = n.sinkStep(s)
	}
	return &n, err
}

// fail takes a step of the network.
func (w *world) fail(s step) {
	if s.name == "rejoin" {
		w.rejoins--
		w.talk.rejoin()
		return
	}
	w.failures--
	w.talk.pipes[s.link-1].broken = true
}

// hear takes the next message of a link.
func (w *world) hear(at side, l credit.Link) error {
	m, news, err := w.talk.take(at, l)
	if err == nil && news && at == atSource {
		err = w.sourceHears(&m)
	} else if err == nil && news {
		err = w.sinkHears(&m)
	}
	if err == nil {
		w.talk.taken(at, m, news)
	}
	return err
}

// ended says that every chunk has landed, that the source knows it, and that every slot is
// granted again.
func (w *world) ended() bool {
	return w.source.ended == 1<<w.scope.chunks-1 && w.source.slots.Grants() == w.scope.slots &&
		len(w.talk.ends[atSource].kept)+len(w.talk.ends[atSink].kept) == 0 &&
		len(w.source.outbox)+len(w.sink.outbox)+len(w.sink.credits)+len(w.sink.fences) == 0
}

// appendKey tells generations of a slot by their distance from the one that the sink has
// granted last.
func (w *world) appendKey(b []byte) []byte {
	b = append(b, byte(w.failures), byte(w.damages), byte(w.rejoins))
	b = w.talk.appendKey(b, w.appendContent)
	b = w.source.appendKey(b, w)
	b = w.sink.appendKey(b, w)
	for l := range w.talk.links {
		for i := range w.data[l] {
			d := &w.data[l][i]
			b = append(w.appendPlace(b, d.place), bits(d.announces, true), byte(d.chunk))
		}
		b = append(b, 0xff)
	}
	return b
}

func (w *world) appendPlace(b []byte, p credit.Place) []byte {
	return append(b, byte(p.Slot), byte(p.Generation-w.sink.slots.Generation(p.Slot)))
}

func (w *world) appendContent(b []byte, m *message) []byte {
	for _, p := range m.places {
		b = w.appendPlace(b, p)
	}
	return append(b, m.again, 0xff)
}

// sourceEnd is the source: which chunks it has, and where they are.
type sourceEnd struct {
	slots    credit.Source
	next     int              // the chunk that is to be sent for the first time
	missing  []int            // chunks that must be sent again, until they are posted
	unposted []write          // addressed, and not posted
	posted   [maxSlots]posted // by slot of the sink
	ended    int              // chunks that have landed, as bits
	outbox   []message        // to be said, in order
}

// posted is what a slot was addressed for.
type posted struct {
	chunk int
	sent  bool // its announcement was posted
}

func (e *sourceEnd) appendKey(b []byte, w *world) []byte {
	b = append(e.slots.AppendKey(b, &w.sink.slots), byte(e.next), byte(e.ended))
	for i := range w.scope.slots {
		b = append(b, byte(e.posted[i].chunk), bits(e.posted[i].sent))
	}
	for _, c := range e.missing {
		b = append(b, byte(c))
	}
	b = append(b, 0xff)
	for _, u := range e.unposted {
		b = append(w.appendPlace(b, u.place), byte(u.chunk), byte(u.link))
	}
	b = append(b, 0xff)
	for i := range e.outbox {
		b = w.appendContent(append(b, byte(e.outbox[i].kind), byte(e.outbox[i].link)), &e.outbox[i])
	}
	return append(b, 0xff)
}

// sinkEnd is the sink: its slots and what lies in them, and its workers.
type sinkEnd struct {
	slots   credit.Sink
	memory  [maxSlots]cell
	held    [maxSlots]held
	arrived []write // announcements that were taken off their link
	credits []returned
	fences  []message // whose connections are not closed yet
	shut    [maxLinks]bool
	next    int // the chunk to be booked next; all before it have landed
	outbox  []message
}

// cell is what lies in the memory of a slot: the generation is in the header.
type cell struct {
	chunk      int
	generation uint64
	astray     bool // a write to the slot went astray since
}

// held is a slot that a worker reads, or that waits for its turn.
type held struct {
	by    bool
	place credit.Place
	chunk int // as the source addressed it
}

type returned struct {
	place credit.Place
	again bool
}

func (e *sinkEnd) appendKey(b []byte, w *world) []byte {
	b = append(e.slots.AppendKey(b), byte(e.next))
	for i := range w.scope.slots {
		m, h := e.memory[i], e.held[i]
		if granted := e.slots.Generation(uint32(i)); m.generation < granted && w.scope.without != nextGenerationAtBoth {
			m.chunk, m.generation = 0, granted-1 // it matters no more what of the past lies there
		}
		b = append(w.appendPlace(b, credit.Place{Slot: uint32(i), Generation: m.generation}), byte(m.chunk), bits(m.astray, h.by))
		if h.by {
			b = append(w.appendPlace(b, h.place), byte(h.chunk))
		}
	}
	for i := range e.arrived {
		b = append(w.appendPlace(b, e.arrived[i].place), byte(e.arrived[i].chunk), byte(e.arrived[i].link))
	}
	b = append(b, 0xff)
	for _, r := range e.credits {
		b = append(w.appendPlace(b, r.place), bits(r.again))
	}
	b = append(b, 0xff)
	for _, list := range [][]message{e.fences, e.outbox} {
		for i := range list {
			b = w.appendContent(append(b, byte(list[i].kind), byte(list[i].link)), &list[i])
		}
		b = append(b, 0xff)
	}
	shut := 0
	for l := range w.talk.links {
		if e.shut[l] {
			shut |= 1 << l
		}
	}
	return binary.LittleEndian.AppendUint16(b, uint16(shut))
}

var _ state = (*world)(nil)

func wrongPlace(what string, p credit.Place, err error) error {
	return fmt.Errorf("%s slot %d, generation %d: %w", what, p.Slot, p.Generation, err)
}
