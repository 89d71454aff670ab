package remote

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"

	"golang.org/x/sys/unix"
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

// silent returns an address that does not answer: its queue is full, so that
// SYNs are dropped (listen(2)).
func silent(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	in := name.(*unix.SockaddrInet4)
	at := netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	// For a listening socket these are the length of its queue and the limit of
	// it. A dial that times out quickly may only be due to a busy machine.
	for end := time.Now().Add(rdmatest.Stretch(reachTimeout)); time.Now().Before(end); time.Sleep(time.Millisecond) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		if err != nil {
			t.Fatal(err)
		}
		if info.Unacked > info.Sacked {
			return at
		}
	}
	t.Skip("a full queue of connections takes more here")
	return at
}

func TestReach(t *testing.T) {
	slow, fast, same := listen(t), listen(t), listen(t)
	addrs := []Address{{"tcp", rdmatest.DeafAddr(t), "lo", 400}, tcpAddress(t, slow, 1), tcpAddress(t, fast, 100), tcpAddress(t, same, 100)}
	addrs = append(addrs, Address{"tcp", silent(t), "eth9", 1000})
	start := time.Now()
	got, err := reach(t.Context(), addrs, reachTimeout/2) // however busy the machine is
	if err != nil || len(got) != 3 || got[0].Address != addrs[2] || got[1].Address != addrs[3] || got[2].Address != addrs[1] || !got[0].Local.IsLoopback() {
		t.Errorf("%v, %v", got, err)
	}
	if took := time.Since(start); took >= reachTimeout {
		t.Errorf("took %s: an address without an answer holds up the others", took)
	}
	if got, err := Reach(t.Context(), addrs[:1]); err == nil || len(got) > 0 {
		t.Errorf("a closed port: %v, %v", got, err)
	}
	if got, err := Reach(t.Context(), addrs[4:]); err == nil || len(got) > 0 || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("a port that drops what it gets: %v, %v", got, err)
	}
	if got, err := Reach(t.Context(), nil); len(got) > 0 || err != nil {
		t.Errorf("no addresses: %v, %v", got, err)
	}
}
