package xfer

import (
	"context"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
)

// newStranger is one from an address. Its context ends when it has lost its place.
func newStranger(s *strangers, from string) (ctx context.Context, st *stranger) {
	return s.admit(context.Background(), netip.MustParseAddr(from))
}

// However many come from one place, there are no more than the bound, and who
// comes from another place or has sent what a key made keeps its place.
func TestWhoMakesRoom(t *testing.T) {
	OnHost(t)
	var s strangers
	other, _ := newStranger(&s, "192.0.2.1")
	subnet, _ := newStranger(&s, "2001:db8:1::1")
	keyed, keyedStranger := newStranger(&s, "198.51.100.1")
	s.showed(keyedStranger)
	type door struct {
		ctx context.Context
		st  *stranger
	}
	var doors []door
	for i := range 20 * maxStrangers {
		from := "198.51.100.1"
		if i%5 == 0 {
			from = "2001:db8:2::1"
		}
		ctx, st := newStranger(&s, from)
		if st == nil {
			t.Fatal("turned away while no door is being closed")
		}
		doors = append(doors, door{ctx, st})
		doors = slices.DeleteFunc(doors, func(d door) bool {
			if d.ctx.Err() == nil {
				return false
			}
			s.settle(d.st) // its door has closed
			return true
		})
		if len(s.here) > maxStrangers {
			t.Fatalf("%d strangers", len(s.here))
		}
	}
	for name, ctx := range map[string]context.Context{"of another address": other, "of another subnet": subnet, "with a key": keyed} {
		if ctx.Err() != nil {
			t.Errorf("the one %s lost its place", name)
		}
	}
}

// Where as many doors are being closed as may be, one more is turned away; when
// they are closed there is room again.
func TestStrangersAreTurnedAway(t *testing.T) {
	OnHost(t)
	var s strangers
	var here []*stranger
	for range maxStrangers + maxLeaving {
		_, st := newStranger(&s, "192.0.2.1")
		if st == nil {
			t.Fatalf("turned away after %d", len(here))
		}
		here = append(here, st)
	}
	if _, st := newStranger(&s, "192.0.2.1"); st != nil {
		t.Fatal("one more was let in")
	}
	if !s.crowded() {
		t.Error("there is room for words")
	}
	for _, st := range here {
		s.settle(st)
		s.settle(st) // counts once
	}
	if s.leaving != 0 || len(s.here) != 0 || s.crowded() {
		t.Errorf("%d are left, and %d leave", len(s.here), s.leaving)
	}
	if _, st := newStranger(&s, "192.0.2.1"); st == nil {
		t.Error("there is no room again")
	}
}

// settledGoroutines counts them when their number has not changed for a while.
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

// What strangers cost is given back when they are gone, to the last goroutine.
func TestStrangersLeaveNothing(t *testing.T) {
	OnHost(t)
	_, addr, _ := hostileServer(t)
	// The server runs when it has taken one who knocks, and been left by him.
	c := knocking(t, byTCP(), addr, testKey, doorOpening(1))
	if err := c.proves(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := c.close(); err != nil {
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
	if most > 3*maxStrangers {
		t.Errorf("%d goroutines for %d strangers", most, len(socks))
	}
	for end := time.Now().Add(rdmatest.Stretch(strangerWait)); runtime.NumGoroutine() > before; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d goroutines are left of %d strangers", runtime.NumGoroutine()-before, len(socks))
		}
	}
}
