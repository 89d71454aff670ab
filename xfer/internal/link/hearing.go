package link

import (
	"fmt"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
)

// hearing knows since when this end hears the peer without a pause. A peer that stood
// still, or an end that did, says nothing about a rail: when both go on, one rail is
// heard before the others.
type hearing struct {
	looked time.Time
	deaf   time.Time // when this end last stood still, or heard nothing over any rail
	// late is the same, of pauses that are no more than a late heartbeat.
	late time.Time
}

func (h *hearing) look(s *Session) {
	now, beat := time.Now(), s.Timeouts.Heartbeat
	stood, silent := now.Sub(h.looked), s.Links.heardLast(nil)
	if stood > 2*beat || silent > 2*beat {
		h.deaf = now
	}
	if stood > beat/2 || silent > lateBeat(beat) {
		h.late = now
	}
	h.looked = now
}

// lateBeat is within what time the next heartbeat is heard at least.
func lateBeat(beat time.Duration) time.Duration { return beat + beat/4 }

// watchLink gives up a link whose device is in trouble, or that holds up the copy, if
// there is another.
func (s *Session) watchLink(l *Link, h *hearing) error {
	if len(s.Links.Snapshot()) < 2 || s.Ending.Load() {
		return nil
	}
	why := l.Rail.Trouble()
	if why == nil {
		why = s.holdsUp(l, h)
	}
	if why == nil {
		return nil
	}
	return s.LoseLink(l, why)
}

// leastHoldUp is for how long a rail is silent at least, however short heartbeats are,
// before it holds up the copy: the threads of a busy machine run some tenths of a second
// one after the other.
const leastHoldUp = time.Second

// holdsUp says why a link is given up though it may only be slow: the whole copy stands
// still, and the link missed a heartbeat that came over another one. A packet that was
// lost is then sent sooner over the other link than by the device. That is done once in
// HoldUpRest for each rail, because on a wire that goes on losing packets it would cost
// more than waiting does.
func (s *Session) holdsUp(l *Link, h *hearing) error {
	beat := s.Timeouts.Heartbeat
	silent, patience := l.silent(), max(beat+beat/2, leastHoldUp)
	if silent <= patience || s.Links.heardLast(l) > lateBeat(beat) || time.Since(h.late) <= patience {
		return nil
	}
	if _, ok := s.carrier(); !ok || s.stands() <= patience-beat/2 || !s.Links.MayHurry(l) {
		return nil
	}
	return &rdma.OpError{
		Op: "hear", Device: l.name, Status: fmt.Sprintf("nothing came for %v, while the copy stood still", silent.Round(100*time.Millisecond)),
		Fault: rdma.FaultPath, Err: fault.ErrPeerSilent,
	}
}

// moves notes that something came from the peer that is no heartbeat.
func (s *Session) moves() { s.movedNs.Store(int64(time.Since(s.began))) }

// stands is for how long nothing but heartbeats came.
func (s *Session) stands() time.Duration {
	return time.Since(s.began) - time.Duration(s.movedNs.Load())
}

// beatLink beats on the lanes of a link. A link that is silent is lost, if the peer was
// heard over another one meanwhile. If all are silent for long, the peer is dead.
func (s *Session) beatLink(l *Link, h *hearing) error {
	silent := l.silent()
	switch others := s.Links.heardLast(l); {
	case s.Ending.Load():
	case silent > s.Timeouts.Silence && others > s.Timeouts.Silence:
		return fmt.Errorf("%w: nothing from %s for %v", fault.ErrPeerSilent, s.Peer, silent.Round(time.Second))
	case silent > l.lostAfter(s.Timeouts.Suspect) && others < 2*s.Timeouts.Heartbeat && time.Since(h.deaf) > l.lostAfter(s.Timeouts.Suspect):
		return s.LoseLink(l, &rdma.OpError{
			Op: "hear", Device: l.name, Status: fmt.Sprintf("nothing came for %v", silent.Round(100*time.Millisecond)), Fault: rdma.FaultPath, Err: fault.ErrPeerSilent,
		})
	case silent > s.Timeouts.Suspect:
		s.Links.suspect()
	}
	l.Suspected.Store(silent > s.Timeouts.Suspect)
	for _, lane := range l.Snapshot() {
		lane.Beat()
	}
	return nil
}
