package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DiskIO has the numbers of bytes by I/O mode, and is the body of MsgWritten and MsgRead:
// see fileset.IOMode.
type DiskIO struct {
	Direct    int64 `json:"direct_bytes"`
	DontCache int64 `json:"dontcache_bytes"`
	Buffered  int64 `json:"buffered_bytes"`
}

// CacheOnly reports whether all bytes went through the page cache as usual, or there were
// none.
func (r DiskIO) CacheOnly() bool { return r.Direct == 0 && r.DontCache == 0 }

// Encode returns the body of the message: the numbers, in order.
func (r DiskIO) Encode() []byte {
	var b []byte
	for _, n := range []int64{r.Direct, r.DontCache, r.Buffered} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	return b
}

// DecodeDiskIO is Encode's inverse.
func DecodeDiskIO(b []byte) (r DiskIO, err error) {
	c := Cursor{Buf: b}
	for _, to := range []*int64{&r.Direct, &r.DontCache, &r.Buffered} {
		n := c.Uvarint()
		if n > math.MaxInt64 {
			return DiskIO{}, fmt.Errorf("%w: %d bytes by one rung", ErrProtocol, n)
		}
		*to = int64(n)
	}
	return r, c.Err("bytes by rung")
}
