package xfer

import (
	"context"
	"time"

	"gdrcp/rdma"
)

// reportRail tells that a rail was lost.
func (s *linkSession) reportRail(l *railLink, why error, left int) {
	if s.report != nil {
		s.report(Event{Kind: EventRailLost, Rail: l.name, Text: why.Error(), RailsLeft: left})
	}
}

// lossTime is how long a rail that the peer closed is not told of: a peer that ends the
// session closes all of them, one after the other.
const lossTime = time.Second

// reportLoss tells that a rail was lost, unless it was of no use. Where the peer closed the
// last one, the session waits for another before it ends, and then says why itself. It
// does not block: a terminal may be stopped, and who calls has the other rails to look
// after.
func (s *linkSession) reportLoss(l *railLink, why error, left int) {
	if l.unusable.Load() != nil {
		return
	}
	s.links.keepLoss(l, func() { s.reportRail(l, why, left) })
	if rdma.FaultOf(why) != rdma.FaultPeer {
		s.links.spawn(func(context.Context) error {
			s.links.tellLoss(l)
			return nil
		})
		return
	}
	within := lossTime
	if left == 0 {
		within += hungUpTime
	}
	s.links.spawn(func(ctx context.Context) error {
		t := time.NewTimer(within)
		defer t.Stop()
		select {
		case <-t.C:
			s.links.tellLoss(l)
		case <-ctx.Done():
		}
		return nil
	})
}

// reportJoined tells that a further rail carries chunks; first, if that is still to come,
// that it was lost.
func (s *linkSession) reportJoined(l *railLink) {
	s.links.tellLoss(l)
	if s.report != nil {
		s.report(Event{Kind: EventRailJoined, Rail: l.name, RailsLeft: len(s.links.snapshot())})
	}
}

// reportNoLane tells, at a server, that a queue pair of a further rail did not come about.
// Until a copy has begun it tells nobody: an honest client joins no further rails before,
// and who is to be told is not settled.
func (s *linkSession) reportNoLane(req rdma.Request, why error) {
	select {
	case <-s.roleSet:
	default:
		return
	}
	if s.report != nil {
		s.report(Event{Kind: EventRailUnused, Rail: req.Device(), Text: why.Error(), RailsLeft: len(s.links.snapshot())})
	}
}
