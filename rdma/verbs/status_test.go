//go:build linux && cgo

package verbs

import (
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"gdrcp/rdma"
)

var somePeer = netip.MustParseAddrPort("192.0.2.7:7474")

func TestCompletionError(t *testing.T) {
	cases := []struct {
		status uint32
		text   string
		is     error
	}{
		{1, "IBV_WC_LOC_LEN_ERR", nil},
		{4, "IBV_WC_LOC_PROT_ERR", nil},
		{10, "IBV_WC_REM_ACCESS_ERR", rdma.ErrAccess},
		{12, "stopped answering", nil},
		{13, "no receive posted", nil},
		{21, "IBV_WC_GENERAL_ERR", nil},
		{22, "unknown status 22", nil},
		{1 << 31, "unknown status", nil},
	}
	for _, c := range cases {
		err := completionError("send to", "mlx5_0", somePeer, c.status, 0x81)
		var op *rdma.OpError
		if !errors.As(err, &op) || op.VendorErr != 0x81 || op.Device != "mlx5_0" || op.Peer != somePeer {
			t.Fatalf("status %d: %#v", c.status, err)
		}
		if !strings.Contains(err.Error(), c.text) || !strings.Contains(err.Error(), "0x81") {
			t.Errorf("status %d: %q does not say %q", c.status, err, c.text)
		}
		if c.is != nil && !errors.Is(err, c.is) {
			t.Errorf("status %d is no %v", c.status, c.is)
		}
	}
}

// TestEveryStatusIsExplained: every message has a cause, and a remedy unless
// there is nothing to remedy.
func TestEveryStatusIsExplained(t *testing.T) {
	for i, s := range wcStatuses {
		if s.name == "" || s.text == "" {
			t.Errorf("status %d has no name or cause", i)
		}
		if s.hint == "" && i != 0 && i != wcFlush {
			t.Errorf("%s has no remedy", s.name)
		}
	}
}

func TestConnectError(t *testing.T) {
	cases := []struct {
		name string
		ev   cmEvent
		is   error
	}{
		{"NobodyOnInfiniBand", cmEvent{kind: evRejected, status: rejInvalidServiceID}, syscall.ECONNREFUSED},
		{"NobodyOnIWARP", cmEvent{kind: evRejected, status: -int(syscall.ECONNREFUSED)}, syscall.ECONNREFUSED},
		{"ResetOnIWARP", cmEvent{kind: evRejected, status: -int(syscall.ECONNRESET)}, syscall.ECONNREFUSED},
		{"AnotherProgram", cmEvent{kind: evRejected, status: rejConsumer, data: make([]byte, 148)}, rdma.ErrNotGdrcp},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			err := connectError("rxe0", somePeer, c.ev)
			var op *rdma.OpError
			if !errors.Is(err, c.is) || !errors.As(err, &op) {
				t.Errorf("%v, want %v", err, c.is)
			}
		})
	}
	for _, kind := range []int{evUnreachable, evConnectError, evDeviceRemoval} {
		var op *rdma.OpError
		if err := connectError("rxe0", somePeer, cmEvent{kind: kind, status: -110}); !errors.As(err, &op) || op.Hint == "" {
			t.Errorf("event %d: %v without a remedy", kind, err)
		}
	}
}

func TestRejectedIsTold(t *testing.T) {
	data := append(encodeReject(rdma.RejectBusy), make([]byte, 140)...)
	for _, status := range []int{rejConsumer, -int(syscall.ECONNRESET)} {
		var rejected *rdma.RejectedError
		err := connectError("rxe0", somePeer, cmEvent{kind: evRejected, status: status, data: data})
		if !errors.As(err, &rejected) || rejected.Code != rdma.RejectBusy || rejected.Peer != somePeer {
			t.Errorf("status %d: %v", status, err)
		}
	}
}

