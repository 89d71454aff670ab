package wire

import (
	"encoding/binary"
	"fmt"

	"gdrcp/internal/trust"
	"gdrcp/manifest"

	"github.com/zeebo/xxh3"
)

// A chunk's header is sent by RDMA Write to the sink's header ring, ahead of the payload.
// It is little-endian. The hop part is for this hop only:
//
//	offset size field
//	     0    4 magic "GCHK"
//	     4    4 length of the end-to-end part, bytes
//	     8    8 session (first 8 bytes of its id)
//	    16    4 link
//	    20    4 slot
//	    24    8 generation of the slot
//	    32    8 number of the payload's seal, if chunks are encrypted
//	    40   16 tag of the payload's seal
//	    56    8 zero
//
// The end-to-end part describes what the chunk contains and where it belongs. It has its
// own checksum, because digests prove bytes, not placement:
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
// If chunks are encrypted, the end-to-end part is encrypted together with its checksum. It
// is followed by a tag, which is included in its length and also authenticates the hop
// part.
const (
	headerMagic    = 0x4b484347
	HopBytes       = 64
	BareChunkBytes = 24 // end-to-end part without its extents
	extentBytes    = 64
	SumBytes       = 8
	MaxExtents     = 512
	HeaderStride   = 36 << 10 // room for 512 extents, whole pages
)

// Codec is the encoding of a chunk's payload.
type Codec uint8

// The codecs.
const (
	CodecPlain Codec = 0
	CodecZstd  Codec = 1
	CodecS2    Codec = 2
)

// chunkRepair marks a chunk of extents that were sent before and requested again.
const chunkRepair = 1

// The flags of an extent.
const (
	ExtLast    = 1 << 0 // the file ends here
	ExtHole    = 1 << 1 // a run of zero bytes, not sent
	ExtChanged = 1 << 2 // the file changed while it was read: do not publish
	ExtFailed  = 1 << 3 // the file could not be read: do not publish
	ExtReject  = 1 << 4 // the file does not match the given manifest
	ExtGrown   = 1 << 5 // with ExtLast: the file has grown, and continues after this extent
	ExtArrived = 1 << 6 // the pieces that an earlier copy transferred, not sent
	ExtDigest  = 1 << 7 // a piece that the sink compares with its own, not sent unless requested
	ExtGivenUp = ExtChanged | ExtFailed | ExtReject
	extKnown   = ExtLast | ExtHole | ExtGivenUp | ExtGrown | ExtArrived | ExtDigest
	extAbsent  = ExtHole | ExtArrived | ExtDigest // reasons why the bytes are not in the chunk
)

// Extent is a range of one file: a piece of it, a whole small file, a hole, what an
// earlier copy transferred, or a piece of which only the digest is sent.
type Extent struct {
	Entry   uint64
	Off     int64
	Length  int64
	SlotOff uint32
	Flags   uint16
	Digest  manifest.Digest
}

// Brings reports whether the extent's bytes are in the chunk.
func (x *Extent) Brings() bool { return x.Flags&extAbsent == 0 }

// ChunkHeader is a decoded header.
type ChunkHeader struct {
	Session     uint64
	Link        uint32 // the link that it is sent over
	Slot        uint32
	Generation  uint64
	ID          uint64
	Codec       Codec
	Repair      bool
	StoredBytes uint32
	PlainBytes  uint32
	Extents     []Extent
	// SealNumber and SealTag belong to the payload's seal if chunks are encrypted.
	SealNumber uint64
	SealTag    [trust.TagBytes]byte
}

// Encode writes the header to b, which has HeaderStride bytes, and returns its length.
func (h *ChunkHeader) Encode(b []byte) int {
	le := binary.LittleEndian
	clear(b[:HopBytes+BareChunkBytes])
	e2e := b[HopBytes:]
	le.PutUint64(e2e, h.ID)
	e2e[8] = byte(h.Codec)
	if h.Repair {
		e2e[9] = chunkRepair
	}
	le.PutUint16(e2e[10:], uint16(len(h.Extents)))
	le.PutUint32(e2e[12:], h.StoredBytes)
	le.PutUint32(e2e[16:], h.PlainBytes)
	at := BareChunkBytes
	for i := range h.Extents {
		x, p := &h.Extents[i], e2e[at:at+extentBytes]
		le.PutUint64(p, x.Entry)
		le.PutUint64(p[8:], uint64(x.Off))
		le.PutUint64(p[16:], uint64(x.Length))
		le.PutUint32(p[24:], x.SlotOff)
		le.PutUint16(p[28:], x.Flags)
		le.PutUint16(p[30:], 0)
		copy(p[32:], x.Digest[:])
		at += extentBytes
	}
	at += SumBytes
	PutSum(e2e[:at])
	le.PutUint32(b, headerMagic)
	le.PutUint32(b[4:], uint32(at))
	le.PutUint64(b[8:], h.Session)
	le.PutUint32(b[16:], h.Link)
	le.PutUint32(b[20:], h.Slot)
	le.PutUint64(b[24:], h.Generation)
	le.PutUint64(b[32:], h.SealNumber)
	copy(b[40:], h.SealTag[:])
	return HopBytes + at
}

// PutSum writes the checksum to the end of an end-to-end part.
func PutSum(e2e []byte) {
	n := len(e2e) - SumBytes
	binary.LittleEndian.PutUint64(e2e[n:], xxh3.Hash(e2e[:n]))
}

