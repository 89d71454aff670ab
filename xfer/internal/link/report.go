package link

import (
	"context"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/result"
)

// reportRail tells that a rail was lost.
func (s *Session) reportRail(l *Link, why error, left int) {
	if s.Report != nil {
		s.Report(result.Event{Kind: result.EventRailLost, Rail: l.name, Text: why.Error(), RailsLeft: left})
	}
}

// LossTime is how long a rail that the peer closed is not told of: a peer that ends the
// session closes all of them, one after the other.
const LossTime = time.Second

// ReportLoss tells that a rail was lost, unless it was of no use. Where the peer closed the
// last one, the session waits for another before it ends, and then says why itself. It
// does not block: a terminal may be stopped, and who calls has the other rails to look
// after.
func (s *Session) ReportLoss(l *Link, why error, left int) {
	if l.Unusable.Load() != nil {
		return
	}
	s.Links.keepLoss(l, func() { s.reportRail(l, why, left) })
	if rdma.FaultOf(why) != rdma.FaultPeer {
		s.Links.Spawn(func(context.Context) error {
			s.Links.tellLoss(l)
			return nil
		})
		return
	}
	within := LossTime
	if left == 0 {
		within += HungUpTime
	}
	s.Links.Spawn(func(ctx context.Context) error {
		t := time.NewTimer(within)
		defer t.Stop()
		select {
		case <-t.C:
			s.Links.tellLoss(l)
		case <-ctx.Done():
		}
		return nil
	})
}

// reportJoined tells that a further rail carries chunks; first, if that is still to come,
// that it was lost.
func (s *Session) reportJoined(l *Link) {
	s.Links.tellLoss(l)
	if s.Report != nil {
		s.Report(result.Event{Kind: result.EventRailJoined, Rail: l.name, RailsLeft: len(s.Links.Snapshot())})
	}
}

// ReportNoLane tells, at a server, that a queue pair of a further rail did not come about.
// Until a copy has begun it tells nobody: an honest client joins no further rails before,
// and who is to be told is not settled.
func (s *Session) ReportNoLane(req rdma.Request, why error) {
	select {
	case <-s.RoleSet:
	default:
		return
	}
	if s.Report != nil {
		s.Report(result.Event{Kind: result.EventRailUnused, Rail: req.Device(), Text: why.Error(), RailsLeft: len(s.Links.Snapshot())})
	}
}
