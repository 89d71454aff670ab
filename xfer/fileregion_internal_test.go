package xfer

import (
	"context"
	"errors"
	"testing"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// regionSource is a source that has announced a directory and a file of 64 MiB.
func regionSource() *source {
	s := &source{session: &session{knowsRegions: true, link: &railLink{transport: "verbs"}}, sender: &chunkSender{}}
	s.window.table[0] = &srcEntry{entryState: entryState{AnnouncedEntry: dirAt(".")}}
	s.window.table[1] = &srcEntry{entryState: entryState{id: 1, AnnouncedEntry: fileAt("x", 64<<20)}}
	s.window.announced, s.window.accepted = 2, 2
	return s
}

func regionAt(number uint32, off, bytes int64) wire.FileRegion {
	return wire.FileRegion{Entry: 1, Number: number, Off: off, Bytes: bytes, On: []wire.RegionOn{{Link: 1, Key: 5, Addr: 1 << 20}}}
}

// A source takes regions only of files whose data the sink waits for, and inside them.
func TestHearRegion(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *source, r *wire.FileRegion)
		good   bool
	}{
		{"as it should be", func(*source, *wire.FileRegion) {}, true},
		{"of a directory", func(_ *source, r *wire.FileRegion) { r.Entry = 0 }, false},
		{"of an entry that was not accepted", func(s *source, _ *wire.FileRegion) { s.window.accepted = 1 }, false},
		{"of an entry that was never announced", func(_ *source, r *wire.FileRegion) { r.Entry = 2 }, false},
		{"of an entry that has ended", func(s *source, r *wire.FileRegion) { s.window.settled, r.Entry = 1, 0 }, true},
		{"of a file that is not wanted", func(s *source, _ *wire.FileRegion) { s.window.table[1].unwanted = true }, false},
		{"beyond the file's end", func(_ *source, r *wire.FileRegion) { r.Off = 64<<20 - 1 }, false},
		{"behind the file", func(_ *source, r *wire.FileRegion) { r.Off = 65 << 20 }, false},
		{"over TCP", func(s *source, _ *wire.FileRegion) { s.session.link.transport = "tcp" }, false},
		{"with encrypted chunks", func(s *source, _ *wire.FileRegion) { s.session.terms.Flags |= wire.FlagEncrypt }, false},
		{"to a source that knows none", func(s *source, _ *wire.FileRegion) { s.session.knowsRegions = false }, false},
		{"more than are remembered", func(s *source, _ *wire.FileRegion) { s.sender.offered.count = maxOffered }, true},
	} {
		s, r := regionSource(), regionAt(1, 16<<20, 16<<20)
		c.change(s, &r)
		err := s.hearRegion(r.Encode())
		if c.good != (err == nil) || !c.good && !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", c.name, err)
		}
		if n := s.sender.offered.count; n > maxOffered {
			t.Errorf("%s: %d are remembered", c.name, n)
		}
	}
}