// Decode reads a header from b, which must be private memory. If the header was damaged on
// the way, the error is ErrHeaderSum. Decode checks format and checksum, and that every
// extent lies within a payload of at most chunkBytes. The ledger checks the meaning of the
// extents. Decode appends the extents to h.Extents[:0].
func (h *ChunkHeader) Decode(b []byte, chunkBytes int) error {
	le := binary.LittleEndian
	if len(b) < HopBytes+BareChunkBytes+SumBytes || le.Uint32(b) != headerMagic || le.Uint64(b[56:]) != 0 {
		return ErrHeaderSum
	}
	n := int(le.Uint32(b[4:]))
	if n < BareChunkBytes+SumBytes || n > len(b)-HopBytes {
		return ErrHeaderSum
	}
	e2e := b[HopBytes : HopBytes+n]
	if xxh3.Hash(e2e[:n-SumBytes]) != le.Uint64(e2e[n-SumBytes:]) {
		return ErrHeaderSum
	}
	h.Session, h.Link = le.Uint64(b[8:]), le.Uint32(b[16:])
	h.Slot, h.Generation = le.Uint32(b[20:]), le.Uint64(b[24:])
	h.SealNumber = le.Uint64(b[32:])
	copy(h.SealTag[:], b[40:])
	h.ID, h.Codec, h.Repair = le.Uint64(e2e), Codec(e2e[8]), e2e[9]&chunkRepair != 0
	h.StoredBytes, h.PlainBytes = le.Uint32(e2e[12:]), le.Uint32(e2e[16:])
	count := int(le.Uint16(e2e[10:]))
	if count > MaxExtents || n != BareChunkBytes+count*extentBytes+SumBytes || le.Uint32(e2e[20:]) != 0 {
		return fmt.Errorf("%w: header of %d bytes with %d extents", ErrProtocol, n, count)
	}
	if h.Codec > CodecS2 || e2e[9] > chunkRepair || int64(h.StoredBytes) > int64(chunkBytes) || int64(h.PlainBytes) > int64(chunkBytes) ||
		(h.Codec == CodecPlain && h.StoredBytes != h.PlainBytes) {
		return fmt.Errorf("%w: chunk %d: codec %d, %d bytes stored, %d plain", ErrProtocol, h.ID, h.Codec, h.StoredBytes, h.PlainBytes)
	}
	h.Extents = h.Extents[:0]
	for i := range count {
		p := e2e[BareChunkBytes+i*extentBytes:]
		x := Extent{
			Entry: le.Uint64(p), Off: int64(le.Uint64(p[8:])), Length: int64(le.Uint64(p[16:])),
			SlotOff: le.Uint32(p[24:]), Flags: le.Uint16(p[28:]),
		}
		copy(x.Digest[:], p[32:])
		if le.Uint16(p[30:]) != 0 {
			return fmt.Errorf("%w: chunk %d, extent %d: a field of a later version", ErrProtocol, h.ID, i)
		}
		if err := x.check(h.PlainBytes); err != nil {
			return fmt.Errorf("chunk %d, extent %d: %w", h.ID, i, err)
		}
		h.Extents = append(h.Extents, x)
	}
	return nil
}

// MaxFileBytes bounds the ends of extents and the sizes of files, so that adding one more
// length never overflows.
const MaxFileBytes = 1 << 62

func (x *Extent) check(plainBytes uint32) error {
	if x.Off < 0 || x.Length < 0 || x.Off > MaxFileBytes || x.Length > MaxFileBytes-x.Off || x.Flags&^extKnown != 0 {
		return fmt.Errorf("%w: offset %d, length %d, flags %#x", ErrProtocol, x.Off, x.Length, x.Flags)
	}
	if absent := x.Flags & extAbsent; absent&(absent-1) != 0 {
		return fmt.Errorf("%w: an extent with the flags %#x, of which one can be", ErrProtocol, x.Flags)
	}
	if x.Brings() && (x.Length > int64(plainBytes) || int64(x.SlotOff) > int64(plainBytes)-x.Length) {
		return fmt.Errorf("%w: %d bytes at %d of a payload of %d", ErrProtocol, x.Length, x.SlotOff, plainBytes)
	}
	return nil
}

// An immediate has the filled slot and the low bits of its generation: 12 bits of slot, 20
// of generation.
const (
	immSlotBits       = 12
	MaxImmediateSlots = 1 << immSlotBits
	ImmGenMask        = 1<<(32-immSlotBits) - 1
)

// Immediate returns the number that announces the chunk in a slot.
func Immediate(slot int, generation uint64) uint32 {
	return uint32(slot)<<(32-immSlotBits) | uint32(generation&ImmGenMask)
}

// SplitImmediate is Immediate's inverse. It returns only the low bits of the
// generation.
func SplitImmediate(imm uint32) (slot int, generation uint32) {
	return int(imm >> (32 - immSlotBits)), imm & ImmGenMask
}

// CheckGrown refuses an extent that marks its file as grown in a way that no source would.
func (x *Extent) CheckGrown(p *Terms) error {
	if x.Flags&ExtGrown != 0 && (!p.Has(FlagGrowing) || x.Flags&ExtLast == 0) {
		return fmt.Errorf("%w: a file that grew, with flags %#x", ErrProtocol, x.Flags)
	}
	return nil
}
