package xfer

import (
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
)

// moody is a way to a server where the first connections are reset, each after a
// while, before it has answered.
func moody(t *testing.T, server netip.AddrPort, resets int, after time.Duration) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	t.Cleanup(func() {
		l.Close()
		all.Wait()
	})
	pass := func(to, from net.Conn) {
		_, _ = io.Copy(to, from) // either end may end it
		to.Close()
	}
	all.Go(func() {
		for i := 0; ; i++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			if i < resets {
				time.Sleep(after)
				_ = client.(*net.TCPConn).SetLinger(0)
				client.Close()
				continue
			}
			there, err := net.Dial("tcp", server.String())
			if err != nil {
				client.Close()
				continue
			}
			all.Go(func() { pass(there, client) })
			all.Go(func() { pass(client, there) })
		}
	})
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// A client that is reset before it has an answer comes again: many times, and also
// where a busy machine took its time to turn it away.
func TestKnockingAgain(t *testing.T) {
	rdmatest.BesideOthers(t)
	for name, tc := range map[string]struct {
		resets int
		after  time.Duration
	}{"many times": {20, 0}, "late": {1, 4 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			rdmatest.BesideOthers(t)
			w := byTCP()
			_, at, _ := w.serve(t)
			a, err := w.client().knock(t.Context(), w.provider, "tcp", moody(t, at, tc.resets, tc.after), testKey, w.options(), func() {})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// An address that resets everybody is given up.
func TestKnockingInVain(t *testing.T) {
	rdmatest.BesideOthers(t)
	w := byTCP()
	_, at, _ := w.serve(t)
	_, err := w.client().knock(t.Context(), w.provider, "tcp", moody(t, at, 10*maxKnocks, 0), testKey, w.options(), func() {})
	if !isCrowded(err) {
		t.Errorf("got %v", err)
	}
}
