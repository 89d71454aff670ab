package link

import (
	"context"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/result"
)

// reportRail reports that a rail was lost.
func (s *Session) reportRail(l *Link, why error, left int) {
	if s.Report != nil {
		s.Report(result.Event{Kind: result.EventRailLost, Rail: l.name, Text: why.Error(), RailsLeft: left})
	}
}

// lossTime is how long to wait before reporting a rail that the peer closed: a peer that ends the
// session closes all of them, one by one.
const lossTime = time.Second

// reportLoss reports that a rail was lost, unless it was of no use. If the peer closed the last
// one, the session waits for another before it ends, and then reports the reason itself. reportLoss
// does not block: the terminal may be stopped, and the caller has other rails to serve.
func (s *Session) reportLoss(l *Link, why error, left int) {
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
	within := lossTime
	if left == 0 {
		within += hungUpTime
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

// reportJoined reports that a further rail carries chunks. If the loss of that rail is not reported
// yet, reportJoined reports it first.
func (s *Session) reportJoined(l *Link) {
	s.Links.tellLoss(l)
	if s.Report != nil {
		s.Report(result.Event{Kind: result.EventRailJoined, Rail: l.name, RailsLeft: len(s.Links.Snapshot())})
	}
}

// ReportNoLane reports, at a server, that a queue pair of a further rail was not established.
// Before a copy begins it reports nothing: an honest client joins no further rails so early, and
// the session has no receiver for events yet.
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
