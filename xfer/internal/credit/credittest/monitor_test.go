package credittest_test

import (
	"slices"
	"strings"
	"testing"

	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/credit/credittest"
)

func place(slot, generation int) credit.Place {
	return credit.Place{Slot: uint32(slot), Generation: uint64(generation)}
}

// session is a copy of three chunks with two slots. Link 1 is lost with one chunk that was
// announced and one that was not, and comes back as link 3. One chunk is repaired.
func session() []credit.Step {
	return []credit.Step{
		0:  {Kind: credit.StepAddressed, Link: 1, Place: place(0, 1), Chunk: 0},
		1:  {Kind: credit.StepAddressed, Link: 1, Place: place(1, 1), Chunk: 1},
		2:  {Kind: credit.StepAnnounced, Link: 1, Place: place(0, 1)},
		3:  {Kind: credit.StepLost, Link: 1},
		4:  {Kind: credit.StepSaid, Link: 2, Seq: 1},
		5:  {Kind: credit.StepFence, Link: 1, Places: []credit.Place{place(0, 1), place(1, 1)}},
		6:  {Kind: credit.StepTook, Sink: true, Seq: 1},
		7:  {Kind: credit.StepClosed, Link: 1},
		8:  {Kind: credit.StepShut, Link: 1},
		9:  {Kind: credit.StepFenced, Link: 1, Places: []credit.Place{place(1, 1)}},
		10: {Kind: credit.StepSaid, Sink: true, Link: 2, Seq: 1},
		11: {Kind: credit.StepBooked, Place: place(0, 1), Chunk: 0},
		12: {Kind: credit.StepReturned, Place: place(0, 1), Again: true},
		13: {Kind: credit.StepSaid, Sink: true, Link: 2, Seq: 2},
		14: {Kind: credit.StepTook, Seq: 1},
		15: {Kind: credit.StepRegranted, Link: 1, Place: place(1, 1)},
		16: {Kind: credit.StepTook, Seq: 2},
		17: {Kind: credit.StepCredited, Place: place(0, 1), Again: true},
		18: {Kind: credit.StepAddressed, Link: 3, Place: place(1, 2), Chunk: 1},
		19: {Kind: credit.StepAddressed, Link: 2, Place: place(0, 2), Chunk: 0},
		20: {Kind: credit.StepAnnounced, Link: 2, Place: place(0, 2)},
		21: {Kind: credit.StepRepaired, Place: place(0, 2), Chunk: 0},
		22: {Kind: credit.StepReturned, Place: place(0, 2)},
		23: {Kind: credit.StepAnnounced, Link: 3, Place: place(1, 2)},
		24: {Kind: credit.StepBooked, Place: place(1, 2), Chunk: 1},
		25: {Kind: credit.StepReturned, Place: place(1, 2)},
		26: {Kind: credit.StepCredited, Place: place(0, 2)},
		27: {Kind: credit.StepCredited, Place: place(1, 2)},
		28: {Kind: credit.StepAddressed, Link: 3, Place: place(1, 3), Chunk: 2},
		29: {Kind: credit.StepLost, Link: 3},
		30: {Kind: credit.StepDropped, Link: 3, Place: place(1, 3)},
		31: {Kind: credit.StepAddressed, Link: 2, Place: place(0, 3), Chunk: 2},
		32: {Kind: credit.StepFence, Link: 3, Places: []credit.Place{place(1, 3)}},
		33: {Kind: credit.StepClosed, Link: 3},
		34: {Kind: credit.StepShut, Link: 3},
		35: {Kind: credit.StepAnnounced, Link: 2, Place: place(0, 3)},
		36: {Kind: credit.StepBooked, Place: place(0, 3), Chunk: 2},
		37: {Kind: credit.StepReturned, Place: place(0, 3)},
		38: {Kind: credit.StepFenced, Link: 3, Places: []credit.Place{place(1, 3)}},
		39: {Kind: credit.StepRegranted, Link: 3, Place: place(1, 3)},
		40: {Kind: credit.StepCredited, Place: place(0, 3)},
	}
}

func TestCheckAcceptsASession(t *testing.T) {
	steps := session()
	for n := range len(steps) + 1 {
		if err := credittest.Check(steps[:n]); err != nil {
			t.Fatalf("the first %d steps: %v", n, err)
		}
		if err := credittest.CheckEnded(steps[:n]); n == len(steps) && err != nil {
			t.Errorf("the whole session has not ended: %v", err)
		} else if n > 0 && n < len(steps) && n != 28 && err == nil {
			t.Errorf("the first %d steps count as a whole session", n)
		}
	}
}

// put returns a session with a step inserted before another.
func put(at int, s credit.Step) []credit.Step { return slices.Insert(session(), at, s) }

// left returns a session without a step.
func left(at int) []credit.Step { return slices.Delete(session(), at, at+1) }

// changed returns a session with one step changed.
func changed(at int, change func(s *credit.Step)) []credit.Step {
	steps := session()
	change(&steps[at])
	return steps
}

func TestCheckRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		steps []credit.Step
		want  string
	}{
		{"a slot that is addressed twice", put(2, credit.Step{Kind: credit.StepAddressed, Link: 2, Place: place(1, 1), Chunk: 2}), "addressed already"},
		{"a slot in quarantine", put(6, credit.Step{Kind: credit.StepAddressed, Link: 2, Place: place(1, 2), Chunk: 2}), "granted with generation 1"},
		{"a chunk that is under way", put(19, credit.Step{Kind: credit.StepAddressed, Link: 2, Place: place(0, 2), Chunk: 1}), "under way"},
		{"a chunk that is there", put(26, credit.Step{Kind: credit.StepAddressed, Link: 2, Place: place(2, 1), Chunk: 0}), "under way"},
		{"a chunk that has ended", put(28, credit.Step{Kind: credit.StepAddressed, Link: 2, Place: place(0, 3), Chunk: 0}), "not wanted again"},
		{"a slot over a lost link", put(18, credit.Step{Kind: credit.StepAddressed, Link: 1, Place: place(1, 2), Chunk: 2}), "the link is lost"},
		{"an announcement twice", put(3, credit.Step{Kind: credit.StepAnnounced, Link: 1, Place: place(0, 1)}), "announced before"},
		{"an announcement over another link", changed(2, func(s *credit.Step) { s.Link = 2 }), "over link 1"},
		{"an announcement over a closed link", put(8, credit.Step{Kind: credit.StepAnnounced, Link: 1, Place: place(1, 1)}), "the link is closed"},
		{"an announcement of what is lost", put(10, credit.Step{Kind: credit.StepAnnounced, Link: 1, Place: place(1, 1)}), "lost true"},
		{"an announcement of what was never posted", put(31, credit.Step{Kind: credit.StepAnnounced, Link: 3, Place: place(1, 3)}), "never posted true"},
		{"an announcement with another generation", changed(2, func(s *credit.Step) { s.Place.Generation = 2 }), "generation 1"},
		{"a fence of a link in use", left(3), "may still write"},
		{"a fence of another link's place", changed(5, func(s *credit.Step) { s.Link = 2 }), "may still write"},
		{"a place in two fences", put(6, credit.Step{Kind: credit.StepFence, Link: 1, Places: []credit.Place{place(1, 1)}}), "named before"},
		{"an answer while connections are open", left(8), "writes can still land"},
		{"connections that are closed while announcements count", left(7), "still count"},
		{"an answer that was not asked for", put(10, credit.Step{Kind: credit.StepFenced, Link: 1}), "nothing was asked"},
		{"an answer that names what was announced", changed(9, func(s *credit.Step) { s.Places = []credit.Place{place(0, 1), place(1, 1)} }), "said to be lost: true"},
		{"an answer that leaves out what is lost", changed(9, func(s *credit.Step) { s.Places = nil }), "said to be lost: false"},
		{"an answer that names what was not asked", changed(9, func(s *credit.Step) { s.Places = append(s.Places, place(7, 1)) }), "more places"},
		{"a regrant without an answer", changed(15, func(s *credit.Step) { s.Place = place(0, 1) }), "not said that it is lost"},
		{"a regrant for another link", changed(15, func(s *credit.Step) { s.Link = 2 }), "over link 1"},
		{"a regrant that counts twice", put(16, credit.Step{Kind: credit.StepRegranted, Link: 1, Place: place(1, 1)}), "generation 2"},
		{"a credit that counts twice", put(18, credit.Step{Kind: credit.StepCredited, Place: place(0, 1), Again: true}), "generation 2"},
		{"a credit for what was not returned", left(12), "has not returned"},
		{"a credit that says otherwise", changed(17, func(s *credit.Step) { s.Again = false }), "said again true"},
		{"a chunk that is booked twice", changed(21, func(s *credit.Step) { s.Kind = credit.StepBooked }), "booked before"},
		{"a chunk that is not the one addressed", changed(11, func(s *credit.Step) { s.Chunk = 1 }), "chunk 0 was addressed"},
		{"a chunk that is repaired and was not booked", changed(24, func(s *credit.Step) { s.Kind = credit.StepRepaired }), "not booked before"},
		{"a chunk that is read before it is announced", put(2, credit.Step{Kind: credit.StepBooked, Place: place(0, 1), Chunk: 0}), "announced false"},
		{"a chunk that is booked out of turn", append(session()[:2],
			credit.Step{Kind: credit.StepAnnounced, Link: 1, Place: place(1, 1)}, credit.Step{Kind: credit.StepBooked, Place: place(1, 1), Chunk: 1}), "chunk 0 was next"},
		{"a slot that is returned twice", put(13, credit.Step{Kind: credit.StepReturned, Place: place(0, 1), Again: true}), "returned true"},
		{"a slot that is returned unverified", left(24), "not booked"},
		{"a drop of what was announced", put(4, credit.Step{Kind: credit.StepDropped, Link: 1, Place: place(0, 1)}), "announced true"},
		{"a drop over a link in use", put(3, credit.Step{Kind: credit.StepDropped, Link: 1, Place: place(1, 1)}), "not lost"},
		{"a link that is lost twice", put(4, credit.Step{Kind: credit.StepLost, Link: 1}), "lost before"},
		{"a message that is taken twice", put(7, credit.Step{Kind: credit.StepTook, Sink: true, Seq: 1}), "message 2 was next"},
		{"a message that is left out", left(14), "message 1 was next"},
		{"a message that nobody said", left(13), "has not said"},
		{"a message with a number too high", changed(13, func(s *credit.Step) { s.Seq = 3 }), "message 2 was next"},
		{"a message over a lost link", changed(4, func(s *credit.Step) { s.Link = 1 }), "the link is lost"},
		{"a step that does not exist", put(0, credit.Step{Kind: 99}), "no such step"},
	} {
		if err := credittest.Check(c.steps); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
	}
}
