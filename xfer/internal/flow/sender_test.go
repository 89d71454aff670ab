package flow

import (
	"errors"
	"slices"
	"testing"

	"gdrcp/internal/numa"
	"gdrcp/internal/numa/numatest"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// If a sink's ring has fewer slots than were agreed, the source uses only those.
func TestRingOfFewerSlots(t *testing.T) {
	for slots, ok := range map[uint32]bool{0: false, 1: true, 7: true, 8: true, 9: false, 1 << 31: false, 1<<32 - 1: false} {
		info := wire.RingInfo{Link: 1, Slots: slots, SlotBytes: 1 << 20, PayloadAddr: 1 << 20, HeaderAddr: 1 << 30}
		got, err := wire.DecodeRing(info.Encode(), 8, 1<<20)
		if (err == nil) != ok || !ok && !errors.Is(err, fault.ErrProtocol) {
			t.Fatalf("%d slots of 8: %v", slots, err)
		}
		if !ok {
			continue
		}
		o := NewSender(&Session{Session: &link.Session{}, Terms: wire.Terms{Slots: 8, ChunkBytes: 1 << 20}}, func(*struct{}) {})
		if err := o.Open(&link.Link{Number: 1}, got); err != nil {
			t.Fatal(err)
		}
		if o.Granted.Grants() != int(slots) {
			t.Errorf("%d slots are granted of %d", o.Granted.Grants(), slots)
		}
		if err := o.returnedLocked(&wire.ReturnedSlot{Slot: slots, Generation: 1}); !errors.Is(err, fault.ErrProtocol) {
			t.Errorf("slot %d of %d comes back: %v", slots, slots, err)
		}
	}
}

// A ring is announced once over each link, over the first one first, with the same number of slots
// over all.
func TestRingOverEachLink(t *testing.T) {
	t.Parallel()
	first, second, third := &link.Link{Number: 1}, &link.Link{Number: 2, Ready: true}, &link.Link{Number: 3, Ready: true}
	o := NewSender(&Session{Session: &link.Session{}, Terms: wire.Terms{Slots: 4, ChunkBytes: 1 << 20}}, func(*struct{}) {})
	for i, c := range []struct {
		link  *link.Link
		slots uint32
		ok    bool
		links []*link.Link
	}{
		{second, 3, false, nil}, // ahead of the first
		{first, 5, false, nil},  // more than were agreed
		{first, 3, true, []*link.Link{first}},
		{first, 3, false, []*link.Link{first}}, // again
		{first, 4, false, []*link.Link{first}},
		{second, 2, false, []*link.Link{first}},
		{second, 4, false, []*link.Link{first}},
		{second, 3, true, []*link.Link{first, second}},
		{third, 3, true, []*link.Link{first, second, third}},
	} {
		err := o.Open(c.link, wire.RingInfo{Link: uint32(c.link.Number), Slots: c.slots, SlotBytes: 1 << 20})
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, fault.ErrProtocol) {
			t.Errorf("step %d: %v", i, err)
		}
		if n := min(3, 3*len(c.links)); o.Granted.Grants() != n || o.Granted.Slots() != n || !slices.Equal(o.links, c.links) {
			t.Errorf("step %d: %d granted, %d links", i, o.Granted.Grants(), len(o.links))
		}
	}
}

// A chunk goes over an RDMA device that receives, else over TCP in reserve that receives, and over
// a silent rail only if all are silent. The load decides only between equals.
func TestWhichLinkGetsAChunk(t *testing.T) {
	t.Parallel()
	type one struct{ reserve, silent bool }
	nic, tcp, silentNIC, silentTCP := one{}, one{reserve: true}, one{silent: true}, one{true, true}
	for _, tc := range []struct {
		links []one // each with more in flight than the one before
		want  int
	}{
		{[]one{nic, nic}, 0},
		{[]one{silentNIC, nic}, 1},
		{[]one{tcp, nic}, 1},
		{[]one{silentTCP, tcp, silentNIC, nic}, 3},
		{[]one{silentNIC, tcp}, 1},
		{[]one{silentNIC, silentNIC, tcp}, 2},
		{[]one{silentTCP, silentNIC, tcp}, 2},
		{[]one{silentTCP, nic}, 1},
		{[]one{silentNIC, silentTCP}, 0},
		{[]one{silentTCP, silentNIC}, 0},
	} {
		o := &Sender[struct{}]{}
		for i, c := range tc.links {
			l := &link.Link{Rate: 1, IsReserve: c.reserve}
			l.Suspected.Store(c.silent)
			l.Lanes = []*link.Lane{{Link: l, OutBytes: int64(1+i) << 20}}
			o.links = append(o.links, l)
		}
		for turn := range len(o.links) {
			if got := o.laneLocked(nil); got != o.links[tc.want].Lanes[0] {
				t.Errorf("%+v, turn %d: want link %d", tc.links, turn, tc.want)
			}
		}
	}
}

// A link that is closed and not yet lost gets no chunk, however good it is.
func TestLinkWithoutLanesGetsNoChunk(t *testing.T) {
	t.Parallel()
	closed, other := &link.Link{Rate: 1}, &link.Link{Rate: 1, IsReserve: true}
	other.Lanes = []*link.Lane{{Link: other}}
	o := &Sender[struct{}]{links: []*link.Link{closed, other}}
	for range o.links {
		if o.laneLocked(nil) != other.Lanes[0] {
			t.Error("no lane is found, and one is there")
		}
	}
}

// A lane near to the slot is used first, until it has much more in flight than the others.
func TestNearLaneGoesFirst(t *testing.T) {
	t.Parallel()
	sysfs := numatest.Sysfs(t, 2)
	nodes := []*numa.Node{numa.Of(sysfs, 0), numa.Of(sysfs, 1)}
	o := &Sender[struct{}]{}
	for i := range 4 {
		l := &link.Link{Rate: 400, Node: nodes[i%2], Target: wire.RingInfo{SlotBytes: 1 << 20}}
		l.Lanes = []*link.Lane{{Link: l}}
		o.links = append(o.links, l)
	}
	var got [2]int
	for range 32 {
		l := o.laneLocked(nodes[1])
		l.OutBytes += 1 << 20
		got[slices.Index(nodes, l.Link.Node)]++
	}
	// Each near lane has farChunks more than a far one.
	if want := [2]int{12, 20}; got != want {
		t.Errorf("chunks over lanes of each node: %v, want %v", got, want)
	}
	var evenly [2]int
	for range 8 {
		l := o.laneLocked(nil)
		l.OutBytes += 1 << 20
		evenly[slices.Index(nodes, l.Link.Node)]++
	}
	if want := [2]int{8, 0}; evenly != want {
		t.Errorf("of a ring that is not spread: %v, want %v, which have the least", evenly, want)
	}
}