// A chunk goes to a region that has all of it, over a link that the region is on.
func TestOfferedRegions(t *testing.T) {
	s := regionSource()
	for _, r := range []wire.FileRegion{regionAt(2, 32<<20, 16<<20), regionAt(1, 16<<20, 16<<20)} { // out of order, as workers tell them
		if err := s.hearRegion(r.Encode()); err != nil {
			t.Fatal(err)
		}
	}
	link, other := &railLink{number: 1}, &railLink{number: 2}
	chunk := func(off, bytes int64) *outChunk {
		c := &outChunk{files: []*srcEntry{s.window.table[1]}}
		c.PlainBytes, c.StoredBytes = uint32(bytes), uint32(bytes)
		c.Extents = []wire.Extent{{Entry: 1, Off: off, Length: bytes}}
		return c
	}
	for _, c := range []struct {
		name   string
		chunk  *outChunk
		link   *railLink
		change func(c *outChunk)
		want   uint32
	}{
		{"before the first", chunk(15<<20, 1<<20), link, nil, 0},
		{"half in the first", chunk(15<<20+1, 1<<20), link, nil, 0},
		{"in the first", chunk(16<<20, 1<<20), link, nil, 1},
		{"on another link", chunk(17<<20, 1<<20), other, nil, 0},
		{"sent again", chunk(17<<20, 1<<20), link, func(c *outChunk) { c.again = true }, 0},
		{"compressed", chunk(17<<20, 1<<20), link, func(c *outChunk) { c.Codec = wire.CodecZstd }, 0},
		{"a hole", chunk(17<<20, 1<<20), link, func(c *outChunk) { c.Extents[0].Flags = wire.ExtHole }, 0},
		{"with a gap", chunk(17<<20, 1<<20), link, func(c *outChunk) {
			c.Extents = append(c.Extents, wire.Extent{Entry: 1, Off: 19 << 20, Length: 5, SlotOff: 1 << 20})
			c.files = append(c.files, c.files[0])
		}, 0},
		{"of two files", chunk(17<<20, 1<<20), link, func(c *outChunk) {
			c.Extents = append(c.Extents, wire.Extent{Entry: 2, Off: 18 << 20, Length: 5, SlotOff: 1 << 20})
			c.files = append(c.files, &srcEntry{})
		}, 0},
		{"over the end of the first", chunk(31<<20+1, 1<<20), link, nil, 0},
		{"in the second", chunk(47<<20, 1<<20), link, nil, 2},
		{"behind the last", chunk(48<<20, 1<<20), link, nil, 0},
	} {
		if c.change != nil {
			c.change(c.chunk)
		}
		r := s.sender.offered.of(c.chunk, c.link)
		if r.number() != c.want {
			t.Errorf("%s: region %d, want %d", c.name, r.number(), c.want)
		}
		if r != nil {
			if addr, key := r.placeOf(c.chunk, c.link); addr != 1<<20+uint64(c.chunk.Extents[0].Off-r.told.Off) || key != 5 {
				t.Errorf("%s: at %#x with key %d", c.name, addr, key)
			}
		}
	}
	if n := s.sender.offered.count; n != 0 {
		t.Errorf("%d regions are left", n)
	}
	if err := s.hearRegion((&wire.FileRegion{Entry: 1, Number: 9, Bytes: 1}).Encode()); err != nil {
		t.Fatal(err)
	}
	if s.sender.offered.forget(1); s.sender.offered.count != 0 || len(s.sender.offered.byEntry) != 0 {
		t.Errorf("%+v", s.sender.offered)
	}
}

