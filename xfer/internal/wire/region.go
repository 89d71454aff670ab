package wire

import (
	"encoding/binary"
	"fmt"
)

// FileRegion is the body of MsgRegion: a range of a file at the sink that is registered as it
// is. A chunk with bytes of that range may bring them there and not to its slot. On tells the
// range's place on the rails of links: there are no more than MaxRegionLinks.
type FileRegion struct {
	Entry  uint64
	Number uint32 // from 1, in the session
	Off    int64  // in the file
	Bytes  int64
	On     []RegionOn
}

// RegionOn is a region's place on the rail of a link.
type RegionOn struct {
	Link uint32
	Key  uint32
	Addr uint64
}

// MaxRegionLinks bounds the links that a region is told for.
const MaxRegionLinks = 64

// Encode returns the body of MsgRegion.
func (r *FileRegion) Encode() []byte {
	b := binary.AppendUvarint(nil, r.Entry)
	for _, v := range []uint64{uint64(r.Number), uint64(r.Off), uint64(r.Bytes)} {
		b = binary.AppendUvarint(b, v)
	}
	for _, on := range r.On {
		b = binary.AppendUvarint(b, uint64(on.Link))
		b = binary.AppendUvarint(b, uint64(on.Key))
		b = binary.AppendUvarint(b, on.Addr)
	}
	return b
}

// DecodeFileRegion is Encode's inverse. It checks that the range and the addresses end
// somewhere.
func DecodeFileRegion(b []byte) (r FileRegion, err error) {
	c := Cursor{Buf: b}
	entry, number, off, n := c.Uvarint(), c.Uvarint(), c.Uvarint(), c.Uvarint()
	if c.Bad || number == 0 || number > MaxRegions || off > MaxFileBytes || n == 0 || n > MaxFileBytes-off {
		return r, fmt.Errorf("%w: region %d of entry %d: %d bytes at %d", ErrProtocol, number, entry, n, off)
	}
	r = FileRegion{Entry: entry, Number: uint32(number), Off: int64(off), Bytes: int64(n)}
	for len(c.Buf) > 0 {
		link, key, addr := c.Uvarint(), c.Uvarint(), c.Uvarint()
		if c.Bad || link == 0 || link > MaxLinks || key > 1<<32-1 || addr+n < addr || len(r.On) == MaxRegionLinks {
			return FileRegion{}, fmt.Errorf("%w: region %d on link %d at %#x", ErrProtocol, number, link, addr)
		}
		r.On = append(r.On, RegionOn{Link: uint32(link), Key: uint32(key), Addr: addr})
	}
	return r, nil
}

// MaxRegions bounds the numbers of a session's regions.
const MaxRegions = 1<<32 - 1
