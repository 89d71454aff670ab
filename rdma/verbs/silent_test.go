//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// silentPeer accepts TCP connections at an address of the machine, and never
// sends anything.
func silentPeer(t *testing.T, addr netip.Addr) (at netip.AddrPort, hangUp func()) {
	t.Helper()
	l, err := net.Listen("tcp", netip.AddrPortFrom(addr, 0).String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return netip.MustParseAddrPort(l.Addr().String()), func() { l.Close() }
}

// fullPeer has as many TCP connections as its backlog allows, so that the
// kernel drops further SYNs.
func fullPeer(t *testing.T, addr netip.Addr) (at netip.AddrPort, hangUp func()) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	l := os.NewFile(uintptr(fd), "listener")
	t.Cleanup(func() { l.Close() })
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrInet4{Addr: addr.As4()}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	at = netip.AddrPortFrom(addr, uint16(own.(*unix.SockaddrInet4).Port))
	for range 4 {
		c, err := net.DialTimeout("tcp", at.String(), time.Second)
		if err != nil {
			return at, func() { l.Close() }
		}
		t.Cleanup(func() { c.Close() })
	}
	t.Fatalf("%s takes any number of connections", at)
	return at, nil
}

// channels counts the rdma_cm event channels of this process.
func channels(t *testing.T) (n int) {
	t.Helper()
	links, err := filepath.Glob("/proc/self/fd/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasSuffix(to, "/rdma_cm") {
			n++
		}
	}
	return n
}

// TestSilentPeer dials peers over Soft-iWARP that do not answer, one of which
// does not even accept the TCP connection. The kernel waits for them for 10 s
// and for two minutes. Dial ends with its context, Close does not wait, and the
// resources are freed when the kernel's wait ends.
func TestSilentPeer(t *testing.T) {
	const soon = 5 * time.Second
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		if !strings.HasPrefix(g.device, "siw") {
			t.Skip("connects without TCP")
		}
		for name, listen := range map[string]func(*testing.T, netip.Addr) (netip.AddrPort, func()){"says nothing": silentPeer, "takes no connection": fullPeer} {
			t.Run(name, func(t *testing.T) {
				peer, hangUp := listen(t, g.addr)
				before := channels(t)
				r, err := p.Open(g.device, smallConfig)
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
				defer cancel()
				dialled := make(chan error, 1)
				go func() {
					_, err := r.Dial(ctx, peer, nil)
					dialled <- err
				}()
				select {
				case err := <-dialled:
					if !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("dial: %v, want the context's end", err)
					}
				case <-time.After(soon):
					t.Errorf("dial did not end within %v of its context", soon)
					hangUp()
					<-dialled
				}
				began := time.Now()
				if err := r.Close(); err != nil {
					t.Errorf("close rail: %v", err)
				}
				if took := time.Since(began); took > soon {
					t.Errorf("closing took %v", took)
				}
				hangUp()
				for end := time.Now().Add(30 * time.Second); channels(t) != before; time.Sleep(50 * time.Millisecond) {
					if time.Now().After(end) {
						t.Fatalf("%d event channels are open, and were %d", channels(t), before)
					}
				}
				// The device's objects are freed with the channel, or soon after.
				again, err := p.Open(g.device, smallConfig)
				if err != nil {
					t.Fatal(err)
				}
				if err := again.Close(); err != nil {
					t.Errorf("close another rail: %v", err)
				}
			})
		}
	})
}