// A header that names a region counts only for a run of one file that is all in it.
func TestChunkInARegion(t *testing.T) {
	e := &sinkEntry{entryState: entryState{id: 1}}
	l := &landsIn{regions: map[uint32]*landRegion{7: {entry: e, off: 16 << 20, bytes: 16 << 20, region: &fileRegion{}}, 9: {entry: e, off: 32 << 20, bytes: 16 << 20}}}
	for _, c := range []struct {
		name   string
		change func(h *wire.ChunkHeader)
		good   bool
	}{
		{"as it should be", func(*wire.ChunkHeader) {}, true},
		{"of a region that was never told", func(h *wire.ChunkHeader) { h.Region = 8 }, false},
		{"of a region that is being made", func(h *wire.ChunkHeader) { h.Region, h.Extents[0].Off = 9, 32<<20 }, false},
		{"of another entry", func(h *wire.ChunkHeader) { h.Extents[0].Entry = 2 }, false},
		{"before the region", func(h *wire.ChunkHeader) { h.Extents[0].Off-- }, false},
		{"beyond the region", func(h *wire.ChunkHeader) { h.Extents[0].Off = 31<<20 + 1 }, false},
		{"with a payload beyond the region", func(h *wire.ChunkHeader) { h.Extents[0].Off, h.PlainBytes = 31<<20, 1<<20+1 }, false},
		{"elsewhere in the payload", func(h *wire.ChunkHeader) { h.Extents[0].SlotOff = 1 }, false},
		{"a hole", func(h *wire.ChunkHeader) { h.Extents[0].Flags = wire.ExtHole }, false},
		{"a repair", func(h *wire.ChunkHeader) { h.Repair = true }, false},
		{"compressed", func(h *wire.ChunkHeader) { h.Codec = wire.CodecS2 }, false},
		{"with nothing", func(h *wire.ChunkHeader) { h.Extents = nil }, false},
		{"with another file behind", func(h *wire.ChunkHeader) {
			h.Extents = append(h.Extents, wire.Extent{Entry: 2, Off: 17 << 20, Length: 1, SlotOff: 1 << 20})
		}, false},
	} {
		h := &wire.ChunkHeader{Region: 7, PlainBytes: 1 << 20, Extents: []wire.Extent{{Entry: 1, Off: 16 << 20, Length: 1 << 20}}}
		c.change(h)
		if r, err := l.of(h); c.good != (r != nil) || c.good != (err == nil) || !c.good && !errors.Is(err, wire.ErrHeaderSum) {
			t.Errorf("%s: %v, %v", c.name, r, err)
		}
	}
	var none *landsIn
	if _, err := none.of(&wire.ChunkHeader{Region: 1}); !errors.Is(err, wire.ErrHeaderSum) {
		t.Errorf("where there are no regions: %v", err)
	}
}

// A source that names a region it was never told of has its chunk sent back, and no file
// published.
func TestHostileRegion(t *testing.T) { overHostile(t, testHostileRegion) }

