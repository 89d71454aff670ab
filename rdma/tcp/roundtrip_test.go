package tcp

import (
	"testing"
	"time"

	"gdrcp/rdma"
)

// A socket reports its round-trip time; a stream that is not a socket reports none.
func TestRoundTrip(t *testing.T) {
	a, b := connect(t, rdma.RailConfig{Conns: 1, SendDepth: 2, RecvDepth: 2, MsgBytes: 64, WriteBytes: 64}, 64)
	for _, e := range []end{a, b} {
		if got := e.conn.(rdma.RoundTripper).RoundTrip(); got <= 0 || got > time.Second {
			t.Errorf("a round trip of %v on this machine", got)
		}
	}
	if got := roundTrip(nil); got != 0 {
		t.Errorf("a round trip of %v over no socket", got)
	}
}
