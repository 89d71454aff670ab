package credit_test

import (
	"fmt"
)

// conversation is a model of the conversation alone: both ends have a number of
// words to send, and send nothing because of a lost link.
type conversation struct {
	talk     talk
	words    [2]uint64 // to be sent
	heard    [2]uint64
	want     [2]uint64
	failures int
	rejoins  int
}

func newConversation(s *scope) *conversation {
	words := uint64(s.chunks)
	return &conversation{
		talk: newTalk(s.window, s.links, s.without), words: [2]uint64{words, 1}, want: [2]uint64{1, words},
		failures: s.failures, rejoins: s.rejoins,
	}
}

func (c *conversation) steps(to []step) []step {
	to = c.talk.steps(to, c.failures, c.rejoins)
	for at := atSource; at <= atSink; at++ {
		if c.words[at] > 0 && c.talk.maySay(at) {
			to = append(to, step{name: "say", side: at, sure: true})
		}
	}
	return to
}

func (c *conversation) after(s step) (state, error) {
	n := *c
	switch s.name {
	case "break":
		n.failures--
		n.talk.pipes[s.link-1].broken = true
	case "rejoin":
		n.rejoins--
		n.talk.rejoin()
	case "lose":
		n.talk.lose(s.side, s.link)
	case "move":
		n.talk.move(s.side, s.link)
	case "say":
		n.words[s.side]--
		n.talk.say(s.side, message{kind: messageWord})
	case "hear":
		m, news, err := n.talk.take(s.side, s.link)
		if err != nil {
			return nil, err
		}
		if news {
			if n.heard[s.side]++; m.seq != n.heard[s.side] {
				return nil, fmt.Errorf("%w: %v deals with word %d as word %d", errTwice, s.side, m.seq, n.heard[s.side])
			}
		}
		n.talk.taken(s.side, m, news)
	}
	return &n, nil
}

func (c *conversation) appendKey(b []byte) []byte {
	b = append(b, byte(c.failures), byte(c.rejoins), byte(c.words[0]), byte(c.words[1]))
	return c.talk.appendKey(b, func(b []byte, _ *message) []byte { return b })
}

func (c *conversation) ended() bool {
	return c.words == [2]uint64{} && c.heard == c.want && len(c.talk.ends[atSource].kept)+len(c.talk.ends[atSink].kept) == 0
}

var _ state = (*conversation)(nil)
