package credit_test

import (
	"fmt"
	"slices"

	"gdrcp/xfer/internal/credit"
)

// maxLinks is how many links a model can have in total.
const maxLinks = 4

// message is one control message. It is immutable.
type message struct {
	kind     messageKind
	seq      uint64 // 0: an ack
	consumed uint64
	link     credit.Link
	places   []credit.Place
	again    uint8 // for messageCredit: if bit i is set, the chunk of places[i] is requested again
}

type messageKind uint8

const (
	messageAck messageKind = iota
	messageCredit
	messageRailDown
	messageFence
	messageFenced
	messageWord // for the model of the conversation alone
)

// talk is the control conversation: the windows of both ends, the links with
// the messages in flight, and which link each end uses. Index an array of links
// by the link's number less one.
type talk struct {
	without rule
	trace   *[]credit.Step // nil: steps are not recorded
	ends    [2]speaker
	links   int // number of links created so far
	pipes   [maxLinks]pipe
	up      [2][maxLinks]bool // the end has the link
	// sound is the conversation as an end sees it that ignores links: every
	// message arrives once and in order, at any time. If isSound is set, it
	// replaces pipes.
	isSound bool
	sound   [2][]message // in flight to an end
}

// speaker is one end of the conversation.
type speaker struct {
	window credit.Window
	over   credit.Link // the link that the end sends over; 0 if it has none
	kept   []message   // sent, and not known to be consumed
}

// pipe has the messages in flight over a link to either end, in order.
type pipe struct {
	broken bool
	to     [2][]message
}

func newTalk(window, links int, without rule) talk {
	t := talk{without: without, links: links}
	for s := range t.ends {
		t.ends[s] = speaker{window: credit.NewWindow(window), over: 1}
		for l := range links {
			t.up[s][l] = true
		}
	}
	return t
}

func (t *talk) record(s credit.Step) {
	if t.trace != nil {
		*t.trace = append(*t.trace, s)
	}
}

func (t *talk) isUp(at side, l credit.Link) bool { return t.up[at][l-1] }

// maySay reports whether an end may send a new message now.
func (t *talk) maySay(from side) bool {
	if t.isSound {
		return true
	}
	return t.ends[from].over != 0 && t.ends[from].window.Open()
}

// say sends a message for the first time.
func (t *talk) say(from side, m message) {
	if t.isSound {
		t.sound[1-from] = with(t.sound[1-from], m)
		return
	}
	e := &t.ends[from]
	m.seq = e.window.Next()
	e.window.Sent()
	e.kept = with(e.kept, m)
	t.transmit(from, m)
}

// transmit sends a message over an end's current link. A message over a failed
// link is lost: the case in which it gets through is covered by a link that
// fails later.
func (t *talk) transmit(from side, m message) {
	e := &t.ends[from]
	if m.seq != 0 {
		t.record(credit.Step{Kind: credit.StepSaid, Sink: from == atSink, Link: e.over, Seq: m.seq})
	}
	m.consumed = e.window.Consumed()
	e.window.Told()
	if p := &t.pipes[e.over-1]; !p.broken && t.isUp(1-from, e.over) {
		p.to[1-from] = with(p.to[1-from], m)
	}
}

// take receives the next message that arrived at an end over a link. news is
// false for an ack, and for a repeated message.
func (t *talk) take(at side, l credit.Link) (m message, news bool, err error) {
	if t.isSound {
		m, t.sound[at] = t.sound[at][0], t.sound[at][1:]
		return m, true, nil
	}
	e, p := &t.ends[at], &t.pipes[l-1]
	m, p.to[at] = p.to[at][0], p.to[at][1:]
	if _, err := e.window.Heard(uint32(m.consumed)); err != nil {
		return m, false, fmt.Errorf("%v hears that %d were consumed: %w", at, m.consumed, err)
	}
	from, below := e.window.Unacked()
	e.kept = e.kept[len(e.kept)-int(below-from):]
	if m.seq == 0 {
		return m, false, nil
	}
	news, err = e.window.Take(m.seq)
	if err != nil {
		return m, false, fmt.Errorf("%v takes message %d: %w", at, m.seq, err)
	}
	if news {
		t.record(credit.Step{Kind: credit.StepTook, Sink: at == atSink, Seq: m.seq})
	}
	if !news && t.without == repeatsPassedOver {
		m.seq, news = 0, true // handled, and not counted
	}
	return m, news, nil
}

// taken counts a message as consumed, after it was handled.
func (t *talk) taken(at side, m message, news bool) {
	e := &t.ends[at]
	if m.seq == 0 || !news && t.without != repeatsCountedOnce {
		return
	}
	e.window.Consume()
	if e.over != 0 { // with such a small window every message is acknowledged
		t.transmit(at, message{})
	}
}

