package credit_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/credit/credittest"
)

// rule is a rule that can be removed from the protocol, to check that the model
// detects the harm.
type rule uint8

const (
	nothing rule = iota
	quarantined
	closedBeforeAnswer
	nextGenerationAtSink
	nextGenerationAtBoth
	closedLinksStale
	announcedNotLost
	returnedLast
	lostLinksUnused
	unpostedFenced
	lostChunksAgain
	slotKeptForMissing
	repeatsPassedOver
	repeatsCountedOnce
	saidAgain
	ackAfterMove
)

// modelScopes are the explored configurations. The protocol of slots is
// explored with a conversation that delivers every message once and in order,
// which TestModelOfConversation proves, and in smaller scopes together with the
// conversation.
var modelScopes = []struct {
	name  string
	large bool
	scope scope
}{
	{"two links fail", false, scope{slots: 2, chunks: 2, links: 2, rejoins: 1, failures: 2, sound: true}},
	{"send queues are full", false, scope{slots: 2, chunks: 2, links: 2, failures: 1, sound: true, queueFull: true}},
	{"many queue pairs", false, scope{slots: 2, chunks: 3, links: 2, failures: 1, sound: true, lanes: true}},
	{"a write goes astray", false, scope{slots: 2, chunks: 2, links: 2, failures: 1, damages: 1, sound: true}},
	{"one link fails, with the conversation", false, scope{slots: 2, chunks: 2, links: 2, failures: 1, window: 2}},

	{"two links fail, three chunks", true, scope{slots: 2, chunks: 3, links: 2, rejoins: 1, failures: 2, sound: true, lanes: true}},
	{"two links fail, full queues", true, scope{slots: 2, chunks: 2, links: 2, rejoins: 1, failures: 2, sound: true, queueFull: true}},
	{"two links fail, two writes go astray", true, scope{slots: 2, chunks: 2, links: 2, rejoins: 1, failures: 2, damages: 2, sound: true}},
	{"three slots", true, scope{slots: 3, chunks: 3, links: 2, failures: 1, sound: true}},
	{"two links fail, with the conversation", true, scope{slots: 1, chunks: 1, links: 2, rejoins: 1, failures: 2, window: 2}},
}

func TestModel(t *testing.T) {
	for _, c := range modelScopes {
		t.Run(c.name, func(t *testing.T) {
			mayBeLong(t, c.large)
			report(t, newWorld(&c.scope))
		})
	}
}

func TestModelOfConversation(t *testing.T) {
	for _, c := range []struct {
		name  string
		large bool
		scope scope
	}{
		{"two links fail", false, scope{chunks: 3, links: 2, rejoins: 1, failures: 2, window: 2}},
		{"a larger window", true, scope{chunks: 5, links: 2, rejoins: 1, failures: 2, window: 3}},
	} {
		t.Run(c.name, func(t *testing.T) {
			mayBeLong(t, c.large)
			report(t, newConversation(&c.scope))
		})
	}
}

func mayBeLong(t *testing.T, large bool) {
	if large && os.Getenv("GDRCP_TEST_FULL") != "1" {
		t.Skip("explored with GDRCP_TEST_FULL=1")
	}
}

// report explores a model, and logs the number of its states.
func report(t *testing.T, first state) {
	began := time.Now()
	states, err := explore(first)
	t.Logf("%d states in %v", states, time.Since(began).Round(10*time.Millisecond))
	if err != nil {
		t.Error(err)
	}
}

