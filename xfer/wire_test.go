package xfer

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/manifest"
	"gdrcp/rdma"
)

func sampleHello() hello {
	return hello{
		mode: modePull, chunkBytes: 4 << 20, pieceBytes: 1 << 20, hash: manifest.BLAKE3, slots: 16, qps: 3, codec: 2,
		flags: flagRecursive | flagMany, paths: []string{"a\n\xff", "/b"}, name: "b", gpu: uint64(gpuNamed), gpuName: "MIG-12ab",
		sizes: fileSizes{minBytes: 10, maxBytes: 1 << 63},
		into:  &intoPlace{mark: placeMark{1, 2, 31: 3}, leaf: "new"},
	}
}

func TestHelloRoundTrip(t *testing.T) {
	want := sampleHello()
	got, err := decodeHello(want.encode())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestHelloOfALaterVersion(t *testing.T) {
	h := sampleHello()
	var w tlvWriter
	w.b = h.encode()
	w.str(100, "may be ignored")
	if _, err := decodeHello(w.b); err != nil {
		t.Errorf("an optional field: %v", err)
	}
	w.uint(101|mustUnderstand, 1)
	if _, err := decodeHello(w.b); !errors.Is(err, ErrProtocol) {
		t.Errorf("a field that must be understood: %v", err)
	}
}

func TestHelloCutAnywhere(t *testing.T) {
	h := sampleHello()
	b := h.encode()
	for n := range b {
		// Cut between fields it is a shorter hello; anywhere else an error.
		if got, err := decodeHello(b[:n]); err == nil && !bytes.HasPrefix(b, b[:n]) {
			t.Errorf("%d bytes: %+v", n, got)
		}
	}
}

func sampleHeader(extents int) chunkHeader {
	h := chunkHeader{session: 5, epoch: 1, slot: 3, generation: 1 << 40, id: 77, codec: codecS2, storedBytes: 100, plainBytes: 1000}
	for i := range extents {
		x := extent{entry: uint64(i), off: int64(i) << 20, length: 10, slotOff: uint32(i), flags: extLast}
		x.digest[0] = byte(i)
		h.extents = append(h.extents, x)
	}
	return h
}

func TestHeaderRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, maxExtents} {
		want := sampleHeader(n)
		b := make([]byte, headerStride)
		k := want.encode(b)
		got := chunkHeader{extents: []extent{}}
		if err := got.decode(b[:k], 1<<20); err != nil {
			t.Fatal(err)
		}
		if want.extents == nil {
			want.extents = []extent{}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%d extents: got %+v", n, got)
		}
	}
}

// reseal puts the right checksum on a header that was changed on purpose.
func reseal(b []byte) []byte {
	putSum(b[hopBytes:])
	return b
}

