package flow

import (
	"encoding/binary"

	"gdrcp/internal/trust"
	"gdrcp/xfer/internal/wire"
)

// SealPad is the room after each slot of a source that encrypts chunks. It holds a tag, and keeps
// slots aligned to pages.
const SealPad = 4096

// chunkSeals returns the seals of the chunks that this end sends (mine) or receives. It returns nil
// if chunks are not encrypted.
func (s *Session) chunkSeals(mine bool) *trust.Chunks {
	if !s.Terms.Encrypted() {
		return nil
	}
	return s.Trust.Chunks(mine)
}

// SealPayload encrypts a filled slot. A chunk that is sent again is filled again and gets another
// number.
func (o *Sender[C]) SealPayload(s *Slot[C]) {
	if o.seals == nil {
		return
	}
	c := &s.Chunk
	c.SealNumber, c.SealTag = o.seals.SealPayload(o.Session.Link.Ring.Slot(s.Index)[:c.StoredBytes])
}

// sealHeader encrypts an encoded header of n bytes for its epoch, slot and generation, and returns
// its new length. The same header for the same place gives the same bytes.
func (o *Sender[C]) sealHeader(b []byte, n int, c *wire.ChunkHeader) int {
	if o.seals == nil {
		return n
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(n-wire.HopBytes+trust.TagBytes))
	return wire.HopBytes + len(o.seals.SealHeader(b[wire.HopBytes:n], b[:wire.HopBytes], trust.HeaderPlace{
		Epoch: uint16(c.Link), Slot: uint16(c.Slot), Generation: c.Generation,
	}))
}

// openHeader decrypts in place a header of len(b) bytes that nobody else writes to. The header must
// be for this slot and generation. Otherwise it was damaged or forged, and the error is
// wire.ErrHeaderSum.
func (f *Receiver) openHeader(b []byte, a Filled) ([]byte, error) {
	if f.Seals == nil {
		return b, nil
	}
	plain, err := f.Seals.OpenHeader(b[wire.HopBytes:], b[:wire.HopBytes], trust.HeaderPlace{Epoch: uint16(a.link.Number), Slot: uint16(a.Slot), Generation: a.Generation})
	if err != nil {
		return nil, wire.ErrHeaderSum
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(len(plain)))
	return b[:wire.HopBytes+len(plain)], nil
}

// Unseal returns the stored bytes of a chunk. They are in the slot or, if chunks are encrypted, in
// the worker's own memory. Unseal copies encrypted bytes before it opens them: between the check of
// the tag and decryption, the peer or a forger of its packets could change the slot. ErrPayload
// says that the seal is broken.
func (u *Unpacker) Unseal(seals *trust.Chunks, h *wire.ChunkHeader, slot []byte, chunkBytes int) ([]byte, error) {
	if seals == nil {
		return slot, nil
	}
	if u.opened == nil {
		u.opened = make([]byte, 0, chunkBytes+trust.TagBytes)
	}
	b := append(u.opened[:0], slot...)
	if err := seals.OpenPayload(b, h.SealNumber, h.SealTag); err != nil {
		return nil, ErrPayload
	}
	return b, nil
}
