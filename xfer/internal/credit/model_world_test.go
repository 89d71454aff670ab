package credit_test

import (
	"encoding/binary"
	"errors"
	"fmt"

	"gdrcp/xfer/internal/credit"
)

// scope is the configuration that a model explores.
type scope struct {
	slots, chunks  int
	links, rejoins int  // links at the beginning, and number of later ones
	failures       int  // links that fail, at any step
	damages        int  // writes with damage
	window         int  // messages in flight in each direction
	lanes          bool // a link has many queue pairs: only writes and announcements for the same slot are ordered
	sound          bool // the conversation does not depend on links
	queueFull      bool // addressed chunks may be posted later
	without        rule
}

const maxSlots = 4

// The properties that a step can violate.
var (
	errOverwritten = errors.New("a slot was written to that is still to be verified")
	errOther       = errors.New("a slot holds something else than what was announced")
	errTwice       = errors.New("taken twice")
)

// world is a state of the whole protocol: both ends of package credit, the
// links with their data in flight, the conversation, and the sink's workers.
type world struct {
	scope    *scope
	talk     talk
	source   sourceEnd
	sink     sinkEnd
	data     [maxLinks][]write // in flight to the sink's slots
	failures int               // remaining
	damages  int
	rejoins  int
}

// write is a chunk in flight to a slot, or the announcement that follows it.
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

// fail executes a step of the network.
func (w *world) fail(s step) {
	if s.name == "rejoin" {
		w.rejoins--
		w.talk.rejoin()
		return
	}
	w.failures--
	w.talk.pipes[s.link-1].broken = true
}

// hear handles the next message of a link.
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

// ended reports whether every chunk has landed, the source knows it, and every
// slot is granted again.
func (w *world) ended() bool {
	return w.source.ended == 1<<w.scope.chunks-1 && w.source.slots.Grants() == w.scope.slots &&
		len(w.talk.ends[atSource].kept)+len(w.talk.ends[atSink].kept) == 0 &&
		len(w.source.outbox)+len(w.sink.outbox)+len(w.sink.credits)+len(w.sink.fences) == 0
}

// appendKey encodes generations of a slot by their distance from the one that
// the sink has granted last.
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

// sourceEnd is the source: which chunks it has, and in which state they are.
type sourceEnd struct {
	slots    credit.Source
	next     int              // the next chunk to be sent for the first time
	missing  []int            // chunks that must be sent again, until they are posted
	unposted []write          // addressed, but not posted
	posted   [maxSlots]posted // indexed by slot of the sink
	ended    int              // chunks that have landed, as a bit set
	outbox   []message        // to be sent, in order
}

// posted is the chunk that a slot was addressed for.
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

// sinkEnd is the sink: its slots and their contents, and its workers.
type sinkEnd struct {
	slots   credit.Sink
	memory  [maxSlots]cell
	held    [maxSlots]held
	arrived []write // announcements that have arrived over their link
	credits []returned
	fences  []message // fences whose connections are not closed yet
	shut    [maxLinks]bool
	next    int // the next chunk to be booked; all before it have landed
	outbox  []message
}

// cell is the content of a slot's memory: the generation is in the header.
type cell struct {
	chunk      int
	generation uint64
	astray     bool // a later write to the slot was damaged
}

// held is a slot that a worker reads, or that waits for its turn.
type held struct {
	by    bool
	place credit.Place
	chunk int // as addressed by the source
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
			m.chunk, m.generation = 0, granted-1 // the old content no longer matters
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