func TestHeaderOutOfRange(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(h *chunkHeader)
		raw    func(b []byte)
	}{
		{name: "codec", change: func(h *chunkHeader) { h.codec = 9 }},
		{name: "stored beyond the slot", change: func(h *chunkHeader) { h.storedBytes = 2 << 20 }},
		{name: "plain beyond the slot", change: func(h *chunkHeader) { h.plainBytes = 2 << 20 }},
		{name: "plain codec of two lengths", change: func(h *chunkHeader) { h.codec = codecPlain }},
		{name: "extent beyond the payload", change: func(h *chunkHeader) { h.extents[1].slotOff = 995 }},
		{name: "extent offset wraps", change: func(h *chunkHeader) { h.extents[1].slotOff = 0xffffffff }},
		{name: "negative offset", change: func(h *chunkHeader) { h.extents[1].off = -1 }},
		{name: "negative length", change: func(h *chunkHeader) { h.extents[1].length = -1 }},
		{name: "huge hole", change: func(h *chunkHeader) { h.extents[1].flags = extHole; h.extents[1].length = 1<<63 - 1 }},
		{name: "unknown flag", change: func(h *chunkHeader) { h.extents[1].flags = 1 << 15 }},
		{name: "count beyond the length", raw: func(b []byte) { b[hopBytes+10]++ }},
		{name: "unknown chunk flag", raw: func(b []byte) { b[hopBytes+9] = 2 }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := sampleHeader(2)
			if tc.change != nil {
				tc.change(&h)
			}
			b := make([]byte, headerStride)
			n := h.encode(b)
			b = b[:n]
			if tc.raw != nil {
				tc.raw(b)
				b = reseal(b)
			}
			var got chunkHeader
			if err := got.decode(b, 1<<20); !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestHeaderDamagedAnywhere(t *testing.T) {
	h := sampleHeader(3)
	b := make([]byte, headerStride)
	n := h.encode(b)
	for i := hopBytes; i < n; i++ {
		b[i] ^= 4
		var got chunkHeader
		if err := got.decode(b[:n], 1<<20); err == nil {
			t.Errorf("byte %d damaged and not noticed", i)
		}
		b[i] ^= 4
	}
	for i := range n {
		var got chunkHeader
		if err := got.decode(b[:i], 1<<20); err == nil {
			t.Errorf("cut at %d and not noticed", i)
		}
	}
}

func TestHeaderDoesNotAllocate(t *testing.T) {
	h := sampleHeader(maxExtents)
	b := make([]byte, headerStride)
	got := chunkHeader{extents: make([]extent, 0, maxExtents)}
	allocs := testing.AllocsPerRun(100, func() {
		if err := got.decode(b[:h.encode(b)], 1<<20); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
}

func TestImmediate(t *testing.T) {
	for _, slot := range []int{0, 1, maxSlots - 1} {
		for _, gen := range []uint64{1, immGenMask, immGenMask + 1, 1 << 40} {
			s, g := splitImmediate(immediate(slot, gen))
			if s != slot || uint64(g) != gen&immGenMask {
				t.Errorf("slot %d generation %d: got %d, %d", slot, gen, s, g)
			}
		}
	}
}

func TestEntriesRoundTrip(t *testing.T) {
	want := []planned{
		{Entry: manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755, MtimeNs: -5}},
		{Entry: manifest.Entry{Type: manifest.File, Path: "a\n\xff b", Size: 1 << 50, Mode: 0o4644, MtimeNs: 1 << 60}, sparse: true, allocBytes: 4096},
		{Entry: manifest.Entry{Type: manifest.File, Path: strings.Repeat("d/", 2000) + "f", Size: 3}, allocBytes: 3},
		{Entry: manifest.Entry{Type: manifest.Symlink, Path: "l", Target: strings.Repeat("x", 4095), Mode: 0o777}},
		{Entry: manifest.Entry{Type: manifest.Dir, Path: "m"}, owners: owners{hasUID: true, hasGID: true, uid: 1<<32 - 2, user: "DOMAIN\\a b", group: strings.Repeat("g", maxAccountNameBytes)}},
		{Entry: manifest.Entry{Type: manifest.File, Path: "m/x"}, names: fileNames{several: true, first: 1 << 40, left: 1 << 60}},
		{Entry: manifest.Entry{Type: manifest.Dir, Path: "n"}, owners: owners{hasGID: true, gid: 7}},
		{Entry: manifest.Entry{Type: manifest.Dir, Path: "o"}, elsewhere: true},
		streamEntry("s", 7),
	}
	b := []byte{42}
	var scratch tlvWriter
	for i := range want {
		b = appendEntry(b, &want[i], &scratch)
	}
	var got []planned
	err := decodeEntries(b, func(id uint64, e *planned) error {
		if id != uint64(42+len(got)) {
			t.Errorf("entry %d has id %d", len(got), id)
		}
		got = append(got, *e)
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(b) > maxBodyBytes {
		t.Errorf("%d bytes", len(b))
	}
}

func TestBadEntries(t *testing.T) {
	for name, e := range map[string]planned{
		"absolute":     {Entry: manifest.Entry{Type: manifest.File, Path: "/etc/passwd"}},
		"dotdot":       {Entry: manifest.Entry{Type: manifest.File, Path: "a/../../b"}},
		"empty":        {Entry: manifest.Entry{Type: manifest.File}},
		"nul":          {Entry: manifest.Entry{Type: manifest.File, Path: "a\x00b"}},
		"top file":     {Entry: manifest.Entry{Type: manifest.File, Path: "."}},
		"dir size":     {Entry: manifest.Entry{Type: manifest.Dir, Path: "d", Size: 1}},
		"no target":    {Entry: manifest.Entry{Type: manifest.Symlink, Path: "l"}},
		"long target":  {Entry: manifest.Entry{Type: manifest.Symlink, Path: "l", Target: strings.Repeat("x", 4096)}},
		"unknown type": {Entry: manifest.Entry{Type: 'x', Path: "p"}},
		"huge":         {Entry: manifest.Entry{Type: manifest.File, Path: "p", Size: -1}},
		"mode":         {Entry: manifest.Entry{Type: manifest.File, Path: "p", Mode: 1 << 20}},
		"no file":      {Entry: manifest.Entry{Type: manifest.Dir, Path: "p"}, names: fileNames{several: true, left: 1}},
		"owner":        {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, owners: owners{hasUID: true, uid: 1<<32 - 1}},
		"group":        {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, owners: owners{hasGID: true, gid: 1<<32 - 1}},
		"long name":    {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, owners: owners{user: strings.Repeat("u", maxAccountNameBytes+1)}},
		"name":         {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, owners: owners{group: "a:b"}},
		"nul in name":  {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, owners: owners{user: "root\x00x"}},
		"dir stream":   {Entry: manifest.Entry{Type: manifest.Dir, Path: "d"}, stream: true},
		"link stream":  {Entry: manifest.Entry{Type: manifest.Symlink, Path: "l", Target: "x"}, stream: true},
		"elsewhere":    {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, elsewhere: true},
		"sparse":       {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, stream: true, sparse: true},
		"names":        {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, stream: true, names: fileNames{several: true, first: 3, left: 4}},
	} {
		var scratch tlvWriter
		b := appendEntry([]byte{0}, &e, &scratch)
		if err := decodeEntries(b, func(uint64, *planned) error { return nil }); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestPreamble(t *testing.T) {
	door := preamble{qps: 3, slots: 4, chunkKiB: 5, session: [16]byte{6}}
	join := preamble{join: true, lane: trust.Lane{QP: 2, Epoch: 300}, session: [16]byte{6}, token: [16]byte{7}}
	for _, want := range []preamble{door, join} {
		got, err := decodePreamble(append(want.encode(), make([]byte, 100)...))
		if err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	b := door.encode()
	b[4]++
	if _, err := decodePreamble(b); !errors.As(err, new(errVersion)) {
		t.Errorf("another version: %v", err)
	}
	b[0]++
	if _, err := decodePreamble(b); !errors.Is(err, rdma.ErrNotGdrcp) {
		t.Errorf("another magic: %v", err)
	}
	if _, err := decodePreamble(b[:20]); !errors.Is(err, rdma.ErrNotGdrcp) {
		t.Errorf("too short: %v", err)
	}
}

// TestDoorMessages: what the server says at the door.
func TestDoorMessages(t *testing.T) {
	for _, want := range []railAddr{{netip.MustParseAddrPort("10.7.0.1:7474"), "rxe0"}, {netip.MustParseAddrPort("[fe80::1%eth0]:7474"), "mlx5_0"}} {
		if got, why, ok := decodeRail(want.railText()); got != want || why != "" || !ok {
			t.Errorf("got %+v, %q, %v", got, why, ok)
		}
	}
	long := strings.Repeat("why ", 200)
	if _, why, ok := decodeRail(noRailText(long)); !ok || why == "" || !strings.HasPrefix(long, why) {
		t.Errorf("got %q, %v", why, ok)
	}
	if _, _, ok := decodeRail([]byte("no address")); ok {
		t.Error("no address was taken for one")
	}
	if got, err := decodeTerms(terms{16, 3}.encode()); err != nil || got != (terms{16, 3}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []terms{{0, 1}, {1, 0}, {MaxSlots + 1, 1}, {1, MaxQPs + 1}} {
		if _, err := decodeTerms(bad.encode()); !errors.Is(err, ErrProtocol) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if got, err := decodeRefusal(refusal{rdma.RejectBusy, "full"}.encode()); err != nil || got != (refusal{rdma.RejectBusy, "full"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, b := range [][]byte{noRailText(long), railAddr{netip.MustParseAddrPort("1.2.3.4:5"), long}.railText(), refusal{1, long}.encode()} {
		if len(b)+1+trust.SealBytes > doorMsgBytes {
			t.Errorf("a message of %d bytes does not fit the door", len(b))
		}
	}
}

func TestCreditRoundTrip(t *testing.T) {
	want := []returned{{slot: 0, generation: 1}, {slot: 4095, generation: 1 << 62, again: true}, {slot: 7, generation: 9, bad: []uint16{0, 511}}}
	var b []byte
	for i := range want {
		b = appendReturned(b, &want[i])
	}
	var got []returned
	err := decodeCredit(b, nil, func(r *returned) error {
		c := *r
		c.bad = append([]uint16(nil), r.bad...)
		got = append(got, c)
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestPackAndUnpack(t *testing.T) {
	const n = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	random, text := make([]byte, n), bytes.Repeat([]byte("a line of text that repeats\n"), n/28+1)[:n]
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	for _, kind := range []Compress{CompressOff, CompressZstd, CompressS2, CompressAuto} {
		p, err := newPacker(kind, n)
		if err != nil {
			t.Fatal(err)
		}
		var u unpacker
		for _, data := range [][]byte{random, text, text[:5], {}} {
			mem := make([]byte, n)
			copy(mem, data)
			codec, stored := p.pack(mem, len(data))
			got, err := u.unpack(codec, mem[:stored], uint32(len(data)), n)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("compression %d, %d bytes: %v", kind, len(data), err)
			}
			if shrunk := int(stored) < len(data); shrunk != (codec != codecPlain) {
				t.Errorf("compression %d: codec %d stores %d bytes in %d", kind, codec, len(data), stored)
			}
		}
		p.close()
		u.close()
	}
}

// A payload that claims to be small and unpacks to much must not.
func TestUnpackBomb(t *testing.T) {
	const n = 64 << 20
	p, err := newPacker(CompressZstd, n)
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, n)
	codec, stored := p.pack(mem, n)
	var u unpacker
	if _, err := u.unpack(codec, mem[:stored], 1<<20, 1<<20); !errors.Is(err, errPayload) {
		t.Errorf("got %v", err)
	}
}
