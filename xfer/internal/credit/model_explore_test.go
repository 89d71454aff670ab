package credit_test

import (
	"errors"
	"fmt"
	"hash/maphash"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"gdrcp/xfer/internal/credit"
)

// state is one state of a model.
type state interface {
	// steps appends the steps that are possible next.
	steps(to []step) []step
	// after returns the state after a step, without modifying this one. The
	// error is a violated property.
	after(s step) (state, error)
	// appendKey appends an encoding that differs from that of every state with
	// another future.
	appendKey(b []byte) []byte
	// ended reports whether everything is done.
	ended() bool
}

// step is a possible event. Progress does not rely on a step that is not sure:
// such a step may never happen.
type step struct {
	name string
	side side
	link credit.Link
	arg  int
	sure bool
}

func (s step) String() string {
	return fmt.Sprintf("%v: %s %d, link %d", s.side, s.name, s.arg, s.link)
}

// side is an end of the session, or the network between them.
type side uint8

const (
	atSource side = iota
	atSink
	between
)

func (s side) String() string { return [...]string{"source", "sink", "network"}[s] }

// The properties that are checked over a whole exploration.
var (
	errDeadlock = errors.New("deadlock: nothing that is sure can happen any more")
	errNoEnd    = errors.New("livelock: no end can be reached any more")
)

// graph holds the explored states, numbered in the order in which they were
// found.
type graph struct {
	seeds  [2]maphash.Seed
	index  map[[2]uint64]int32
	parent []int32
	via    []step
	ends   []int32
	// last and edges record the predecessors of each state by sure steps: last
	// has the newest such edge of each state, or -1.
	last  []int32
	edges []edge
}

type edge struct{ from, next int32 }

// counterexample is a path to a violated property.
type counterexample struct {
	why   error
	steps []step
}

// Error lists the steps.
func (c *counterexample) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v, after %d steps:", c.why, len(c.steps))
	for _, s := range c.steps {
		fmt.Fprintf(&b, "\n\t%v", s)
	}
	return b.String()
}

// Unwrap returns the violated property.
func (c *counterexample) Unwrap() error { return c.why }

// explore visits every state that can be reached from first, in breadth-first
// order. The error is a *counterexample: a step violates a property, or from
// some state no end can be reached by sure steps. states is the number of
// states visited.
//
// States are compared by 128-bit hashes of their keys: the probability that two
// of 10^8 collide is below 10^-22.
func explore(first state) (states int, err error) {
	defer debug.SetGCPercent(debug.SetGCPercent(400)) // the states are short-lived
	g := &graph{index: make(map[[2]uint64]int32), seeds: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	var key []byte
	var steps []step
	_, key, _ = g.add(first, -1, step{}, key)
	queue := []state{first}
	for at := int32(0); len(queue) > 0; at++ {
		s := queue[0]
		queue[0], queue = nil, queue[1:]
		steps = s.steps(steps[:0])
		stuck := !s.ended()
		for _, st := range steps {
			next, err := s.after(st)
			if err != nil {
				return len(g.parent), &counterexample{err, append(g.path(at), st)}
			}
			var to int32
			var news bool
			if to, key, news = g.add(next, at, st, key); news {
				queue = append(queue, next)
			}
			if st.sure {
				stuck = false
				g.edges = append(g.edges, edge{at, g.last[to]})
				g.last[to] = int32(len(g.edges) - 1)
			}
		}
		if stuck {
			return len(g.parent), &counterexample{errDeadlock, g.path(at)}
		}
	}
	if at := g.astray(); at >= 0 {
		return len(g.parent), &counterexample{errNoEnd, g.path(at)}
	}
	return len(g.parent), nil
}

// add gives a state a number, unless it has one.
func (g *graph) add(s state, from int32, by step, buf []byte) (at int32, key []byte, news bool) {
	buf = s.appendKey(buf[:0])
	h := [2]uint64{maphash.Bytes(g.seeds[0], buf), maphash.Bytes(g.seeds[1], buf)}
	if at, known := g.index[h]; known {
		return at, buf, false
	}
	at = int32(len(g.parent))
	g.index[h] = at
	g.parent, g.via, g.last = append(g.parent, from), append(g.via, by), append(g.last, -1)
	if s.ended() {
		g.ends = append(g.ends, at)
	}
	return at, buf, true
}

// path returns the steps by which a state was first reached.
func (g *graph) path(at int32) []step {
	var back []step
	for ; g.parent[at] >= 0; at = g.parent[at] {
		back = append(back, g.via[at])
	}
	slices.Reverse(back)
	return back
}

// astray returns the first state from which no end can be reached by sure
// steps, or -1.
func (g *graph) astray() int32 {
	reaches := make([]bool, len(g.parent))
	queue := g.ends
	for _, at := range queue {
		reaches[at] = true
	}
	for len(queue) > 0 {
		at := queue[len(queue)-1]
		queue = queue[:len(queue)-1]
		for e := g.last[at]; e >= 0; e = g.edges[e].next {
			if from := g.edges[e].from; !reaches[from] {
				reaches[from] = true
				queue = append(queue, from)
			}
		}
	}
	return int32(slices.Index(reaches, false))
}

// toy is a model with few states and arbitrary steps between them. Number 9 is
// the end.
type toy struct {
	at   int
	next map[int][]step
}

func (t toy) steps(to []step) []step    { return append(to, t.next[t.at]...) }
func (t toy) appendKey(b []byte) []byte { return append(b, byte(t.at)) }
func (t toy) ended() bool               { return t.at == 9 }
func (t toy) after(s step) (state, error) {
	if s.arg < 0 {
		return nil, errTwice
	}
	return toy{s.arg, t.next}, nil
}

func TestExplore(t *testing.T) {
	sure := func(to int) step { return step{arg: to, sure: true} }
	perhaps := func(to int) step { return step{arg: to} }
	for _, c := range []struct {
		name   string
		next   map[int][]step
		states int
		want   error
	}{
		{"a way to the end", map[int][]step{0: {sure(1)}, 1: {sure(9)}}, 3, nil},
		{"two ways to the end", map[int][]step{0: {sure(1), perhaps(2)}, 1: {sure(9)}, 2: {sure(1)}}, 4, nil},
		{"a round with a way out", map[int][]step{0: {sure(1)}, 1: {sure(0), sure(9)}}, 3, nil},
		{"a dead end", map[int][]step{0: {sure(9), perhaps(1)}}, 3, errDeadlock},
		{"a way on that is not sure", map[int][]step{0: {sure(1)}, 1: {perhaps(9)}}, 3, errDeadlock},
		{"a round without a way out", map[int][]step{0: {sure(9), sure(1)}, 1: {sure(2)}, 2: {sure(1)}}, 4, errNoEnd},
		{"a round with a way out that is not sure", map[int][]step{0: {sure(1)}, 1: {sure(0), perhaps(9)}}, 3, errNoEnd},
		{"a broken property", map[int][]step{0: {sure(1)}, 1: {sure(9), sure(-1)}}, 3, errTwice},
	} {
		if states, err := explore(toy{0, c.next}); !errors.Is(err, c.want) || states != c.states {
			t.Errorf("%s: %d states, want %d; %v, want %v", c.name, states, c.states, err, c.want)
		}
	}
}
