package xfer

import (
	"errors"
	"strings"
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

func holeAt(off, length int64) wire.Extent {
	return wire.Extent{Off: off, Length: length, Flags: wire.ExtHole}
}

// The digests of a hole are those of its zeros, in as many runs as the source expects when it
// commits them.
func TestHoleDigests(t *testing.T) {
	const piece = manifest.MinPieceBytes
	for _, a := range []manifest.Algorithm{manifest.XXH3, manifest.BLAKE3, manifest.CRC32C, manifest.SHA256} {
		p := &wire.Terms{Hash: a, PieceBytes: piece}
		for _, c := range []struct{ off, length, size int64 }{
			{0, 100, 100}, {0, piece, piece}, {0, 3 * piece, 3 * piece}, {2 * piece, piece + 1, 3*piece + 1}, {piece, 5, piece + 5}, {piece, 2 * piece, 9 * piece},
		} {
			x := holeAt(c.off, c.length)
			runs := appendHole(nil, &x, c.size, p)
			if int64(len(runs)) != holeRuns(&x, p) {
				t.Errorf("%s, %+v: %d runs, counted on %d", a, c, len(runs), holeRuns(&x, p))
			}
			off := c.off
			for _, r := range runs {
				for range r.n {
					n := min(piece, c.off+c.length-off)
					if want := a.Piece(make([]byte, n), uint64(off/piece), piece, c.size <= piece); r.digest != want {
						t.Errorf("%s, %+v: the digest at %d is not that of zeros", a, c, off)
					}
					off += n
				}
			}
			if off != c.off+c.length {
				t.Errorf("%s, %+v: digests up to %d", a, c, off)
			}
		}
	}
}

// A header of a few bytes must not cost the sink seconds of digesting zeros.
func TestHolesOfAChunkAreBounded(t *testing.T) {
	for _, c := range []struct {
		name   string
		hash   manifest.Algorithm
		piece  int64
		holes  []wire.Extent
		refuse bool
	}{
		{"as many as may be", manifest.BLAKE3, 1 << 20, []wire.Extent{holeAt(0, 32<<20), holeAt(32<<20, 32<<20)}, false},
		{"one more", manifest.BLAKE3, 1 << 20, []wire.Extent{holeAt(0, 64<<20), holeAt(64<<20, 1)}, true},
		{"a large piece", manifest.BLAKE3, 1 << 30, []wire.Extent{holeAt(0, 1<<30)}, false},
		{"two large pieces", manifest.BLAKE3, 1 << 30, []wire.Extent{holeAt(0, 2<<30)}, true},
		{"large ones with a table", manifest.SHA256, 1 << 30, []wire.Extent{holeAt(0, 2<<30), holeAt(2<<30, 100<<30)}, false},
		{"large ends with none", manifest.SHA256, 1 << 30, []wire.Extent{holeAt(0, 1<<30-1), holeAt(0, 1<<30-1)}, true},
	} {
		k := &sink{Session: &flow.Session{Session: &link.Session{}, Terms: wire.Terms{Hash: c.hash, PieceBytes: c.piece}}}
		for i := range c.holes {
			c.holes[i].Entry = 7 // never announced: that is found only after
		}
		err := newLedger(k).book(c.holes)
		if !errors.Is(err, ErrProtocol) || strings.Contains(err.Error(), "holes") != c.refuse {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
