package link

import (
	"fmt"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
)

// hearing records how long this end has received from the peer without a pause. After a pause of
// either end, silence proves nothing about a rail: when both ends resume, messages arrive over one
// rail before the others.
type hearing struct {
	looked time.Time
	deaf   time.Time // end of this end's last pause, or of the last silence of all rails
	// late is the same, for pauses as short as a late heartbeat.
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

// lateBeat is the time within which the next heartbeat must arrive.
func lateBeat(beat time.Duration) time.Duration { return beat + beat/4 }

// watchLink drops a link whose device reports a fault, or that holds up the copy, if there is
// another link.
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

// leastHoldUp is the shortest silence that counts as holding up the copy, however short heartbeats
// are. On a busy machine a thread may wait some tenths of a second for a processor.
const leastHoldUp = time.Second

// holdsUp returns the reason to drop a link that may merely be slow: the whole copy has stopped,
// and the link missed a heartbeat that arrived over another one. The other link then resends a lost
// packet sooner than the device would. Each rail is dropped for this at most once in holdUpRest: on
// a wire that keeps losing packets, dropping costs more than waiting.
func (s *Session) holdsUp(l *Link, h *hearing) error {
	beat := s.Timeouts.Heartbeat
	silent, patience := l.silent(), max(beat+beat/2, leastHoldUp)
	if silent <= patience || s.Links.heardLast(l) > lateBeat(beat) || time.Since(h.late) <= patience {
		return nil
	}
	if _, ok := s.carrier(); !ok || s.stands() <= patience-beat/2 || !s.Links.mayHurry(l) {
		return nil
	}
	return &rdma.OpError{
		Op: "hear", Device: l.name, Status: fmt.Sprintf("nothing came for %v, while the copy stood still", silent.Round(100*time.Millisecond)),
		Fault: rdma.FaultPath, Err: fault.ErrPeerSilent,
	}
}

// moves records that the peer sent something other than a heartbeat.
func (s *Session) moves() { s.movedNs.Store(int64(time.Since(s.began))) }

// stands is the time since anything but heartbeats arrived.
func (s *Session) stands() time.Duration {
	return time.Since(s.began) - time.Duration(s.movedNs.Load())
}

// beatLink sends heartbeats on the lanes of a link. It drops a silent link if the peer sent
// something over another one meanwhile. If all links are silent for long, it reports the peer as
// dead.
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
		lane.beat()
	}
	return nil
}
