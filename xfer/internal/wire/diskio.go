package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// DiskIO is how many bytes took which rung between memory and disk, and the body of
// MsgWritten and MsgRead: see fileset.IOMode.
type DiskIO struct {
	Direct    int64 `json:"direct_bytes"`
	DontCache int64 `json:"dontcache_bytes"`
	Buffered  int64 `json:"buffered_bytes"`
	// Registered is what devices read from, or wrote to, files in memory.
	Registered int64 `json:"registered_bytes,omitempty"`
}

// CacheOnly reports whether all bytes went through the page cache as ever, or there were none.
func (r DiskIO) CacheOnly() bool { return r.Direct == 0 && r.DontCache == 0 && r.Registered == 0 }

// Encode returns the body of the message: the numbers, in order. Registered is left out if it is
// 0.
func (r DiskIO) Encode() []byte {
	var b []byte
	for _, n := range []int64{r.Direct, r.DontCache, r.Buffered} {
		b = binary.AppendUvarint(b, uint64(n))
	}
	if r.Registered > 0 {
		b = binary.AppendUvarint(b, uint64(r.Registered))
	}
	return b
}

// DecodeDiskIO is Encode's inverse.
func DecodeDiskIO(b []byte) (r DiskIO, err error) {
	c := Cursor{Buf: b}
	for i, to := range []*int64{&r.Direct, &r.DontCache, &r.Buffered, &r.Registered} {
		if i == 3 && len(c.Buf) == 0 {
			break
		}
		n := c.Uvarint()
		if n > math.MaxInt64 || i == 3 && n == 0 {
			return DiskIO{}, fmt.Errorf("%w: %d bytes by one rung", ErrProtocol, n)
		}
		*to = int64(n)
	}
	return r, c.Err("bytes by rung")
}
