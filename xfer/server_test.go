package xfer

import (
	"context"
	"net/netip"
	"os"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
)

// All that sessions may register is within one bound, and comes back.
func TestRingsOfAllSessionsAreBounded(t *testing.T) {
	v := NewServer(ServerConfig{})
	var back []func()
	total, least := int64(0), MaxSlots
	for {
		slots, giveBack := v.takeRing(MaxQPs, MaxSlots, 4<<20)
		if slots == 0 {
			break
		}
		least, total = min(least, slots), total+ringBytes(MaxQPs, slots, 4<<20)
		back = append(back, giveBack)
	}
	if total != v.ringBytes || total > MaxServerRingBytes || total < MaxServerRingBytes-ringBytes(MaxQPs, 1, 4<<20) || least == MaxSlots {
		t.Errorf("%d sessions take %d bytes, booked are %d; the last had %d slots", len(back), total, v.ringBytes, least)
	}
	for _, f := range back {
		f()
	}
	if v.ringBytes != 0 {
		t.Errorf("%d bytes did not come back", v.ringBytes)
	}
}

// A server with one place left serves whoever asks it first where it can be
// reached.
func TestQuestionTakesNoPlace(t *testing.T) {
	dir, err := os.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	v := NewServer(ServerConfig{Root: dir, MaxSessions: 1, Timeouts: shortTimeouts()})
	at, err := v.Listen(tcp.New(), netip.MustParseAddrPort("127.0.0.1:0"), rdma.Device{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- v.Serve(ctx) }()
	defer func() {
		cancel()
		<-done
	}()
	o := Options{Transport: "tcp", Timeouts: shortTimeouts()}
	o.complete()
	c := Client{TCP: tcp.New()}
	for range 20 {
		_, _, err := c.askRails(ctx, []netip.AddrPort{at}, &o)
		if err != nil {
			t.Fatal(err)
		}
		d, err := c.dialTCP(ctx, []netip.AddrPort{at}, &o, "")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.conn.Close(); err != nil {
			t.Error(err)
		}
		if err := d.rail.Close(); err != nil {
			t.Error(err)
		}
		for taken := 1; taken > 0; { // the server notices that it is gone
			v.mu.Lock()
			taken = v.load.Sessions
			v.mu.Unlock()
			time.Sleep(time.Millisecond)
		}
	}
}
