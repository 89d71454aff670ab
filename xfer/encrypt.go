package xfer

import (
	"encoding/binary"

	"gdrcp/internal/trust"
	"gdrcp/xfer/internal/wire"
)

// sealPad is what a source's slot has behind it where chunks are encrypted: room
// for a tag, and the next slot begins at a page again.
const sealPad = 4096

// chunkSeals returns the seals of the chunks that this end sends, or of those
// that it takes; nil where they are not encrypted.
func (s *session) chunkSeals(mine bool) *trust.Chunks {
	if !s.terms.Encrypted() {
		return nil
	}
	return s.trust.Chunks(mine)
}

// sealPayload encrypts a filled slot. A chunk that is sent again is filled
// again, and gets another number.
func (o *chunkSender) sealPayload(s *outSlot) {
	if o.seals == nil {
		return
	}
	c := &s.chunk
	c.SealNumber, c.SealTag = o.seals.SealPayload(o.session.ring.Slot(s.index)[:c.StoredBytes])
}

// sealHeader encrypts an encoded header of n bytes, for the place that it says,
// and returns its new length. The same header for the same place comes out the same.
func (o *chunkSender) sealHeader(b []byte, n int, c *wire.ChunkHeader) int {
	if o.seals == nil {
		return n
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(n-wire.HopBytes+trust.TagBytes))
	return wire.HopBytes + len(o.seals.SealHeader(b[wire.HopBytes:n], b[:wire.HopBytes], trust.HeaderPlace{
		Epoch: uint16(c.Epoch), Slot: uint16(c.Slot), Generation: c.Generation,
	}))
}

// openHeader decrypts a header of len(b) bytes, which nobody else writes to, in
// place. It has to be for this slot and generation; else it was damaged, or
// forged.
func (f *chunkReceiver) openHeader(b []byte, a filledSlot) ([]byte, error) {
	if f.seals == nil {
		return b, nil
	}
	plain, err := f.seals.OpenHeader(b[wire.HopBytes:], b[:wire.HopBytes], trust.HeaderPlace{Epoch: 1, Slot: uint16(a.slot), Generation: a.generation})
	if err != nil {
		return nil, wire.ErrHeaderSum
	}
	binary.LittleEndian.PutUint32(b[4:], uint32(len(plain)))
	return b[:wire.HopBytes+len(plain)], nil
}

// unseal returns a chunk's stored bytes: those in the slot, or, where chunks are
// encrypted, in memory of the worker's own. They are copied before they are
// opened: between the check of the tag and decryption the peer, or who forges
// its packets, could change them. errPayload is of a seal that is broken.
func (u *unpacker) unseal(seals *trust.Chunks, h *wire.ChunkHeader, slot []byte, chunkBytes int) ([]byte, error) {
	if seals == nil {
		return slot, nil
	}
	if u.opened == nil {
		u.opened = make([]byte, 0, chunkBytes+trust.TagBytes)
	}
	b := append(u.opened[:0], slot...)
	if err := seals.OpenPayload(b, h.SealNumber, h.SealTag); err != nil {
		return nil, errPayload
	}
	return b, nil
}
