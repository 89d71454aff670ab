package xfer

import (
	"gdrcp/manifest"

	"gdrcp/xfer/internal/wire"
)

// pieceRun is n consecutive pieces with the same digest.
type pieceRun struct {
	digest manifest.Digest
	n      uint64
}

const (
	// maxHoleRun bounds the pieces of a hole in one extent.
	maxHoleRun = 1 << 16
	// maxHashedPieces and maxHashedBytes bound how much of the holes of one chunk must be hashed as
	// data: a header of a few bytes must not cost the sink seconds.
	maxHashedPieces = 64
	maxHashedBytes  = 64 << 20
)

// maxHashedHolePieces is how many pieces of a chunk's holes may have to be hashed as data. It is at
// least one, of any size.
func maxHashedHolePieces(p *wire.Terms) int64 {
	return min(maxHashedPieces, max(1, maxHashedBytes/p.PieceBytes))
}

// holeHashCost counts the pieces of a hole whose digest is not in a table. With BLAKE3
// these are all pieces, otherwise only a last piece that is shorter.
func holeHashCost(p *wire.Terms, x *wire.Extent) int64 {
	if x.Flags&wire.ExtHole == 0 {
		return 0
	}
	if p.Hash == manifest.BLAKE3 {
		return (x.Length + p.PieceBytes - 1) / p.PieceBytes
	}
	return min(1, x.Length%p.PieceBytes)
}

// longestHole is how many pieces of a hole fit into one extent.
func longestHole(p *wire.Terms) int64 {
	if p.Hash == manifest.BLAKE3 {
		return maxHashedHolePieces(p)
	}
	return maxHoleRun
}

// holeRuns is how many runs appendHole makes of a hole.
func holeRuns(x *wire.Extent, p *wire.Terms) int64 {
	n := holeHashCost(p, x)
	if p.Hash != manifest.BLAKE3 && x.Length >= p.PieceBytes {
		n++
	}
	return n
}

// appendHole appends the digests of the pieces of a hole. size is that of the file, in
// bytes.
func appendHole(runs []pieceRun, x *wire.Extent, size int64, p *wire.Terms) []pieceRun {
	off, end := x.Off, x.Off+x.Length
	if full := x.Length / p.PieceBytes; full > 0 && p.Hash != manifest.BLAKE3 {
		runs = append(runs, pieceRun{p.Hash.ZeroPiece(int(p.PieceBytes), uint64(off/p.PieceBytes), p.PieceBytes, size <= p.PieceBytes), uint64(full)})
		off += full * p.PieceBytes
	}
	for ; off < end; off += p.PieceBytes {
		n := min(p.PieceBytes, end-off)
		runs = append(runs, pieceRun{p.Hash.ZeroPiece(int(n), uint64(off/p.PieceBytes), p.PieceBytes, size <= p.PieceBytes), 1})
	}
	return runs
}
