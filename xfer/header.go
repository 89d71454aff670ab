package xfer

import (
	"encoding/binary"
	"fmt"

	"gdrcp/internal/trust"
	"gdrcp/manifest"

	"github.com/zeebo/xxh3"
)

// A chunk's header travels by RDMA Write into the sink's header ring ahead of
// the payload. Little-endian. The hop part belongs to this hop alone:
//
//	offset size field
//	     0    4 magic "GCHK"
//	     4    4 length of the end-to-end part, bytes
//	     8    8 session (first 8 bytes of its id)
//	    16    4 rail epoch
//	    20    4 slot
//	    24    8 generation of the slot
//	    32    8 number of the payload's seal, where chunks are encrypted
//	    40   16 tag of the payload's seal
//	    56    8 zero
//
// The end-to-end part says what is in the chunk and where it belongs, and is
// under a checksum of its own, because digests prove bytes, not placement:
//
//	  0    8 chunk id
//	  8    1 codec of the payload
//	  9    1 flags (chunkRepair)
//	 10    2 number of extents, 0..512
//	 12    4 payload bytes as stored in the slot
//	 16    4 payload bytes once decoded
//	 20    4 zero
//	 24      extents, 64 bytes each:
//	           0  8 entry id
//	           8  8 offset in the file
//	          16  8 length in the file
//	          24  4 offset in the decoded payload
//	          28  2 flags
//	          30  2 zero
//	          32 32 digest of the extent's plain bytes
//	end    8 XXH3-64 over the end-to-end part so far
//
// Where chunks are encrypted the end-to-end part with its checksum is, too, and
// a tag follows it, which is part of its length. The hop part is vouched for
// by that tag.
const (
	headerMagic  = 0x4b484347
	hopBytes     = 64
	chunkBytes0  = 24 // end-to-end part before its extents
	extentBytes  = 64
	sumBytes     = 8
	maxExtents   = 512
	headerStride = 36 << 10 // room for 512 extents, whole pages
)

// Codec is how a chunk's payload is stored.
type Codec uint8

// The codecs.
const (
	codecPlain Codec = iota
	codecZstd
	codecS2
)

// chunkRepair marks a chunk of extents sent before and asked for again.
const chunkRepair = 1

// Flags of an extent.
const (
	extLast    = 1 << iota // the file ends here
	extHole                // a run of zero bytes, not sent
	extChanged             // the file changed while it was read: do not publish
	extFailed              // the file could not be read: do not publish
	extReject              // the file is not what the given manifest says
	extGrown               // beside extLast: the file has grown, and goes on behind it
	extGivenUp = extChanged | extFailed | extReject
	extKnown   = extLast | extHole | extGivenUp | extGrown
)

// extent is a stretch of one file: a piece of it, a whole small file, or a
// hole.
type extent struct {
	entry   uint64
	off     int64
	length  int64
	slotOff uint32
	flags   uint16
	digest  manifest.Digest
}

// chunkHeader is a decoded header.
type chunkHeader struct {
	session     uint64
	epoch       uint32
	slot        uint32
	generation  uint64
	id          uint64
	codec       Codec
	repair      bool
	storedBytes uint32
	plainBytes  uint32
	extents     []extent
	// Of the payload's seal, where chunks are encrypted.
	sealNumber uint64
	sealTag    [trust.TagBytes]byte
}

// encode writes the header to b, which holds headerStride bytes, and returns
// its length.
func (h *chunkHeader) encode(b []byte) int {
	le := binary.LittleEndian
	clear(b[:hopBytes+chunkBytes0])
	e2e := b[hopBytes:]
	le.PutUint64(e2e, h.id)
	e2e[8] = byte(h.codec)
	if h.repair {
		e2e[9] = chunkRepair
	}
	le.PutUint16(e2e[10:], uint16(len(h.extents)))
	le.PutUint32(e2e[12:], h.storedBytes)
	le.PutUint32(e2e[16:], h.plainBytes)
	at := chunkBytes0
	for i := range h.extents {
		x, p := &h.extents[i], e2e[at:at+extentBytes]
		le.PutUint64(p, x.entry)
		le.PutUint64(p[8:], uint64(x.off))
		le.PutUint64(p[16:], uint64(x.length))
		le.PutUint32(p[24:], x.slotOff)
		le.PutUint16(p[28:], x.flags)
		le.PutUint16(p[30:], 0)
		copy(p[32:], x.digest[:])
		at += extentBytes
	}
	at += sumBytes
	putSum(e2e[:at])
	le.PutUint32(b, headerMagic)
	le.PutUint32(b[4:], uint32(at))
	le.PutUint64(b[8:], h.session)
	le.PutUint32(b[16:], h.epoch)
	le.PutUint32(b[20:], h.slot)
	le.PutUint64(b[24:], h.generation)
	le.PutUint64(b[32:], h.sealNumber)
	copy(b[40:], h.sealTag[:])
	return hopBytes + at
}