func testHostileRegion(t *testing.T, w hostileWay) {
	_, addr, _ := w.serve(t)
	data := make([]byte, 5000)
	err := w.talk(t, addr, wire.ModePush, "x", asIs, func(ctx context.Context, s *session) error {
		p := &puppet{session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		if err := p.announce(ctx, fileOf(len(data))); err != nil {
			return err
		}
		if err := p.send(&wire.ChunkHeader{Generation: 1, Region: 3, Extents: []wire.Extent{whole(0, data)}}, data); err != nil {
			return err
		}
		back, taken, err := p.whatBecame(ctx, false)
		if !back || taken {
			t.Errorf("back: %v, taken: %v, %v", back, taken, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// Holes cannot be claimed for a file that may have been written to, because they would show
// what is there.
func TestNoHoleBesideRegions(t *testing.T) {
	k := &sink{session: &session{}, results: &copyResults{}}
	e := &sinkEntry{entryState: entryState{id: 1, AnnouncedEntry: fileAt("x", 64<<20)}, regionsTo: 32 << 20}
	k.session.terms.PieceBytes, k.session.terms.Hash = manifest.DefaultPieceBytes, manifest.XXH3
	x := wire.Extent{Entry: 1, Length: manifest.DefaultPieceBytes, Flags: wire.ExtHole}
	if err := newLedger(k).bookExtent(e, &x); !errors.Is(err, ErrProtocol) {
		t.Errorf("%v", err)
	}
	e.regionsTo = 0
	if err := newLedger(k).bookExtent(e, &x); errors.Is(err, ErrProtocol) {
		t.Errorf("without regions: %v", err)
	}
}

// Only what a device sends as it is, over an RDMA device, is worth regions.
func TestRegistersFiles(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(s *session)
		want   bool
	}{
		{"over a device", func(*session) {}, true},
		{"asked for", func(s *session) { s.terms.IO = fileset.IORegistered }, true},
		{"over TCP", func(s *session) { s.link.transport = "tcp" }, false},
		{"buffered", func(s *session) { s.terms.IO = fileset.IOBuffered }, false},
		{"in chunks as large as regions", func(s *session) { s.terms.ChunkBytes = regionBytes }, true},
		{"in larger chunks", func(s *session) { s.terms.ChunkBytes = regionBytes + 1 }, false},
		{"compressed", func(s *session) { s.terms.Codec = wire.CompressZstd }, false},
		{"encrypted", func(s *session) { s.terms.Flags = wire.FlagEncrypt }, false},
		{"in GPU memory", func(s *session) { s.ringWish.Placement.GPU = wire.GPUAuto }, false},
	} {
		s := &session{link: &railLink{transport: "verbs"}}
		c.change(s)
		if got := s.registersFiles(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		asked := s.terms.IO == fileset.IORegistered
		if err := s.checkRegistered(); (err != nil) != (asked && !c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// What lands while its region is made counts: nobody hears of a region of which nothing is left.
func TestRegionThatComesTooLate(t *testing.T) {
	e := &sinkEntry{entryState: entryState{id: 1, AnnouncedEntry: fileAt("x", 64<<20)}}
	r := &landRegion{entry: e, number: 7, off: 16 << 20, bytes: 16 << 20, leftBytes: 16 << 20}
	l := &landsIn{sink: &sink{}, regions: map[uint32]*landRegion{7: r}}
	for _, x := range []wire.Extent{{Off: 15 << 20, Length: 2 << 20}, {Off: 17 << 20, Length: 14 << 20}} {
		if err := l.landed(e, &x); err != nil || l.regions[7] != r {
			t.Fatalf("%v, %v", l.regions, err)
		}
	}
	if err := l.landed(&sinkEntry{entryState: entryState{id: 2, AnnouncedEntry: fileAt("y", 64<<20)}}, &wire.Extent{Off: 31 << 20, Length: 1 << 20}); err != nil || l.regions[7] != r {
		t.Fatalf("of another file: %v, %v", l.regions, err)
	}
	if err := l.landed(e, &wire.Extent{Off: 31 << 20, Length: 2 << 20}); err != nil || len(l.regions) > 0 {
		t.Fatalf("%v, %v", l.regions, err)
	}
	e.noRegions = true
	if told, err := l.makeRegion(r); told != nil || err != nil {
		t.Errorf("%v, %v", told, err)
	}
}

// A worker that finds another at the trial gives back what it reserved, and no more: of what
// is told already no hole may be claimed, and no second region made.
func TestReservationIsGivenBack(t *testing.T) {
	l, e := &landsIn{sink: &sink{session: &session{}}, regions: make(map[uint32]*landRegion)}, &sinkEntry{temp: &chunker.Temp{}}
	l.trial.busy.Store(true)
	second := &landRegion{entry: e, off: 32 << 20, bytes: regionBytes}
	third := &landRegion{entry: e, off: 48 << 20, bytes: regionBytes}
	for _, c := range []struct {
		name string
		to   int64
		back []*landRegion
		want int64
	}{
		{"the last", 48 << 20, []*landRegion{second}, 32 << 20},
		{"the last two", 64 << 20, []*landRegion{third, second}, 32 << 20},
		{"one before the last", 64 << 20, []*landRegion{second}, 64 << 20},
	} {
		e.regionsTo = c.to
		for _, r := range c.back {
			if made := l.register(r); made != nil {
				t.Errorf("%s: %v", c.name, made)
			}
		}
		if e.regionsTo != c.want || e.noRegions {
			t.Errorf("%s: up to %d, want %d", c.name, e.regionsTo, c.want)
		}
	}
}

// A session has regions for two rings and 64 MiB, and no more.
func TestMostRegions(t *testing.T) {
	for _, c := range []struct{ ringBytes, most int }{{16 << 20, 6}, {18 << 20, 6}, {23 << 20, 6}, {24 << 20, 7}, {1 << 30, 132}} {
		s := &session{link: &railLink{ring: &ring.Ring{Slots: c.ringBytes >> 20, SlotBytes: 1 << 20}}}
		if got := s.mostRegions(); got != c.most {
			t.Errorf("%d regions beside a ring of %d bytes, want %d", got, c.ringBytes, c.most)
		}
	}
}
