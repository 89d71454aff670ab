package link

import (
	"context"
	"errors"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

// lossyConn accepts what is posted, but none of it has reached the peer yet.
type lossyConn struct {
	rdma.Conn
	posted []rdma.WR
}

func (c *lossyConn) LastHeard() time.Time { return time.Now() }

func (c *lossyConn) Post(wrs []rdma.WR) (int, error) {
	c.posted = append(c.posted, wrs...)
	return len(wrs), nil
}

// tellingRail reports the completions that it is given, and when it has reported all of them.
type tellingRail struct {
	rdma.Rail
	completions []rdma.Completion
}

var errAllTold = errors.New("all told")

func (r *tellingRail) Wait(_ context.Context, cs []rdma.Completion) (int, error) {
	n := copy(cs, r.completions)
	r.completions = r.completions[n:]
	if n == 0 {
		return 0, errAllTold
	}
	return n, nil
}

// After a packet is lost, Soft-RoCE resends it only when nothing was posted for the time of
// --ack-timeout, which is more than a second. Heartbeats each second would prevent that until the
// peer counts as silent.
func TestNoHeartbeatWhileOneIsOnItsWay(t *testing.T) {
	testKey := trust.Key{ID: "test", Secret: trust.NewSecret([32]byte{1, 2, 3})}
	_, first, err := trust.Open(testKey, nil)
	if err != nil {
		t.Fatal(err)
	}
	_, _, keys, err := trust.Answer(first, nil, func(string) (trust.Secret, bool) { return testKey.Secret, true })
	if err != nil {
		t.Fatal(err)
	}
	conn, rail := &lossyConn{}, &tellingRail{}
	one := &Link{Rail: rail, keys: keys}
	one.Lanes = []*Lane{newLane(one, conn, trust.Lane{})}
	s := &Session{Timeouts: DefaultTimeouts(), Link: one, Ctl: newControl(one)}
	beat := func(times, want int) {
		t.Helper()
		for range times {
			one.Lanes[0].beat()
		}
		if len(conn.posted) != want {
			t.Fatalf("%d heartbeats were posted, not %d", len(conn.posted), want)
		}
	}
	beat(3, 1)
	rail.completions = []rdma.Completion{{Kind: rdma.Done, Conn: conn, ID: conn.posted[0].ID}}
	if err := s.pollCompletions(t.Context(), one); !errors.Is(err, errAllTold) {
		t.Fatal(err)
	}
	beat(3, 2)
}
