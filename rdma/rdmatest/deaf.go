package rdmatest

import (
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sys/unix"
)

// DeafAddr returns an address of this machine that refuses connections until
// the test ends. A free port may be taken by another process at any time, so
// DeafAddr keeps this one bound.
func DeafAddr(t testing.TB) netip.AddrPort {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	err = unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}})
	name, nameErr := unix.Getsockname(fd)
	if err := errors.Join(err, nameErr); err != nil {
		t.Fatal(err)
	}
	in := name.(*unix.SockaddrInet4)
	return netip.AddrPortFrom(netip.AddrFrom4(in.Addr), uint16(in.Port))
}
