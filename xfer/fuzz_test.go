package xfer

import (
	"testing"
)

func FuzzHeader(f *testing.F) {
	for _, n := range []int{0, 1, 3} {
		h := sampleHeader(n)
		b := make([]byte, headerStride)
		f.Add(b[:h.encode(b)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// With its checksum made right, so that the fields behind it are reached.
		if len(b) >= hopBytes+chunkBytes0+sumBytes {
			b = append([]byte(nil), b...)
			n := len(b) - hopBytes
			b[4], b[5], b[6], b[7] = byte(n), byte(n>>8), byte(n>>16), 0
			putSum(b[hopBytes:])
		}
		var h chunkHeader
		if err := h.decode(b, 1<<20); err != nil {
			return
		}
		for _, x := range h.extents {
			if x.flags&extHole == 0 && int64(x.slotOff)+x.length > int64(h.plainBytes) {
				t.Fatalf("extent %+v of a payload of %d", x, h.plainBytes)
			}
		}
		again := make([]byte, headerStride)
		var h2 chunkHeader
		if err := h2.decode(again[:h.encode(again)], 1<<20); err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
	})
}

func FuzzHello(f *testing.F) {
	h := sampleHello()
	f.Add(h.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := decodeHello(b)
		if err != nil {
			return
		}
		_ = h.check(&params{slots: 1, qps: 1, chunkBytes: 1 << 20})
		if _, err := decodeHello(h.encode()); err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
	})
}

func FuzzEntries(f *testing.F) {
	var scratch tlvWriter
	e := planned{sparse: true, allocBytes: 1}
	e.Type, e.Path, e.Size = 'f', "a/b", 100
	f.Add(appendEntry([]byte{0}, &e, &scratch))
	e.owners = owners{hasUID: true, hasGID: true, uid: 1, gid: 2, user: "u", group: "g"}
	e.names = fileNames{several: true, first: 3, left: 4}
	f.Add(appendEntry([]byte{0}, &e, &scratch))
	d := planned{elsewhere: true}
	d.Type, d.Path = 'd', "d"
	f.Add(appendEntry([]byte{0}, &d, &scratch))
	s := streamEntry("s", 1)
	f.Add(appendEntry([]byte{0}, &s, &scratch))
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = decodeEntries(b, func(_ uint64, e *planned) error {
			if e.Size < 0 || e.allocBytes < 0 || e.allocBytes > e.Size || e.Path == "" || e.Path[0] == '/' {
				t.Fatalf("entry %+v", e)
			}
			if len(e.user) > maxAccountNameBytes || len(e.group) > maxAccountNameBytes || e.names.several && e.Type != 'f' {
				t.Fatalf("entry %+v", e)
			}
			return nil
		})
	})
}

// FuzzMessages runs every other decoder of control messages.
func FuzzMessages(f *testing.F) {
	f.Add([]byte{1, 2, 3})
	f.Add(appendReturned(nil, &returned{slot: 1, generation: 2, bad: []uint16{3}}))
	f.Add(appendException([]byte{9}, &exception{entry: 1, outcome: Failed, text: "x"}))
	f.Add((&roots{entries: 1}).encode())
	f.Add((&ringInfo{slots: 1, slotBytes: 4096}).encode())
	f.Add((&Memory{GPU: 1, Name: "x", Rung: RungStaged, Why: "y"}).encode())
	f.Add((&totals{entries: 1, final: true}).encode())
	f.Add((&preamble{qps: 1, slots: 1, chunkKiB: 1}).encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = parseFrame(append([]byte(nil), b...))
		if len(b) >= frameBytes {
			framed := append([]byte(nil), b...)
			putFrame(framed, msgType(b[0]), 1, 1)
			if f, err := parseFrame(framed); err == nil && len(f.body) != len(b)-frameBytes {
				t.Fatalf("frame %+v of %d bytes", f, len(b))
			}
		}
		_, _ = decodePreamble(b)
		_, _, _ = decodeRail(b)
		_, _ = decodeRefusal(b)
		if terms, err := decodeTerms(b); err == nil && (terms.slots > MaxSlots || terms.qps > MaxQPs) {
			t.Fatalf("terms %+v", terms)
		}
		_, _ = decodeTotals(b)
		_, _ = decodeRoots(b)
		_, _ = decodeAbort(b)
		if m, err := decodeMemory(b); err == nil && (m.GPU < -1 || m.GPU >= MaxGPUs) {
			t.Fatalf("memory %+v", m)
		}
		if r, err := decodeRing(b, 1, 4096); err == nil && r.payloadAddr+4096 < r.payloadAddr {
			t.Fatalf("ring %+v", r)
		}
		_ = decodeCredit(b, nil, func(r *returned) error {
			if r.slot >= maxSlots || len(r.bad) > maxExtents {
				t.Fatalf("returned %+v", r)
			}
			return nil
		})
		if _, xs, err := decodeResult(b); err == nil {
			for _, x := range xs {
				if x.outcome == Copied || x.outcome > Kept {
					t.Fatalf("exception %+v", x)
				}
			}
		}
	})
}

func FuzzUnpack(f *testing.F) {
	f.Add(uint8(codecS2), []byte("\x05\x10hello"))
	f.Add(uint8(codecZstd), []byte("\x28\xb5\x2f\xfd\x04\x00\x29\x00\x00hello"))
	f.Fuzz(func(t *testing.T, codec uint8, b []byte) {
		const chunkBytes = 1 << 16
		if len(b) > chunkBytes {
			return
		}
		var u unpacker
		defer u.close()
		for _, n := range []uint32{0, 5, chunkBytes} {
			if out, err := u.unpack(Codec(codec%3), b, n, chunkBytes); err == nil && len(out) > chunkBytes {
				t.Fatalf("%d bytes", len(out))
			}
		}
	})
}
