package soak

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// proxy forwards bytes between a client and a server, and disturbs them like a bad
// network.
type proxy struct {
	listener net.Listener
	server   atomic.Value // of string: an address
	// stalled means that bytes are read and not forwarded. flips is how many bytes are
	// still to be changed.
	stalled atomic.Bool
	flips   atomic.Int64
	// passed counts the forwarded bytes.
	passed atomic.Int64

	mu     sync.Mutex
	rng    *rand.Rand
	conns  []net.Conn
	closed bool
	wg     sync.WaitGroup
}

// between starts a proxy, which ends with the test.
func between(t *testing.T, server string, rng *rand.Rand) *proxy {
	t.Helper()
	x := &proxy{rng: rng}
	x.server.Store(server)
	var err error
	x.listener, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	x.wg.Go(x.accept)
	t.Cleanup(func() {
		x.listener.Close()
		x.mu.Lock()
		x.closed = true
		x.mu.Unlock()
		x.cut()
		x.wg.Wait()
	})
	return x
}

func (x *proxy) addr() string { return x.listener.Addr().String() }

// cut ends all connections.
func (x *proxy) cut() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, c := range x.conns {
		c.Close()
	}
}

func (x *proxy) accept() {
	for {
		client, err := x.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", x.server.Load().(string))
		if err != nil {
			client.Close()
			continue
		}
		x.mu.Lock()
		if x.closed {
			client.Close()
			server.Close()
		}
		x.conns = append(x.conns, client, server)
		x.mu.Unlock()
		x.wg.Go(func() { x.pass(server, client) })
		x.wg.Go(func() { x.pass(client, server) })
	}
}

// pass forwards one direction. The end of either connection ends both.
func (x *proxy) pass(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if x.stalled.Load() {
			continue
		}
		if x.flips.Add(-1) >= 0 {
			x.mu.Lock()
			b[x.rng.IntN(n)] ^= 1 << x.rng.IntN(8)
			x.mu.Unlock()
		}
		if _, err := to.Write(b[:n]); err != nil {
			return
		}
		x.passed.Add(int64(n))
	}
}
