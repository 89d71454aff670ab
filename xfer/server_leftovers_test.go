package xfer

import (
	"net"
	"runtime"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/door"
)

// settledGoroutines counts the goroutines when their number has not changed for a while.
func settledGoroutines() int {
	n, same := runtime.NumGoroutine(), 0
	for same < 20 {
		time.Sleep(10 * time.Millisecond)
		if now := runtime.NumGoroutine(); now == n {
			same++
		} else {
			n, same = now, 0
		}
	}
	return n
}

// The cost of unauthenticated clients is given back when they are gone, to the last goroutine.
func TestUnauthenticatedLeaveNothing(t *testing.T) {
	OnHost(t)
	_, addr, _ := hostileServer(t)
	// The server runs when it has accepted a client's proof, and the client has left.
	c := atDoor(t, byTCP(), addr, testKey, doorOpening(1))
	if err := c.proves(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	before := settledGoroutines()
	socks := make([]net.Conn, 600)
	for i := range socks {
		var err error
		if socks[i], err = net.Dial("tcp", addr.String()); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			_, _ = socks[i].Write([]byte("gdrcp\r\n\x00")) // the server may have hung up
		}
	}
	most := runtime.NumGoroutine() - before
	for _, sock := range socks {
		sock.Close()
	}
	if most > 3*door.MaxUnauthenticated {
		t.Errorf("%d goroutines for %d connections", most, len(socks))
	}
	for end := time.Now().Add(rdmatest.Stretch(door.ProofWait)); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left of %d connections", runtime.NumGoroutine()-before, len(socks))
		}
	}
}