func TestEventErrorNames(t *testing.T) {
	for _, c := range []struct {
		ev   cmEvent
		want string
	}{
		{cmEvent{kind: evUnreachable, status: -int(syscall.ETIMEDOUT)}, "RDMA_CM_EVENT_UNREACHABLE: connection timed out"},
		{cmEvent{kind: evConnectError, status: -1}, "RDMA_CM_EVENT_CONNECT_ERROR: librdmacm tells no reason"},
		{cmEvent{kind: evRejected, status: 10}, "RDMA_CM_EVENT_REJECTED, reason 10"},
		{cmEvent{kind: evTimewaitExit}, "RDMA_CM_EVENT_TIMEWAIT_EXIT"},
		{cmEvent{kind: 99}, "event 99"},
		{cmEvent{kind: -1}, "event -1"},
	} {
		if got := (&eventError{ev: c.ev}).Error(); got != c.want {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

func TestRouteError(t *testing.T) {
	unreached := &eventError{ev: cmEvent{kind: evAddrError, status: -int(syscall.ETIMEDOUT)}}
	var op *rdma.OpError
	if err := routeError(somePeer, unreached); errors.Is(err, rdma.ErrNoDevice) || !errors.As(err, &op) || op.Hint == "" {
		t.Errorf("a neighbour that does not answer: %v", err)
	}
	for _, errno := range []syscall.Errno{syscall.ENODEV, syscall.EADDRNOTAVAIL} {
		event := &eventError{ev: cmEvent{kind: evAddrError, status: -int(errno)}}
		for _, cause := range []error{errno, event} {
			if err := routeError(somePeer, cause); !errors.Is(err, rdma.ErrNoDevice) {
				t.Errorf("%v: %v is no ErrNoDevice", cause, err)
			}
		}
	}
}

func TestRoutable(t *testing.T) {
	for text, want := range map[string]bool{
		"192.0.2.1": true, "2001:db8::1": true, "fe80::1%eth0": true,
		"127.0.0.1": false, "127.9.9.9": false, "::1": false, "0.0.0.0": false, "::": false,
		"224.0.0.1": false, "ff02::1": false,
	} {
		if err := routable(netip.MustParseAddr(text)); (err == nil) != want || err != nil && !errors.Is(err, rdma.ErrNoDevice) {
			t.Errorf("%s: %v", text, err)
		}
	}
	if routable(netip.Addr{}) == nil {
		t.Error("no address at all is routable")
	}
}

func TestLockedMemory(t *testing.T) {
	other := &rdma.OpError{Op: "register", Err: syscall.EFAULT}
	if err := (&rail{}).lockedMemory(other); !errors.Is(err, syscall.EFAULT) || errors.Is(err, rdma.ErrLockedMemory) {
		t.Errorf("EFAULT became %v", err)
	}
	full := &rdma.OpError{Op: "register", Err: syscall.ENOMEM}
	if err := (&rail{}).lockedMemory(full); rdma.MayLockAll() && errors.Is(err, rdma.ErrLockedMemory) {
		t.Errorf("the limit does not hold for this process, and ENOMEM became %v", err)
	}
}

func TestAddrRoundTrip(t *testing.T) {
	for _, text := range []string{"192.0.2.1:7474", "[2001:db8::1]:1", "[fe80::1%lo]:65535", "0.0.0.0:0", "[::]:0"} {
		want := netip.MustParseAddrPort(text)
		c, err := toC(want)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got := fromC(&c); got != want {
			t.Errorf("%s came back as %s", want, got)
		}
	}
	mapped := netip.MustParseAddrPort("[::ffff:192.0.2.1]:5")
	c, err := toC(mapped)
	if err != nil {
		t.Fatal(err)
	}
	if got := fromC(&c); got != netip.MustParseAddrPort("192.0.2.1:5") {
		t.Errorf("%s became %s", mapped, got)
	}
	if _, err := toC(netip.MustParseAddrPort("[fe80::1%no-such-interface]:5")); err == nil {
		t.Error("a zone that names no interface was taken")
	}
	c.family = 0
	if got := fromC(&c); got.IsValid() {
		t.Errorf("no family became %s", got)
	}
}
