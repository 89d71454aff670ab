package credit

import "fmt"

// StepKind says what a Step is.
type StepKind uint8

// The steps of the two ends, with the fields of Step that they use.
const (
	StepAddressed StepKind = iota // source: Chunk is to be written to Place over Link
	StepLost                      // source: nothing is addressed or posted over Link any more, and its connections are closed
	StepDropped                   // source: the announcement of Place was never posted over Link, which is lost; its chunk is addressed anew
	StepFence                     // source: it quarantines Places, which were addressed over Link and have not come back
	StepCredited                  // source: the sink has given Place back, and wants the chunk Again or not
	StepRegranted                 // source: Place was lost on Link, and is granted again
	StepAnnounced                 // sink: Place was announced over Link
	StepBooked                    // sink: Place holds Chunk, which was booked
	StepRepaired                  // sink: Place holds what was wanted again of Chunk, which was booked before
	StepReturned                  // sink: it gives Place back, and wants the chunk Again or not
	StepClosed                    // sink: no announcement over Link counts any more
	StepShut                      // sink: the connections of Link are closed
	StepFenced                    // sink: it answers which Places of the oldest open StepFence of Link were lost
	StepSaid                      // either: the message Seq goes out over Link, for the first time or again
	StepTook                      // either: the message Seq of the peer is taken as news
	stepKinds
)

// Step is one step of a session, as tests record them from both ends: see package
// credittest. An end records a step under the lock under which it takes the step, and
// before the peer can hear of it. A StepFence is what one call of Source.Fence returned,
// and a StepFenced what one of Sink.Fence returned.
type Step struct {
	Kind   StepKind
	Sink   bool // which end: StepSaid and StepTook alone are of either
	Again  bool
	Link   Link
	Place  Place
	Chunk  uint64
	Seq    uint64
	Places []Place
}

// String names the step with the fields that it uses.
func (s Step) String() string {
	place := fmt.Sprintf("slot %d generation %d", s.Place.Slot, s.Place.Generation)
	end := "source"
	if s.Sink {
		end = "sink"
	}
	switch s.Kind {
	case StepAddressed:
		return fmt.Sprintf("source addresses chunk %d to %s over link %d", s.Chunk, place, s.Link)
	case StepLost:
		return fmt.Sprintf("source loses link %d", s.Link)
	case StepDropped:
		return fmt.Sprintf("source drops %s, which it did not post over link %d", place, s.Link)
	case StepFence:
		return fmt.Sprintf("source quarantines what it addressed over link %d: %v", s.Link, s.Places)
	case StepCredited:
		return fmt.Sprintf("source gets %s back, again %t", place, s.Again)
	case StepRegranted:
		return fmt.Sprintf("source has %s granted again, which link %d lost", place, s.Link)
	case StepAnnounced:
		return fmt.Sprintf("sink takes the announcement of %s over link %d", place, s.Link)
	case StepBooked:
		return fmt.Sprintf("sink books chunk %d of %s", s.Chunk, place)
	case StepRepaired:
		return fmt.Sprintf("sink repairs chunk %d from %s", s.Chunk, place)
	case StepReturned:
		return fmt.Sprintf("sink returns %s, again %t", place, s.Again)
	case StepClosed:
		return fmt.Sprintf("sink takes nothing over link %d any more", s.Link)
	case StepShut:
		return fmt.Sprintf("sink has closed the connections of link %d", s.Link)
	case StepFenced:
		return fmt.Sprintf("sink answers the fence of link %d: %v", s.Link, s.Places)
	case StepSaid:
		return fmt.Sprintf("%s says message %d over link %d", end, s.Seq, s.Link)
	case StepTook:
		return fmt.Sprintf("%s takes message %d", end, s.Seq)
	}
	return fmt.Sprintf("step %d of %d", s.Kind, stepKinds)
}
