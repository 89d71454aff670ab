package xfer

import "gdrcp/manifest"

// pieceRun is n pieces in a row with the same digest.
type pieceRun struct {
	digest manifest.Digest
	n      uint64
}

const (
	// maxHoleRun bounds the pieces of a hole told in one extent.
	maxHoleRun = 1 << 16
	// maxDearPieces and maxDearBytes bound what has to be digested for real of
	// the holes of one chunk: a header of a few bytes must not cost the sink
	// seconds.
	maxDearPieces = 64
	maxDearBytes  = 64 << 20
)

// maxDear is how many pieces of a chunk's holes may have to be digested for
// real: one at the least, however large.
func (p *params) maxDear() int64 {
	return min(maxDearPieces, max(1, maxDearBytes/p.pieceBytes))
}

// dearPieces counts the pieces of an extent's hole that have no digest in a
// table: with BLAKE3 all, else a last one that is shorter.
func (p *params) dearPieces(x *extent) int64 {
	if x.flags&extHole == 0 {
		return 0
	}
	if p.hash == manifest.BLAKE3 {
		return (x.length + p.pieceBytes - 1) / p.pieceBytes
	}
	return min(1, x.length%p.pieceBytes)
}

// longestHole is how many pieces of a hole go into one extent.
func (p *params) longestHole() int64 {
	if p.hash == manifest.BLAKE3 {
		return p.maxDear()
	}
	return maxHoleRun
}

// holeRuns is how many runs appendHole makes of a hole.
func holeRuns(x *extent, p *params) int64 {
	n := p.dearPieces(x)
	if p.hash != manifest.BLAKE3 && x.length >= p.pieceBytes {
		n++
	}
	return n
}

// appendHole appends the digests of the pieces of a hole in a file of size
// bytes.
func appendHole(runs []pieceRun, x *extent, size int64, p *params) []pieceRun {
	off, end := x.off, x.off+x.length
	if full := x.length / p.pieceBytes; full > 0 && p.hash != manifest.BLAKE3 {
		runs = append(runs, pieceRun{p.hash.ZeroPiece(int(p.pieceBytes), uint64(off/p.pieceBytes), p.pieceBytes, size <= p.pieceBytes), uint64(full)})
		off += full * p.pieceBytes
	}
	for ; off < end; off += p.pieceBytes {
		n := min(p.pieceBytes, end-off)
		runs = append(runs, pieceRun{p.hash.ZeroPiece(int(n), uint64(off/p.pieceBytes), p.pieceBytes, size <= p.pieceBytes), 1})
	}
	return runs
}
