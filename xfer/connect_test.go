package xfer

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/fault"
)

// noRoute is a provider that finds no device for any address.
type noRoute struct {
	rdma.Provider
	err error
}

func (p noRoute) Devices() ([]rdma.Device, error) { return nil, nil }

func (p noRoute) Route(context.Context, netip.AddrPort) (string, netip.Addr, error) {
	return "", netip.Addr{}, p.err
}

// A host that does not answer, for example while it restarts, is tried again. A host to which no
// device has a route is not.
func TestHostThatDoesNotAnswer(t *testing.T) {
	for cause, unreached := range map[error]bool{
		syscall.ETIMEDOUT: true, syscall.EHOSTUNREACH: true, syscall.ENETUNREACH: false, syscall.ENODEV: false,
	} {
		c := &Client{Verbs: noRoute{err: &rdma.OpError{Op: "resolve the address of", Err: cause}}}
		rails := []door.RailAddr{{Addr: netip.MustParseAddrPort("192.0.2.1:7474")}}
		err := c.overVerbs(t.Context(), rails, &Options{}, nil)
		if !errors.Is(err, cause) || fault.IsUnreached(err) != unreached || errors.Is(err, rdma.ErrUnsupported) == unreached {
			t.Errorf("%v: %v, to be tried again: %v", cause, err, fault.IsUnreached(err))
		}
	}
}

// unheardPort is a port of 127.0.0.1 on which nobody listens. The test holds it, so that no other
// program takes it meanwhile.
func unheardPort(t *testing.T) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(at.(*unix.SockaddrInet4).Port))
}

// The reported error is that of the address of a server, not that of another address at which
// nobody listens.
func TestErrorOfSeveralAddresses(t *testing.T) {
	OnHost(t)
	rdmatest.BesideOthers(t)
	l, err := tcp.New().Listen(netip.MustParseAddrPort("127.0.0.1:0"), rdma.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		for {
			req, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			_ = req.Reject(rdma.RejectBusy)
		}
	}()
	stranger, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	go func() {
		for {
			c, err := stranger.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("SSH-2.0-gdrcp-is-something-else\r\n"))
			c.Close()
		}
	}()
	nobody := unheardPort(t)
	other := stranger.Addr().(*net.TCPAddr).AddrPort()

	o := Options{Timeouts: shortTimeouts()}
	o.complete()
	for _, tc := range []struct {
		name  string
		addrs []netip.AddrPort
		want  func(error) bool
	}{
		{"nobody, then busy", []netip.AddrPort{nobody, l.Addr()}, door.IsAnswered},
		{"busy, then nobody", []netip.AddrPort{l.Addr(), nobody}, door.IsAnswered},
		{"a stranger, then busy", []netip.AddrPort{other, l.Addr()}, door.IsAnswered},
		{"nobody, then a stranger", []netip.AddrPort{nobody, other}, func(err error) bool { return errors.Is(err, rdma.ErrNotGdrcp) }},
		{"nobody anywhere", []netip.AddrPort{nobody, nobody}, func(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }},
	} {
		if _, err := o.atDoor(testKey).Race(t.Context(), tcp.New(), tc.addrs); !tc.want(err) {
			t.Errorf("%s: %v", tc.name, err)
		}
	}
}
