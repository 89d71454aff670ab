package xfer

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
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
func asksForRegions(h *wire.Hello) { h.Terms.IO, h.Regions = fileset.IORegistered, true }

// back waits until n slots have come back and, where r is not nil, a region was told.
func (p *puppet) back(ctx context.Context, n int, r *wire.FileRegion) (err error) {
	for err == nil && (n > 0 || r != nil && r.Bytes == 0) {
		err = p.receive(ctx, func(f *wire.Frame) (err error) {
			switch {
			case f.Type == wire.MsgRegion && r != nil && r.Bytes == 0:
				*r, err = wire.DecodeFileRegion(f.Body)
			case f.Type == wire.MsgCredit:
				err = wire.DecodeCredit(f.Body, make([]uint16, 0, wire.MaxExtents), func(*wire.ReturnedSlot) error {
					n--
					return nil
				})
			}
			return err
		})
	}
	return err
}

// in is the puppet whose slot 0 is a place in a region.
func (p *puppet) in(r *wire.FileRegion, off int64) *puppet {
	to := *p
	to.target.PayloadKey, to.target.PayloadAddr = r.On[0].Key, r.On[0].Addr+uint64(off-r.Off)
	return &to
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
		var r wire.FileRegion
		if err := p.back(ctx, 1, &r); err != nil {
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
		return p.back(ctx, 4, nil)
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

// Until a region is closed its source can write to what was verified there. A sink that is to
// read back what it wrote finds that out, because no region is open when it does.
func TestRewrittenRegion(t *testing.T) {
	const piece, size = manifest.DefaultPieceBytes, 32 << 20
	w := byRegions(t)
	root, addr, _ := w.serve(t)
	change := func(h *wire.Hello) {
		asksForRegions(h)
		h.Terms.Flags |= wire.FlagReadBack
	}
	data, other := make([]byte, piece), bytes.Repeat([]byte("x"), piece)
	err := w.talk(t, addr, wire.ModePush, "x", change, func(ctx context.Context, s *session) error {
		p := &puppet{session: s}
		if err := errors.Join(p.ready(ctx), p.announce(ctx, fileOf(size))); err != nil {
			return err
		}
		var r wire.FileRegion
		for off := int64(0); off < size; off += piece {
			x, to := wire.Extent{Off: off, Length: piece}, p
			x.Digest = s.terms.DigestOf(&x, size, data)
			h := &wire.ChunkHeader{ID: uint64(off / piece), Generation: uint64(off/piece) + 1}
			if r.Bytes > 0 && off >= r.Off {
				h.Region, to = r.Number, p.in(&r, off)
			}
			if off+piece == size {
				x.Flags = wire.ExtLast
				if err := p.in(&r, r.Off).overwrite(0, 1, other); err != nil {
					return err
				}
			}
			h.Extents = []wire.Extent{x}
			if err := to.send(h, data); err != nil {
				return err
			}
			if off+piece == size {
				break
			}
			if err := p.back(ctx, 1, &r); err != nil {
				return err
			}
		}
		return p.await(ctx, wire.MsgResult)
	})
	if err != nil {
		t.Error(err)
	}
	if got, err := os.ReadFile(filepath.Join(root, "x")); err == nil {
		t.Errorf("what nobody verified was published: %q at the first byte of the region", got[16<<20])
	}
}
