package program

import (
	wire "encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"gdrcp/rdma/rdmatest"
)

// tamperer is a proxy between a client and a server that knows where a frame of the TCP
// provider begins and ends, and manipulates one of them like an attacker.
type tamperer struct {
	listener net.Listener
	server   string
	// tamper returns what to forward instead of frame number n of that direction,
	// counted over all connections. rest reads what follows.
	tamper func(to towards, n int64, frame []byte, rest func() []byte) []byte
	frames [2]atomic.Int64

	mu    sync.Mutex
	conns []net.Conn
	wg    sync.WaitGroup
}

// between starts a tamperer, which ends with the test.
func between(t *testing.T, server string, tamper func(to towards, n int64, frame []byte, rest func() []byte) []byte) *tamperer {
	t.Helper()
	x := &tamperer{server: server, tamper: tamper}
	var err error
	x.listener, err = net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	x.wg.Go(x.accept)
	t.Cleanup(func() {
		x.listener.Close()
		x.mu.Lock()
		for _, c := range x.conns {
			c.Close()
		}
		x.mu.Unlock()
		x.wg.Wait()
	})
	return x
}

func (x *tamperer) accept() {
	for {
		client, err := x.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", x.server)
		if err != nil {
			client.Close()
			continue
		}
		x.mu.Lock()
		x.conns = append(x.conns, client, server)
		x.mu.Unlock()
		x.wg.Go(func() { x.pass(toServer, client, server, 64) })
		x.wg.Go(func() { x.pass(toClient, server, client, 16) })
	}
}

// pass forwards one direction, frame by frame after the preface or its answer.
func (x *tamperer) pass(to towards, from, into net.Conn, prefaceBytes int) {
	defer into.Close()
	defer from.Close()
	if _, err := io.CopyN(into, from, int64(prefaceBytes)); err != nil {
		return
	}
	read := func() []byte {
		b := make([]byte, 32)
		if _, err := io.ReadFull(from, b); err != nil {
			return nil
		}
		if b[0] != 5 { // a read request has a length but no payload
			b = append(b, make([]byte, wire.LittleEndian.Uint32(b[4:]))...)
		}
		if _, err := io.ReadFull(from, b[32:]); err != nil {
			return nil
		}
		return b
	}
	for {
		frame := read()
		if frame == nil {
			return
		}
		n := x.frames[to].Add(1) - 1
		if x.tamper != nil {
			frame = x.tamper(to, n, frame, read)
		}
		if _, err := into.Write(frame); err != nil {
			return
		}
	}
}

// tampered copies through x.
func (c *cutCase) tampered(t *testing.T, x *tamperer, options ...string) *process {
	t.Helper()
	return c.copyVia(t, x.listener.Addr().String(), 2*bounded(), options...)
}

// TestTamper drops, repeats, swaps, truncates and changes frames, one in each copy: the
// copy fails or has the right bytes.
func TestTamper(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t) // in some cases both peers wait
	type manner struct {
		name string
		do   func(frame []byte, rest func() []byte) []byte
	}
	change := func(at int) func([]byte, func() []byte) []byte {
		return func(frame []byte, _ func() []byte) []byte {
			if at < len(frame) {
				frame[at] ^= 1
			}
			return frame
		}
	}
	manners := []manner{
		{"dropped", func([]byte, func() []byte) []byte { return nil }},
		{"repeated", func(f []byte, _ func() []byte) []byte { return append(append([]byte{}, f...), f...) }},
		{"exchanged with the next", func(f []byte, rest func() []byte) []byte { return append(rest(), f...) }},
		{"cut", func(f []byte, _ func() []byte) []byte { return f[:len(f)/2] }},
		{"cut to its header", func(f []byte, _ func() []byte) []byte { return f[:32] }},
		{"of another opcode", change(0)},
		{"of another length", change(4)},
		{"of another immediate", change(8)},
		{"to another key", change(12)},
		{"to another address", change(16)},
		{"with another first byte", change(32)},
		{"with another byte", change(32 + 20)},
	}
	runs := 1
	if full() {
		runs = 24
	}
	bothWays(t, func(t *testing.T, d direction) {
		c := newCutCase(t, d)
		plain := between(t, c.sides.addr(), nil)
		c.tampered(t, plain).wantCode(0)
		counts := [2]int64{plain.frames[toServer].Load(), plain.frames[toClient].Load()}
		each(t, len(manners)*2*runs, func(i int) string {
			return fmt.Sprintf("%s, %d, %d", manners[i%len(manners)].name, i/len(manners)%2, i/len(manners)/2)
		}, func(t *testing.T, i int) {
			m, to := manners[i%len(manners)], towards(i/len(manners)%2)
			r := rand.New(rand.NewPCG(uint64(i), 3))
			at := r.Int64N(counts[to])
			did := atomic.Bool{}
			x := between(t, c.sides.addr(), func(of towards, n int64, frame []byte, rest func() []byte) []byte {
				if of != to || n != at {
					return frame
				}
				did.Store(true)
				return m.do(frame, rest)
			})
			// Both ends wait for a dropped frame, and each receives heartbeats from the
			// other.
			options := []string{"--timeout", "4"}
			if i%2 == 1 {
				options = append(options, "--encrypt")
			}
			p := c.tampered(t, x, options...)
			t.Logf("frame %d of %d, %v: exit code %d in %.1f s: %s", at, counts[to], did.Load(), p.cmd.ProcessState.ExitCode(), p.took.Seconds(), strings.TrimSpace(p.stderr.String()))
		})
		c.end(t)
	})
}