// putSum writes the checksum at the end of an end-to-end part.
func putSum(e2e []byte) {
	n := len(e2e) - sumBytes
	binary.LittleEndian.PutUint64(e2e[n:], xxh3.Hash(e2e[:n]))
}

// decode reads a header from b, memory that nobody else writes to. What damage
// on the way can do to it gives errHeaderSum. It checks
// form and checksum and that every extent lies inside a payload of at most
// chunkBytes; what the extents mean is for the ledger to check. The extents
// are appended to h.extents[:0].
func (h *chunkHeader) decode(b []byte, chunkBytes int) error {
	le := binary.LittleEndian
	if len(b) < hopBytes+chunkBytes0+sumBytes || le.Uint32(b) != headerMagic || le.Uint64(b[56:]) != 0 {
		return errHeaderSum
	}
	n := int(le.Uint32(b[4:]))
	if n < chunkBytes0+sumBytes || n > len(b)-hopBytes {
		return errHeaderSum
	}
	e2e := b[hopBytes : hopBytes+n]
	if xxh3.Hash(e2e[:n-sumBytes]) != le.Uint64(e2e[n-sumBytes:]) {
		return errHeaderSum
	}
	h.session, h.epoch = le.Uint64(b[8:]), le.Uint32(b[16:])
	h.slot, h.generation = le.Uint32(b[20:]), le.Uint64(b[24:])
	h.sealNumber = le.Uint64(b[32:])
	copy(h.sealTag[:], b[40:])
	h.id, h.codec, h.repair = le.Uint64(e2e), Codec(e2e[8]), e2e[9]&chunkRepair != 0
	h.storedBytes, h.plainBytes = le.Uint32(e2e[12:]), le.Uint32(e2e[16:])
	count := int(le.Uint16(e2e[10:]))
	if count > maxExtents || n != chunkBytes0+count*extentBytes+sumBytes || le.Uint32(e2e[20:]) != 0 {
		return fmt.Errorf("%w: header of %d bytes with %d extents", ErrProtocol, n, count)
	}
	if h.codec > codecS2 || e2e[9] > chunkRepair || int64(h.storedBytes) > int64(chunkBytes) || int64(h.plainBytes) > int64(chunkBytes) ||
		(h.codec == codecPlain && h.storedBytes != h.plainBytes) {
		return fmt.Errorf("%w: chunk %d: codec %d, %d bytes stored, %d plain", ErrProtocol, h.id, h.codec, h.storedBytes, h.plainBytes)
	}
	h.extents = h.extents[:0]
	for i := range count {
		p := e2e[chunkBytes0+i*extentBytes:]
		x := extent{
			entry: le.Uint64(p), off: int64(le.Uint64(p[8:])), length: int64(le.Uint64(p[16:])),
			slotOff: le.Uint32(p[24:]), flags: le.Uint16(p[28:]),
		}
		copy(x.digest[:], p[32:])
		if le.Uint16(p[30:]) != 0 {
			return fmt.Errorf("%w: chunk %d, extent %d: a field of a later version", ErrProtocol, h.id, i)
		}
		if err := x.check(h.plainBytes); err != nil {
			return fmt.Errorf("chunk %d, extent %d: %w", h.id, i, err)
		}
		h.extents = append(h.extents, x)
	}
	return nil
}

// maxFileBytes bounds offsets so that sums of two never overflow.
const maxFileBytes = 1 << 62

func (x *extent) check(plainBytes uint32) error {
	if x.off < 0 || x.length < 0 || x.off > maxFileBytes || x.length > maxFileBytes || x.flags&^extKnown != 0 {
		return fmt.Errorf("%w: offset %d, length %d, flags %#x", ErrProtocol, x.off, x.length, x.flags)
	}
	if x.flags&extHole == 0 && (x.length > int64(plainBytes) || int64(x.slotOff) > int64(plainBytes)-x.length) {
		return fmt.Errorf("%w: %d bytes at %d of a payload of %d", ErrProtocol, x.length, x.slotOff, plainBytes)
	}
	return nil
}

// An immediate names the slot that was filled and the low bits of its
// generation: 12 bits of slot, 20 of generation.
const (
	immSlotBits = 12
	maxSlots    = 1 << immSlotBits
	immGenMask  = 1<<(32-immSlotBits) - 1
)

func immediate(slot int, generation uint64) uint32 {
	return uint32(slot)<<(32-immSlotBits) | uint32(generation&immGenMask)
}

func splitImmediate(imm uint32) (slot int, generation uint32) {
	return int(imm >> (32 - immSlotBits)), imm & immGenMask
}
