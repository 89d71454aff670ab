package xfer

import (
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/door"
)

// moody forwards to a server, but resets some connections, counted from 0, each after a while,
// before the server has answered.
func moody(t *testing.T, server netip.AddrPort, resets func(i int) bool, after time.Duration) netip.AddrPort {
	t.Helper()
	return Forward(t, func(i int) netip.AddrPort {
		if resets(i) {
			time.Sleep(after)
			return netip.AddrPort{}
		}
		return server
	})
}

// Forward forwards connections, counted from 0, each to the address that to returns for it. If to
// returns none, it resets the connection.
func Forward(t *testing.T, to func(i int) netip.AddrPort) netip.AddrPort {
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
			server := to(i)
			if !server.IsValid() {
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

func first(n int) func(i int) bool { return func(i int) bool { return i < n } }

// A client that is reset before it has an answer connects again: many times, and even if a busy
// machine was slow to turn it away.
func TestAuthenticatingAgain(t *testing.T) {
	OnHost(t)
	rdmatest.BesideOthers(t)
	for name, tc := range map[string]struct {
		resets int
		after  time.Duration
	}{"many times": {20, 0}, "late": {1, 4 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			rdmatest.BesideOthers(t)
			w := byTCP()
			_, at, _ := w.serve(t)
			a, err := w.options().atDoor(testKey).Authenticate(t.Context(), w.provider, "tcp", moody(t, at, first(tc.resets), tc.after), func() {})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// After enough resets the client abandons an address.
func TestAuthenticatingInVain(t *testing.T) {
	OnHost(t)
	rdmatest.BesideOthers(t)
	w := byTCP()
	_, at, _ := w.serve(t)
	_, err := w.options().atDoor(testKey).Authenticate(t.Context(), w.provider, "tcp", moody(t, at, first(10*door.CrowdTries), 0), func() {})
	if !door.IsCrowded(err) {
		t.Errorf("got %v", err)
	}
}

// A client that the door has admitted also connects again for each queue pair: it is one of many at
// the listener every time.
func TestQueuePairsComeAgain(t *testing.T) {
	OnHost(t)
	rdmatest.BesideOthers(t)
	w := byTCP()
	root, at, _ := w.serve(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	// 0 is the door, 1 to 3 are attempts at the first queue pair, 4 and 5 at the second.
	there := moody(t, at, func(i int) bool { return i == 1 || i == 2 || i == 4 }, 0)
	o := *w.options()
	o.Transport, o.QPs = "tcp", 2
	sum, err := w.client().Push(t.Context(), []string{file}, Endpoint{Host: there.Addr().String(), Port: there.Port(), Key: testKey}, "/", o)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "file")); string(got) != "content" || sum.Link.QPs != 2 {
		t.Errorf("%q, %v, over %d queue pairs", got, err, sum.Link.QPs)
	}
}