// TestModelFindsWhatARuleIsFor removes rules one by one. The model must detect
// the harm. If the harm is visible in the steps of both ends, and not only in
// missing steps or in what landed, the check of traces must also detect it.
func TestModelFindsWhatARuleIsFor(t *testing.T) {
	plain := scope{slots: 2, chunks: 2, links: 2, failures: 1, sound: true}
	damaged, queueFull, talking, long := plain, plain, plain, plain
	damaged.damages, queueFull.queueFull, talking.sound, talking.window, long.chunks = 1, true, false, 2, 3
	twice := scope{slots: 1, chunks: 1, links: 2, rejoins: 1, failures: 2, window: 2}
	for _, c := range []struct {
		rule  rule
		name  string
		scope scope
		harm  string // detected by the model
		trace string // detected in the trace
	}{
		{quarantined, "the source writes to no slot of a lost link before the sink has answered", plain, "announced, which was not granted", "the sink has not said that it is lost"},
		{closedBeforeAnswer, "the sink closes the connections of a link before it answers", plain, "holds something else", "writes can still land"},
		{nextGenerationAtSink, "the sink grants a lost slot with the next generation", plain, "announced, which was not granted", ""},
		{nextGenerationAtBoth, "both ends grant a lost slot with the next generation", damaged, "sink lands chunk 0 as chunk 1", "granted with generation 2"},
		{closedLinksStale, "no announcement over a closed link counts", plain, "announced, which was not granted", ""},
		{announcedNotLost, "the sink calls nothing lost that was announced", plain, "still to be verified", "said to be lost: true; it was announced: true"},
		{returnedLast, "the sink returns a slot when it has verified it", plain, "still to be verified", "its chunk was not booked"},
		{lostLinksUnused, "nothing goes over a lost link", plain, "deadlock", "the link is lost"},
		{unpostedFenced, "a fence names what was addressed and not posted", queueFull, "deadlock", ""},
		{lostChunksAgain, "the chunk of a lost slot goes again", plain, "deadlock", ""},
		{slotKeptForMissing, "a slot is kept for each chunk that must go again", long, "deadlock", ""},
		{repeatsPassedOver, "a message that is said again is passed over", twice, "where it was not granted", ""},
		{repeatsCountedOnce, "a message that is said again is counted once", talking, "outside their window", ""},
		{saidAgain, "unacknowledged messages are said again over another link", talking, "outside their window", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.scope.without = c.rule
			found := harm(t, newWorld(&c.scope), c.harm)
			if found == nil {
				return
			}
			err := credittest.Check(record(newWorld(&c.scope), found.steps))
			t.Logf("in the trace: %v", err)
			if (err == nil) != (c.trace == "") || err != nil && !strings.Contains(err.Error(), c.trace) {
				t.Errorf("the check of the trace says %v, want %q", err, c.trace)
			}
		})
	}
}

func TestModelOfConversationFindsWhatARuleIsFor(t *testing.T) {
	for _, c := range []struct {
		rule rule
		name string
		harm string
	}{
		{repeatsPassedOver, "a message that is said again is passed over", "taken twice"},
		{repeatsCountedOnce, "a message that is said again is counted once", "outside their window"},
		{saidAgain, "unacknowledged messages are said again over another link", "outside their window"},
		{ackAfterMove, "an ack follows them", "deadlock"},
	} {
		t.Run(c.name, func(t *testing.T) {
			harm(t, newConversation(&scope{chunks: 3, links: 2, failures: 1, window: 2, without: c.rule}), c.harm)
		})
	}
}

// harm checks that a model violates a property, with an error that contains
// want.
func harm(t *testing.T, first state, want string) (found *counterexample) {
	states, err := explore(first)
	if !errors.As(err, &found) {
		t.Fatalf("nothing in %d states", states)
	}
	t.Logf("after %d states and %d steps: %v", states, len(found.steps), found.why)
	if !strings.Contains(found.why.Error(), want) {
		t.Errorf("without the rule: %v, want %q", err, want)
	}
	return found
}

// TestTracesOfTheModel takes random paths through a scope that is too large to
// be explored. Each must reach an end, and the check of traces must report no
// violation.
func TestTracesOfTheModel(t *testing.T) {
	for _, sound := range []bool{false, true} {
		s := scope{slots: 4, chunks: 7, links: 2, rejoins: 2, failures: 3, damages: 2, window: 3, lanes: true, queueFull: true, sound: sound}
		for seed := range uint64(300) {
			var trace []credit.Step
			w, random := newWorld(&s), rand.New(rand.NewPCG(seed, 0))
			w.talk.trace = &trace
			for !w.ended() {
				steps := w.steps(nil)
				if len(steps) == 0 {
					t.Fatalf("seed %d: nothing can happen", seed)
				}
				next, err := w.after(steps[random.IntN(len(steps))])
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				w = next.(*world)
			}
			if err := credittest.CheckEnded(trace); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// record executes the steps of a path, and returns the steps of both ends.
func record(w *world, path []step) (trace []credit.Step) {
	w.talk.trace = &trace
	for _, s := range path {
		next, err := w.after(s)
		if err != nil {
			break
		}
		w = next.(*world)
	}
	return trace
}
