package wire

import (
	"errors"
	"reflect"
	"testing"
)

func sampleHeader(extents int) ChunkHeader {
	h := ChunkHeader{Session: 5, Link: 1, Slot: 3, Generation: 1 << 40, ID: 77, Codec: CodecS2, StoredBytes: 100, PlainBytes: 1000}
	for i := range extents {
		x := Extent{Entry: uint64(i), Off: int64(i) << 20, Length: 10, SlotOff: uint32(i), Flags: ExtLast}
		x.Digest[0] = byte(i)
		h.Extents = append(h.Extents, x)
	}
	return h
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, MaxExtents} {
		want := sampleHeader(n)
		b := make([]byte, HeaderStride)
		k := want.Encode(b)
		got := ChunkHeader{Extents: []Extent{}}
		if err := got.Decode(b[:k], 1<<20); err != nil {
			t.Fatal(err)
		}
		if want.Extents == nil {
			want.Extents = []Extent{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d extents: got %+v", n, got)
		}
	}
}

// reseal writes the correct checksum to a header that was changed on purpose.
func reseal(b []byte) []byte {
	PutSum(b[HopBytes:])
	return b
}

func TestHeaderOutOfRange(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(h *ChunkHeader)
		raw    func(b []byte)
	}{
		{name: "codec", change: func(h *ChunkHeader) { h.Codec = 9 }},
		{name: "stored beyond the slot", change: func(h *ChunkHeader) { h.StoredBytes = 2 << 20 }},
		{name: "plain beyond the slot", change: func(h *ChunkHeader) { h.PlainBytes = 2 << 20 }},
		{name: "plain codec of two lengths", change: func(h *ChunkHeader) { h.Codec = CodecPlain }},
		{name: "extent beyond the payload", change: func(h *ChunkHeader) { h.Extents[1].SlotOff = 995 }},
		{name: "extent offset wraps", change: func(h *ChunkHeader) { h.Extents[1].SlotOff = 0xffffffff }},
		{name: "negative offset", change: func(h *ChunkHeader) { h.Extents[1].Off = -1 }},
		{name: "negative length", change: func(h *ChunkHeader) { h.Extents[1].Length = -1 }},
		{name: "huge hole", change: func(h *ChunkHeader) { h.Extents[1].Flags = ExtHole; h.Extents[1].Length = 1<<63 - 1 }},
		{name: "the end wraps", change: func(h *ChunkHeader) {
			h.Extents[1].Flags, h.Extents[1].Off, h.Extents[1].Length = ExtHole, MaxFileBytes, MaxFileBytes
		}},
		{name: "the end beyond any file", change: func(h *ChunkHeader) {
			h.Extents[1].Flags, h.Extents[1].Off, h.Extents[1].Length = ExtHole, MaxFileBytes, 1
		}},
		{name: "unknown flag", change: func(h *ChunkHeader) { h.Extents[1].Flags = 1 << 15 }},
		{name: "count beyond the length", raw: func(b []byte) { b[HopBytes+10]++ }},
		{name: "unknown chunk flag", raw: func(b []byte) { b[HopBytes+9] = 2 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := sampleHeader(2)
			if tc.change != nil {
				tc.change(&h)
			}
			b := make([]byte, HeaderStride)
			n := h.Encode(b)
			b = b[:n]
			if tc.raw != nil {
				tc.raw(b)
				b = reseal(b)
			}
			var got ChunkHeader
			if err := got.Decode(b, 1<<20); !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestHeaderDamagedAnywhere(t *testing.T) {
	h := sampleHeader(3)
	b := make([]byte, HeaderStride)
	n := h.Encode(b)
	for i := HopBytes; i < n; i++ {
		b[i] ^= 4
		var got ChunkHeader
		if err := got.Decode(b[:n], 1<<20); err == nil {
			t.Errorf("byte %d damaged and not noticed", i)
		}
		b[i] ^= 4
	}
	for i := range n {
		var got ChunkHeader
		if err := got.Decode(b[:i], 1<<20); err == nil {
			t.Errorf("cut at %d and not noticed", i)
		}
	}
}

func TestHeaderDoesNotAllocate(t *testing.T) {
	h := sampleHeader(MaxExtents)
	b := make([]byte, HeaderStride)
	got := ChunkHeader{Extents: make([]Extent, 0, MaxExtents)}
	allocs := testing.AllocsPerRun(100, func() {
		if err := got.Decode(b[:h.Encode(b)], 1<<20); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestImmediate(t *testing.T) {
	for _, slot := range []int{0, 1, MaxImmediateSlots - 1} {
		for _, gen := range []uint64{1, ImmGenMask, ImmGenMask + 1, 1 << 40} {
			s, g := SplitImmediate(Immediate(slot, gen))
			if s != slot || uint64(g) != gen&ImmGenMask {
				t.Errorf("slot %d generation %d: got %d, %d", slot, gen, s, g)
			}
		}
	}
}
