package xfer

import (
	"context"
	"fmt"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// With --checksum, a file that exists at the sink with the same size, its basis, is compared piece
// by piece. The sink announces which files have a basis before the source cuts them. The source
// then sends digests in place of their pieces (ExtDigest). The sink compares them with the digests
// of its own pieces, and requests the pieces that differ like damaged ones: repairs carry the bytes
// (compare.go). With --append-verify, the basis is a shorter file, and its whole pieces are
// compared.

// comparison is the state of a compared file at both ends. The goroutine that books extents owns
// it, except for differs and differBytes: at the source the Sender's lock guards these, at the sink
// the entry's lock. After the entry has settled, nothing changes any more.
type comparison struct {
	// pieces is the number of leading pieces to compare. It is 0 for a file that is not compared,
	// and 1 for an empty file that is.
	pieces uint64
	// digestBytes and holeBytes are sums over the booked extents.
	digestBytes, holeBytes int64
	// differs says that something differs. differBytes is the size of the pieces that differ.
	differs bool
	// trusted says, at the sink, that the digests are compared with those of the basis manifest,
	// and not with those of the file. The entry's lock guards it.
	trusted     bool
	differBytes int64
}

// add adds another file's numbers.
func (c *comparison) add(of *comparison) {
	c.digestBytes += of.digestBytes
	c.differBytes += of.differBytes
}

// sameBytes is how many bytes were compared and found the same.
func (c *comparison) sameBytes() int64 { return c.digestBytes - c.differBytes }

// takes reports whether the piece at off is compared.
func (c *comparison) takes(off, pieceBytes int64) bool { return uint64(off/pieceBytes) < c.pieces }

// comparablePieces is the number of pieces of a file that can be compared.
func comparablePieces(size, pieceBytes int64) uint64 {
	return max(1, manifest.PieceCount(size, pieceBytes))
}

// maxComparedBytes bounds the bytes that the digests of one chunk may stand for: the sink has to
// read that many. It is large enough that the cost of chunks does not matter, and small enough that
// both ends read in parallel.
func maxComparedBytes(p *wire.Terms) int64 { return max(8<<20, p.PieceBytes) }

// basisBytes is the number of bytes of a file that are compared.
func (b *entryState) basisBytes(p *wire.Terms) int64 {
	return min(b.Size, int64(b.comparison.pieces)*p.PieceBytes)
}

// isUnchanged reports whether a copied file existed already with this content.
func (b *entryState) isUnchanged() bool {
	return b.comparison.pieces > 0 && !b.comparison.differs && b.arrived.bytes == 0
}

// basisPieces is the number of pieces of an entry that the sink will compare with the existing
// file. If that becomes impossible later, it is no error: then all pieces differ.
func (k *sink) basisPieces(e *sinkEntry) uint64 {
	p := &k.Session.Terms
	if !p.Has(wire.FlagChecksum|wire.FlagAppend) || k.out != nil || e.Type != manifest.File || e.isLink() {
		return 0
	}
	now, err := k.store.Look(e.Path)
	switch {
	case err != nil || now.Type != manifest.File:
	case p.Has(wire.FlagChecksum) && now.Size == e.Size:
		return comparablePieces(e.Size, p.PieceBytes)
	case p.Has(wire.FlagAppend) && now.Size < e.Size && !p.Has(wire.FlagDryRun):
		return uint64(now.Size / p.PieceBytes)
	}
	return 0
}

// compareWith records how many pieces of an entry are compared. A file of which only the beginning
// is compared differs in any case.
func (b *entryState) compareWith(pieces uint64, p *wire.Terms) {
	b.comparison.pieces = pieces
	b.comparison.differs = pieces > 0 && p.Has(wire.FlagAppend)
}

// tellBasis announces to the source the files for which it must send digests.
func (k *sink) tellBasis(ctx context.Context, entries []*sinkEntry) error {
	var body []byte
	next := uint64(0)
	for i, e := range entries {
		body = wire.AppendBasis(body, next, wire.Basis{Entry: e.id, Pieces: e.comparison.pieces})
		next = e.id + 1
		if i < len(entries)-1 && len(body) <= wire.MaxBodyBytes-wire.BasisBytes {
			continue
		}
		if err := k.Session.Ctl.Send(ctx, wire.MsgBasis, body); err != nil {
			return err
		}
		body, next = body[:0], 0
	}
	return nil
}

// hearBasis processes the sink's list of files that it compares.
func (s *source) hearBasis(body []byte) error {
	p := &s.Session.Terms
	if !p.Has(wire.FlagChecksum | wire.FlagAppend) {
		return fmt.Errorf("%w: files to compare, and all were to be copied", ErrProtocol)
	}
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	return wire.DecodeBasis(body, s.window.announced, func(b wire.Basis) error {
		e := s.window.table[b.Entry%entryWindow]
		if b.Entry < s.window.accepted || e == nil || e.id != b.Entry || e.Type != manifest.File || e.isLink() || e.unwanted || e.comparison.pieces != 0 || !isBasis(e.Size, b.Pieces, p) {
			return fmt.Errorf("%w: %d pieces of entry %d to compare, which cannot be", ErrProtocol, b.Pieces, b.Entry)
		}
		e.compareWith(b.Pieces, p)
		return nil
	})
}

// isBasis reports whether so many pieces of a file of that size can be compared: all, or the
// beginning of a file that is longer.
func isBasis(size int64, pieces uint64, p *wire.Terms) bool {
	if p.Has(wire.FlagAppend) {
		return size > 0 && pieces <= uint64((size-1)/p.PieceBytes)
	}
	return pieces == comparablePieces(size, p.PieceBytes)
}

// asDigest makes the next extent of a file one for which only the digest is sent, if the sink
// compares it. A hole that is compared ends at the end of the compared part.
func (s *source) asDigest(e *srcEntry, length int64, flags uint16) (int64, uint16) {
	piece := s.Session.Terms.PieceBytes
	switch {
	case flags&wire.ExtArrived != 0 || !e.comparison.takes(e.packed, piece):
		return length, flags
	case flags&wire.ExtHole != 0:
		return min(length, int64(e.comparison.pieces)*piece-e.packed), flags
	}
	return length, flags | wire.ExtDigest
}

// comparedBytes is the number of bytes that the sink must read for an extent.
func comparedBytes(x *wire.Extent) int64 {
	if x.Flags&wire.ExtDigest == 0 {
		return 0
	}
	return x.Length
}

// resendDifferent sends the pieces that the sink has compared and found to differ: the extents of a
// chunk with these indices. The bytes of a digest are sent in as many repairs as they need. A hole
// is sent again as a hole, so that the sink makes it. The caller holds the Sender's lock.
func (s *source) resendDifferent(c *outChunk, indices []int) {
	var w *resend
	used, room := int64(0), int64(s.Session.Terms.ChunkBytes)
	for _, i := range indices {
		x, e := c.Extents[i], c.Of.files[i]
		e.comparison.differs = true
		if x.Flags&wire.ExtDigest != 0 {
			e.comparison.differBytes += x.Length
		}
		x.Flags &^= wire.ExtDigest
		at := alignUp(used, x.Length)
		if w == nil || x.Brings() && at+x.Length > room {
			w, at = &resend{id: c.ID, repair: true, tries: 1}, 0
			s.window.resends = append(s.window.resends, w)
		}
		if x.Brings() {
			used = at + x.Length
		}
		w.extents, w.files = append(w.extents, x), append(w.files, e)
	}
}

// differs reports whether a request is for a piece that the sink has compared, and not for one that
// was damaged.
func differs(c *outChunk, i int, p *wire.Terms) bool {
	x := &c.Extents[i]
	return x.Flags&wire.ExtDigest != 0 || x.Flags&wire.ExtHole != 0 && c.Of.files[i].comparison.takes(x.Off, p.PieceBytes)
}

// checkCompared checks that digests stand for exactly the pieces for which this end asked the
// source for digests.
func checkCompared(e *sinkEntry, x *wire.Extent, p *wire.Terms) error {
	compared := e.comparison.takes(x.Off, p.PieceBytes)
	good := x.Flags&wire.ExtDigest == 0
	switch {
	case x.Flags&wire.ExtHole != 0:
		end := int64(e.comparison.pieces) * p.PieceBytes
		good = !compared || x.Off+x.Length <= end || e.Size <= end
	case x.Flags&wire.ExtArrived == 0:
		good = compared != good
	}
	if !good {
		return fmt.Errorf("%w: flags %#x at %d of %q, of which %d pieces are compared", ErrProtocol, x.Flags, x.Off, e.Path, e.comparison.pieces)
	}
	return nil
}
