package wire

import (
	"bytes"
	"reflect"
	"slices"
	"testing"

	"gdrcp/manifest"
)

func FuzzHeader(f *testing.F) {
	for _, n := range []int{0, 1, 3} {
		h := sampleHeader(n)
		b := make([]byte, HeaderStride)
		f.Add(b[:h.Encode(b)])
		if n > 0 {
			// The place in the payload of an extent without bytes is ignored.
			h.Extents[n-1].Flags, h.Extents[n-1].SlotOff = ExtArrived|ExtLast, 1<<30
			f.Add(b[:h.Encode(b)])
		}
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// With a corrected checksum, so that the fields after it are reached.
		if len(b) >= HopBytes+BareChunkBytes+SumBytes {
			b = append([]byte(nil), b...)
			n := len(b) - HopBytes
			b[4], b[5], b[6], b[7] = byte(n), byte(n>>8), byte(n>>16), 0
			PutSum(b[HopBytes:])
		}
		var h ChunkHeader
		if err := h.Decode(b, 1<<20); err != nil {
			return
		}
		for _, x := range h.Extents {
			if x.Brings() && int64(x.SlotOff)+x.Length > int64(h.PlainBytes) {
				t.Fatalf("extent %+v of a payload of %d", x, h.PlainBytes)
			}
		}
		again := make([]byte, HeaderStride)
		var h2 ChunkHeader
		if err := h2.Decode(again[:h.Encode(again)], 1<<20); err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
	})
}

func FuzzHello(f *testing.F) {
	h := sampleHello()
	f.Add(h.Encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHello(b)
		if err != nil {
			return
		}
		_ = h.Check(&Terms{Slots: 1, QPs: 1, ChunkBytes: 1 << 20})
		if _, err := DecodeHello(h.Encode()); err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
	})
}

func FuzzEntries(f *testing.F) {
	var scratch Writer
	e := AnnouncedEntry{Sparse: true, AllocBytes: 1}
	e.Type, e.Path, e.Size = 'f', "a/b", 100
	f.Add(AppendEntry([]byte{0}, &e, &scratch))
	e.Owners = Owners{HasUID: true, HasGID: true, UID: 1, GID: 2, User: "u", Group: "g"}
	e.Names = FileNames{Several: true, First: 3, Left: 4}
	f.Add(AppendEntry([]byte{0}, &e, &scratch))
	d := AnnouncedEntry{Elsewhere: true}
	d.Type, d.Path = 'd', "d"
	f.Add(AppendEntry([]byte{0}, &d, &scratch))
	s := AnnouncedEntry{Entry: manifest.Entry{Type: manifest.File, Path: "s", Size: StreamBytes, Mode: 0o666, MtimeNs: 1}, Stream: true}
	f.Add(AppendEntry([]byte{0}, &s, &scratch))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = DecodeEntries(b, func(_ uint64, e *AnnouncedEntry) error {
			if e.Size < 0 || e.AllocBytes < 0 || e.AllocBytes > e.Size || e.Path == "" || e.Path[0] == '/' {
				t.Fatalf("entry %+v", e)
			}
			if len(e.User) > MaxAccountNameBytes || len(e.Group) > MaxAccountNameBytes || e.Names.Several && e.Type != 'f' {
				t.Fatalf("entry %+v", e)
			}
			return nil
		})
	})
}

// FuzzMessages runs all other decoders of control messages.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add(AppendReturned(nil, &ReturnedSlot{Slot: 1, Generation: 2, Bad: []uint16{3}}))
	f.Add(AppendException([]byte{9}, &Exception{Entry: 1, Outcome: Failed, Text: "x"}))
	f.Add((&Roots{Entries: 1}).Encode())
	f.Add((&RingInfo{Link: 1, Slots: 8, SlotBytes: 4096, NearFrom: 4, NearSlots: 4}).Encode())
	f.Add((&RingInfo{Slots: 1, SlotBytes: 4096}).Encode())
	f.Add((&Memory{GPU: 1, Name: "x", Rung: RungStaged, Why: "y"}).Encode())
	f.Add((&Totals{Entries: 1, Final: true}).Encode())
	f.Add((&Cost{CPU: 1 << 40, Shared: true}).Encode())
	f.Add(DiskIO{Direct: 1 << 62, Buffered: 300}.Encode())
	f.Add((&LostLink{Link: 2, Slots: []ReturnedSlot{{Slot: 3, Generation: 1 << 20}}}).Encode())
	f.Add(AppendNamed((&Roots{Entries: 1}).Encode(), true))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, err := DecodeLostLink(b, 2); err == nil {
			if l.Link == 0 || l.Link > MaxLinks || len(l.Slots) > 2 || slices.ContainsFunc(l.Slots, func(r ReturnedSlot) bool { return r.Slot >= MaxImmediateSlots }) {
				t.Fatalf("lost link %+v", l)
			}
			if again, err := DecodeLostLink(l.Encode(), 2); err != nil || !reflect.DeepEqual(again, l) {
				t.Fatalf("lost link %+v decodes again as %+v, %v", l, again, err)
			}
		}
		if body, named, err := CutNamed(b); err == nil && !bytes.Equal(AppendNamed(bytes.Clone(body), named), b) {
			t.Fatalf("%x is %x and %t", b, body, named)
		}
		_, _ = ParseFrame(append([]byte(nil), b...))
		if len(b) >= FrameBytes {
			framed := append([]byte(nil), b...)
			PutFrame(framed, MsgType(b[0]), 1, 1)
			if f, err := ParseFrame(framed); err == nil && len(f.Body) != len(b)-FrameBytes {
				t.Fatalf("frame %+v of %d bytes", f, len(b))
			}
		}
		_, _ = DecodeTotals(b)
		_, _ = DecodeRoots(b)
		if d, err := DecodeDiskIO(b); err == nil && min(d.Direct, d.DontCache, d.Buffered) < 0 {
			t.Fatalf("disk I/O %+v", d)
		}
		_, _ = DecodeAbort(b)
		if m, err := DecodeMemory(b); err == nil && (m.GPU < -1 || m.GPU >= MaxGPUs) {
			t.Fatalf("memory %+v", m)
		}
		if c, err := DecodeCost(b); err == nil && (c.CPU < 0 || c.CPU > maxCost) {
			t.Fatalf("cost %+v", c)
		}
		if r, err := DecodeRing(b, 8, 4096); err == nil && (r.PayloadAddr+4096 < r.PayloadAddr || r.NearFrom > r.Slots || r.NearSlots > r.Slots-r.NearFrom) {
			t.Fatalf("ring %+v", r)
		}
		_ = DecodeCredit(b, nil, func(r *ReturnedSlot) error {
			if r.Slot >= MaxImmediateSlots || len(r.Bad) > MaxExtents {
				t.Fatalf("returned %+v", r)
			}
			return nil
		})
		if _, xs, err := DecodeResult(b); err == nil {
			for _, x := range xs {
				if x.Outcome == Copied || x.Outcome > Kept {
					t.Fatalf("exception %+v", x)
				}
			}
		}
	})
}
