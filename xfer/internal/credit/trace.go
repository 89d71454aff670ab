package credit

import "fmt"

// StepKind is the kind of a Step.
type StepKind uint8

// The steps of the two ends, with the fields of Step that they use.
const (
	StepAddressed StepKind = iota // source: Chunk will be written to Place over Link
	StepLost                      // source: nothing more is addressed or posted over Link, and its connections are closed
	StepDropped                   // source: the announcement of Place was never posted over Link, which is lost; its chunk is addressed again
	StepFence                     // source: it quarantines Places, which were addressed over Link and have not been returned
	StepCredited                  // source: the sink has returned Place, and requests the chunk Again or not
	StepRegranted                 // source: Place was lost on Link, and is granted again
	StepAnnounced                 // sink: Place was announced over Link
	StepBooked                    // sink: Place contains Chunk, which was booked
	StepRepaired                  // sink: Place contains the repeated part of Chunk, which was booked earlier
	StepReturned                  // sink: it returns Place, and requests the chunk Again or not
	StepClosed                    // sink: announcements over Link are invalid from now on
	StepShut                      // sink: the connections of Link are closed
	StepFenced                    // sink: it answers which Places of the oldest open StepFence of Link were lost
	StepSaid                      // either: message Seq is sent over Link, for the first time or again
	StepTook                      // either: the peer's message Seq is received for the first time
	stepKinds
)

// Step is one step of a session, as tests record them from both ends: see
// package credittest. An end records a step under the lock under which it takes
// the step, and before the peer can learn of it. A StepFence has the result of
// one call of Source.Fence, and a StepFenced that of one call of Sink.Fence.
type Step struct {
	Kind   StepKind
	Sink   bool // which end: only StepSaid and StepTook can be of either
	Again  bool
	Link   Link
	Place  Place
	Chunk  uint64
	Seq    uint64
	Places []Place
}

// String formats the step with the fields that it uses.
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
