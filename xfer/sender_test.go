package xfer

import (
	"errors"
	"slices"
	"testing"

	"gdrcp/internal/numa"
	"gdrcp/internal/numa/numatest"
	"gdrcp/xfer/internal/wire"
)

// A sink's ring may have fewer slots than were agreed, and a source uses those.
func TestRingOfFewerSlots(t *testing.T) {
	for slots, ok := range map[uint32]bool{0: false, 1: true, 7: true, 8: true, 9: false, 1 << 31: false, 1<<32 - 1: false} {
		info := wire.RingInfo{Link: 1, Slots: slots, SlotBytes: 1 << 20, PayloadAddr: 1 << 20, HeaderAddr: 1 << 30}
		got, err := wire.DecodeRing(info.Encode(), 8, 1<<20)
		if (err == nil) != ok || !ok && !errors.Is(err, ErrProtocol) {
			t.Fatalf("%d slots of 8: %v", slots, err)
		}
		if !ok {
			continue
		}
		o := newChunkSender(&session{linkSession: &linkSession{}, terms: wire.Terms{Slots: 8, ChunkBytes: 1 << 20}})
		if err := o.open(&railLink{number: 1}, got); err != nil {
			t.Fatal(err)
		}
		if o.granted.Grants() != int(slots) {
			t.Errorf("%d slots are granted of %d", o.granted.Grants(), slots)
		}
		if err := o.returnedLocked(&wire.ReturnedSlot{Slot: slots, Generation: 1}); !errors.Is(err, ErrProtocol) {
			t.Errorf("slot %d of %d comes back: %v", slots, slots, err)
		}
	}
}

// A ring that has grown comes again over each link, the first one last, which grants the slots.
// A link over which it does not come is one that is being lost.
func TestRingThatHasGrown(t *testing.T) {
	t.Parallel()
	ring := func(link, slots uint32) wire.RingInfo {
		return wire.RingInfo{Link: link, Slots: slots, SlotBytes: 1 << 20, PayloadKey: slots}
	}
	first, second, third, late := &railLink{number: 1}, &railLink{number: 2, ready: true}, &railLink{number: 3, ready: true}, &railLink{number: 4}
	of := &session{linkSession: &linkSession{}, terms: wire.Terms{Slots: 4, ChunkBytes: 1 << 20}}
	o := newChunkSender(of)
	of.growth.bound = 8
	for i, c := range []struct {
		link    *railLink
		slots   uint32
		ok      bool
		granted int
		links   []*railLink
	}{
		{second, 4, false, 0, nil}, // ahead of the first
		{first, 5, false, 0, nil},  // more than were agreed to begin with
		{first, 4, true, 4, []*railLink{first}},
		{first, 4, false, 4, []*railLink{first}},
		{second, 3, false, 4, []*railLink{first}},
		{second, 4, true, 4, []*railLink{first, second}},
		{third, 4, true, 4, []*railLink{first, second, third}},
		{late, 4, true, 4, []*railLink{first, second, third}},
		{second, 8, true, 4, []*railLink{first, second, third}},
		{first, 8, true, 8, []*railLink{first, second}},
		{third, 7, false, 8, []*railLink{first, second}},
		{first, 6, false, 8, []*railLink{first, second}},
	} {
		err := o.open(c.link, ring(uint32(c.link.number), c.slots))
		if (err == nil) != c.ok || !c.ok && !errors.Is(err, ErrProtocol) {
			t.Errorf("step %d: %v", i, err)
		}
		if o.granted.Grants() != c.granted || o.granted.Slots() != c.granted || !slices.Equal(o.links, c.links) {
			t.Errorf("step %d: %d granted, %d links", i, o.granted.Grants(), len(o.links))
		}
	}
	if o.linkReady(late); !slices.Equal(o.links, []*railLink{first, second}) {
		t.Errorf("chunks go over a link on which the sink has too few slots: %d links", len(o.links))
	}
	of.growth.bound = 0
	if err := o.open(first, ring(1, 9)); !errors.Is(err, ErrProtocol) {
		t.Errorf("a ring that was not to grow has grown: %v", err)
	}
	if len(o.posted) != 8 || first.target.PayloadKey != 8 || second.target.PayloadKey != 8 {
		t.Errorf("%d chunks may be posted; rings %+v, %+v", len(o.posted), first.target, second.target)
	}
}

// A chunk goes over an RDMA device that is heard, else over TCP in reserve that is heard,
// and over a silent rail only where all are silent. The load decides between equals only.
func TestWhichLinkGetsAChunk(t *testing.T) {
	t.Parallel()
	type one struct{ reserve, silent bool }
	nic, tcp, silentNIC, silentTCP := one{}, one{reserve: true}, one{silent: true}, one{true, true}
	for _, tc := range []struct {
		links []one // each with more under way than the one before
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
		o := &chunkSender{}
		for i, c := range tc.links {
			l := &railLink{rate: 1, isReserve: c.reserve}
			l.suspected.Store(c.silent)
			l.lanes = []*lane{{link: l, outBytes: int64(1+i) << 20}}
			o.links = append(o.links, l)
		}
		for turn := range len(o.links) {
			if got := o.laneLocked(nil); got != o.links[tc.want].lanes[0] {
				t.Errorf("%+v, turn %d: want link %d", tc.links, turn, tc.want)
			}
		}
	}
}

// A link that is closed and not yet lost gets no chunk, however good it is.
func TestLinkWithoutLanesGetsNoChunk(t *testing.T) {
	t.Parallel()
	closed, other := &railLink{rate: 1}, &railLink{rate: 1, isReserve: true}
	other.lanes = []*lane{{link: other}}
	o := &chunkSender{links: []*railLink{closed, other}}
	for range o.links {
		if o.laneLocked(nil) != other.lanes[0] {
			t.Error("no lane is found, and one is there")
		}
	}
}

// Of lanes, one near to the slot goes first, until it has much more under way.
func TestNearLaneGoesFirst(t *testing.T) {
	t.Parallel()
	sysfs := numatest.Sysfs(t, 2)
	nodes := []*numa.Node{numa.Of(sysfs, 0), numa.Of(sysfs, 1)}
	o := &chunkSender{}
	for i := range 4 {
		l := &railLink{rate: 400, node: nodes[i%2], target: wire.RingInfo{SlotBytes: 1 << 20}}
		l.lanes = []*lane{{link: l}}
		o.links = append(o.links, l)
	}
	var got [2]int
	for range 32 {
		l := o.laneLocked(nodes[1])
		l.outBytes += 1 << 20
		got[slices.Index(nodes, l.link.node)]++
	}
	// Each near lane has farChunks more than a far one.
	if want := [2]int{12, 20}; got != want {
		t.Errorf("chunks over lanes of each node: %v, want %v", got, want)
	}
	var evenly [2]int
	for range 8 {
		l := o.laneLocked(nil)
		l.outBytes += 1 << 20
		evenly[slices.Index(nodes, l.link.node)]++
	}
	if want := [2]int{8, 0}; evenly != want {
		t.Errorf("of a ring that is not spread: %v, want %v, which have the least", evenly, want)
	}
}
