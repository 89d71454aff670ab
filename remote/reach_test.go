package remote

import (
	"net"
	"net/netip"
	"testing"
	"time"
)

func tcpAddress(t *testing.T, l net.Listener, rate float64) Address {
	t.Helper()
	return Address{"tcp", l.Addr().(*net.TCPAddr).AddrPort(), "lo", rate}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestReach(t *testing.T) {
	slow, fast, same, closed := listen(t), listen(t), listen(t), listen(t)
	addrs := []Address{tcpAddress(t, closed, 400), tcpAddress(t, slow, 1), tcpAddress(t, fast, 100), tcpAddress(t, same, 100)}
	closed.Close()
	// TEST-NET-1 (RFC 5737): dropped, or refused at once where there is no route.
	addrs = append(addrs, Address{"tcp", netip.MustParseAddrPort("192.0.2.1:9"), "eth9", 1000})
	start := time.Now()
	got, err := Reach(t.Context(), addrs)
	if err != nil || len(got) != 3 || got[0] != addrs[2] || got[1] != addrs[3] || got[2] != addrs[1] {
		t.Errorf("%v, %v", got, err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("took %s: an address without an answer holds up the others", took)
	}
	if got, err := Reach(t.Context(), addrs[:1]); err == nil || len(got) > 0 {
		t.Errorf("a closed port: %v, %v", got, err)
	}
	if got, err := Reach(t.Context(), nil); len(got) > 0 || err != nil {
		t.Errorf("no addresses: %v, %v", got, err)
	}
}
