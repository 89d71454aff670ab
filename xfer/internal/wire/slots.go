package wire

import (
	"encoding/binary"
	"fmt"
)

// RingInfo has the addresses and keys of a sink's slots on the rail of a link, in MsgRing:
// fixed, little-endian.
type RingInfo struct {
	Link        uint32 // from 1; see credit.Link
	Slots       uint32
	SlotBytes   uint32
	PayloadAddr uint64
	HeaderAddr  uint64
	PayloadKey  uint32
	HeaderKey   uint32
	// NearSlots slots from NearFrom on are near to the link's device at the sink. Both are
	// 0 if that does not matter, and for a source that does not support it.
	NearFrom, NearSlots uint32
}

// Encode returns the body of MsgRing.
func (r *RingInfo) Encode() []byte {
	b := make([]byte, ringInfoBytes)
	le := binary.LittleEndian
	le.PutUint32(b[4:], r.Link)
	le.PutUint32(b[8:], r.Slots)
	le.PutUint32(b[12:], r.SlotBytes)
	le.PutUint64(b[16:], r.PayloadAddr)
	le.PutUint64(b[24:], r.HeaderAddr)
	le.PutUint32(b[32:], r.PayloadKey)
	le.PutUint32(b[36:], r.HeaderKey)
	if r.NearSlots > 0 {
		b = le.AppendUint32(le.AppendUint32(b, r.NearFrom), r.NearSlots)
	}
	return b
}

// ringInfoBytes is the length without the near slots, and nearRingBytes with them.
const (
	ringInfoBytes = 40
	nearRingBytes = ringInfoBytes + 8
)

// DecodeRing decodes a sink's ring and checks it against the terms: it has at most slots
// slots. It may have fewer than agreed, because a device may be able to access only a part
// of a GPU's memory.
func DecodeRing(b []byte, slots, slotBytes int) (r RingInfo, err error) {
	if len(b) != ringInfoBytes && len(b) != nearRingBytes {
		return r, fmt.Errorf("%w: ring of %d bytes", ErrProtocol, len(b))
	}
	le := binary.LittleEndian
	r = RingInfo{
		Link: le.Uint32(b[4:]), Slots: le.Uint32(b[8:]), SlotBytes: le.Uint32(b[12:]),
		PayloadAddr: le.Uint64(b[16:]), HeaderAddr: le.Uint64(b[24:]), PayloadKey: le.Uint32(b[32:]), HeaderKey: le.Uint32(b[36:]),
	}
	if len(b) == nearRingBytes {
		r.NearFrom, r.NearSlots = le.Uint32(b[40:]), le.Uint32(b[44:])
	}
	if uint64(r.NearFrom)+uint64(r.NearSlots) > uint64(r.Slots) {
		return r, fmt.Errorf("%w: %d slots from %d on are near, of %d", ErrProtocol, r.NearSlots, r.NearFrom, r.Slots)
	}
	if le.Uint32(b) != 0 || r.Link == 0 || r.Link > MaxLinks || r.Slots == 0 || uint64(r.Slots) > uint64(slots) || int(r.SlotBytes) != slotBytes ||
		r.PayloadAddr+uint64(r.Slots)*uint64(slotBytes) < r.PayloadAddr || r.HeaderAddr+uint64(r.Slots)*HeaderStride < r.HeaderAddr {
		return r, fmt.Errorf("%w: ring of %d slots of %d bytes, agreed were %d of %d", ErrProtocol, r.Slots, r.SlotBytes, slots, slotBytes)
	}
	return r, nil
}

// MaxLinks bounds the numbers of a session's links.
const MaxLinks = 1 << 12

// LostLink is the body of MsgFence and MsgFenced: slots of one link, with their
// generations. In MsgRailDown it has no slots.
type LostLink struct {
	Link  uint32
	Slots []ReturnedSlot // only their Slot and Generation are used
}

// Encode returns the body of a message.
func (l *LostLink) Encode() []byte {
	b := binary.AppendUvarint(nil, uint64(l.Link))
	for i := range l.Slots {
		b = binary.AppendUvarint(b, uint64(l.Slots[i].Slot))
		b = binary.AppendUvarint(b, l.Slots[i].Generation)
	}
	return b
}

// DecodeLostLink decodes a list with at most most slots.
func DecodeLostLink(body []byte, most int) (l LostLink, err error) {
	c := Cursor{Buf: body}
	link := c.Uvarint()
	if c.Bad || link == 0 || link > MaxLinks {
		return l, fmt.Errorf("%w: link %d was lost", ErrProtocol, link)
	}
	l.Link = uint32(link)
	for len(c.Buf) > 0 {
		slot, generation := c.Uvarint(), c.Uvarint()
		if c.Bad || slot >= MaxImmediateSlots || len(l.Slots) == most {
			return l, fmt.Errorf("%w: bad list of the slots of link %d", ErrProtocol, link)
		}
		l.Slots = append(l.Slots, ReturnedSlot{Slot: uint32(slot), Generation: generation})
	}
	return l, nil
}

// ReturnedSlot is one slot in MsgCredit.
type ReturnedSlot struct {
	Slot       uint32
	Generation uint64
	// Again requests the whole chunk again, because its header was damaged.
	Again bool
	// Bad lists the extents that are requested again, by index in the chunk.
	Bad []uint16
}

// AppendReturned appends one slot: slot, generation, then 0, or 1 for the whole chunk,
// or 2 with a count and indices.
func AppendReturned(b []byte, r *ReturnedSlot) []byte {
	b = binary.AppendUvarint(b, uint64(r.Slot))
	b = binary.AppendUvarint(b, r.Generation)
	switch {
	case r.Again:
		b = append(b, 1)
	case len(r.Bad) > 0:
		b = append(b, 2)
		b = binary.AppendUvarint(b, uint64(len(r.Bad)))
		for _, i := range r.Bad {
			b = binary.AppendUvarint(b, uint64(i))
		}
	default:
		b = append(b, 0)
	}
	return b
}

// DecodeCredit calls each for the slots in the body of MsgCredit. bad is a buffer that it
// reuses for each slot.
func DecodeCredit(body []byte, bad []uint16, each func(r *ReturnedSlot) error) error {
	c := Cursor{Buf: body}
	var r ReturnedSlot
	for len(c.Buf) > 0 {
		slot := c.Uvarint()
		r = ReturnedSlot{Slot: uint32(slot), Generation: c.Uvarint(), Bad: bad[:0]}
		switch c.Byte() {
		case 0:
		case 1:
			r.Again = true
		case 2:
			n := c.Uvarint()
			if n > MaxExtents {
				return fmt.Errorf("%w: %d bad extents in a chunk", ErrProtocol, n)
			}
			for range n {
				i := c.Uvarint()
				if i >= MaxExtents || (len(r.Bad) > 0 && i <= uint64(r.Bad[len(r.Bad)-1])) {
					return fmt.Errorf("%w: extent %d of a chunk out of order", ErrProtocol, i)
				}
				r.Bad = append(r.Bad, uint16(i))
			}
		default:
			return fmt.Errorf("%w: slot returned with an unknown wish", ErrProtocol)
		}
		if c.Bad || slot >= MaxImmediateSlots {
			return fmt.Errorf("%w: bad list of slots", ErrProtocol)
		}
		if err := each(&r); err != nil {
			return err
		}
	}
	return c.Err("list of slots")
}

// StreamBytes represents the size of a stream whose end is not known yet. It is larger
// than any file, so that all rules for large files apply to a stream.
const StreamBytes = MaxFileBytes
