package xfer

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/manifest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/wire"
)

// regionFileBytes is the size of a file in which a puppet is told of regions.
const regionFileBytes = 64 << 20

// byRegions is a transport by which a sink tells regions of its files, which lie in memory.
func byRegions(t *testing.T) hostileWay {
	t.Helper()
	var fs unix.Statfs_t
	if err := unix.Statfs(t.TempDir(), &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		t.Skipf("files are not in memory here (%v): set TMPDIR to a directory of a tmpfs", err)
	}
	return hostileWay{"imitated", verbsNamed{tcp.New()}, netip.MustParseAddr("127.0.0.1"), 1}
}

// asksForRegions changes a hello so that the sink registers files without a trial.
func asksForRegions(h *wire.Hello) { h.Terms.IO, h.Regions = chunker.RungRegistered, true }

// region waits until the sink has told a region.
func (p *puppet) region(ctx context.Context) (r wire.FileRegion, err error) {
	for err == nil && r.Bytes == 0 {
		err = p.receive(ctx, func(f *wire.Frame) (err error) {
			if f.Type == wire.MsgRegion {
				r, err = wire.DecodeFileRegion(f.Body)
			}
			return err
		})
	}
	return r, err
}

// back waits until n slots have come back.
func (p *puppet) back(ctx context.Context, n int) (err error) {
	for err == nil && n > 0 {
		err = p.receive(ctx, func(f *wire.Frame) error {
			if f.Type != wire.MsgCredit {
				return nil
			}
			return wire.DecodeCredit(f.Body, make([]uint16, 0, wire.MaxExtents), func(*wire.ReturnedSlot) error {
				n--
				return nil
			})
		})
	}
	return err
}

// A source that claims bytes of a file that has ended, in a region of it and as a hole there,
// does not have the region closed while the sink looks at it.
func TestHostileHoleInARegion(t *testing.T) {
	w := byRegions(t)
	_, addr, _ := w.serve(t)
	change := func(h *wire.Hello) {
		asksForRegions(h)
		h.Terms.Hash = manifest.SHA256 // the slowest
	}
	const piece = manifest.DefaultPieceBytes
	err := w.talk(t, addr, wire.ModePush, "x", change, func(ctx context.Context, s *session) error {
		p := &puppet{session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		// The first file keeps the end of the second from being told.
		if err := p.announce(ctx, dirAt("."), fileAt("a", regionFileBytes), fileAt("b", regionFileBytes)); err != nil {
			return err
		}
		data := make([]byte, piece)
		x := wire.Extent{Entry: 2, Length: piece, Digest: manifest.SHA256.Piece(data, 0, piece, false)}
		if err := p.chunk(0, 0, 1, data, x); err != nil {
			return err
		}
		r, err := p.region(ctx)
		if err != nil {
			return err
		}
		why := &wire.Exception{Entry: 2, Outcome: Changed, Text: "changed"}
		if err := p.ctl.send(ctx, wire.MsgFail, wire.AppendException(nil, why)); err != nil {
			return err
		}
		time.Sleep(100 * time.Millisecond)
		for i := range 3 {
			x := wire.Extent{Entry: 2, Off: r.Off + int64(i)*piece, Length: piece}
			h := &wire.ChunkHeader{ID: uint64(i + 1), Slot: uint32(i + 1), Generation: 1, Region: r.Number, Extents: []wire.Extent{x}}
			if err := p.send(h, data); err != nil {
				return err
			}
		}
		hole := wire.Extent{Entry: 2, Off: r.Off, Length: r.Bytes, Flags: wire.ExtHole}
		if err := p.chunk(4, 0, 2, nil, hole); err != nil {
			return err
		}
		return p.back(ctx, 4)
	})
	if err != nil {
		t.Error(err)
	}
}

// What names a region of a file that has ended is not looked at: the region may be gone.
func TestChunkInARegionOfWhatHasEnded(t *testing.T) {
	for name, e := range map[string]*sinkEntry{"over": {over: true}, "given up": {givenUp: true}} {
		w := &lander{chunk: landing{region: &landRegion{entry: e}}}
		if plain, damaged, err := w.plainOf(&wire.ChunkHeader{Extents: make([]wire.Extent, 1)}, filledSlot{}); plain != nil || !damaged || err != nil {
			t.Errorf("%s: %d bytes, damaged: %v, %v", name, len(plain), damaged, err)
		}
	}
}