// mayLose reports whether an end can detect that a link is lost.
func (t *talk) mayLose(at side, l credit.Link) bool {
	return t.isUp(at, l) && (t.pipes[l-1].broken || !t.isUp(1-at, l))
}

// lose closes an end's connections of a link, as far as the conversation is
// concerned.
func (t *talk) lose(at side, l credit.Link) {
	t.up[at][l-1] = false
	t.pipes[l-1].to[at] = nil
	if t.ends[at].over == l {
		t.ends[at].over = 0
	}
}

// move makes an end send over another link.
func (t *talk) move(at side, l credit.Link) {
	e := &t.ends[at]
	e.over = l
	if t.without != saidAgain {
		for _, m := range e.kept {
			t.transmit(at, m)
		}
	}
	if t.without != ackAfterMove {
		t.transmit(at, message{})
	}
}

// rejoin adds a link.
func (t *talk) rejoin() {
	t.up[atSource][t.links], t.up[atSink][t.links] = true, true
	t.links++
}

// steps appends the possible events of the conversation and the links.
func (t *talk) steps(to []step, failures, rejoins int) []step {
	whole, lost := 0, 0
	for l := credit.Link(1); int(l) <= t.links; l++ {
		p := &t.pipes[l-1]
		both := t.isUp(atSource, l) && t.isUp(atSink, l)
		if both && !p.broken {
			whole++
		}
		if !both {
			lost++
		}
		if failures > 0 && !p.broken {
			to = append(to, step{name: "break", side: between, link: l})
		}
		for at := atSource; at <= atSink; at++ {
			if t.mayLose(at, l) {
				to = append(to, step{name: "lose", side: at, link: l, sure: true})
			}
			if t.isSound {
				continue
			}
			if t.ends[at].over == 0 && t.isUp(at, l) {
				to = append(to, step{name: "move", side: at, link: l, sure: true})
			}
			if len(p.to[at]) > 0 {
				to = append(to, step{name: "hear", side: at, link: l, sure: !p.broken})
			}
		}
	}
	for at := atSource; at <= atSink; at++ {
		if len(t.sound[at]) > 0 {
			to = append(to, step{name: "hear", side: at, sure: true})
		}
	}
	if rejoins > 0 && lost > 0 {
		to = append(to, step{name: "rejoin", side: between, sure: whole == 0})
	}
	return to
}

// appendKey appends an encoding of the conversation's state. Only differences
// of numbers matter. content encodes the content of a message.
func (t *talk) appendKey(b []byte, content func(b []byte, m *message) []byte) []byte {
	if t.isSound {
		for at := atSource; at <= atSink; at++ {
			for i := range t.sound[at] {
				b = content(append(b, byte(t.sound[at][i].kind), byte(t.sound[at][i].link)), &t.sound[at][i])
			}
			b = append(b, 0xff)
		}
		for l := range t.links {
			gone := !t.up[atSource][l] && !t.up[atSink][l]
			b = append(b, bits(t.pipes[l].broken || gone, t.up[atSource][l], t.up[atSink][l]))
		}
		return b
	}
	var acked, received [2]uint64
	for at := atSource; at <= atSink; at++ {
		e := &t.ends[at]
		sent, base, _, _, _ := e.window.Counts()
		_, _, got, consumed, told := t.ends[1-at].window.Counts()
		acked[at], received[1-at] = base, got
		b = append(b, byte(sent-base), byte(got-base), byte(consumed-base), byte(told-base), byte(e.over))
	}
	add := func(from side, m *message) {
		b = append(b, byte(max(m.consumed, acked[1-from])-acked[1-from])) // an older count is ignored
		switch {
		case m.seq == 0:
			b = append(b, 0xfe)
		case m.seq > received[1-from] || t.without == repeatsPassedOver || t.without == repeatsCountedOnce:
			b = content(append(b, byte(m.seq-acked[from]), byte(m.kind), byte(m.link)), m)
		default:
			b = append(b, 0xfd) // it has already been received
		}
	}
	for at := atSource; at <= atSink; at++ {
		for i := range t.ends[at].kept {
			k := t.ends[at].kept[i]
			k.consumed = 0
			add(at, &k)
		}
	}
	for l := range t.links {
		p := &t.pipes[l]
		b = append(b, bits(p.broken, t.up[atSource][l], t.up[atSink][l]), byte(len(p.to[0])), byte(len(p.to[1])))
		for at := atSource; at <= atSink; at++ {
			for i := range p.to[at] {
				add(1-at, &p.to[at][i])
			}
		}
	}
	return b
}

// with returns a list with one more element. It does not modify the list, which
// other states share.
func with[T any](list []T, x T) []T { return append(slices.Clip(list), x) }

func bits(flags ...bool) (b byte) {
	for i, f := range flags {
		if f {
			b |= 1 << i
		}
	}
	return b
}
