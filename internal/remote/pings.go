package remote

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The form of a frame: yamux's spec.md, "Framing". All frames have a head; only those of
// data have more.
const (
	frameHeadBytes = 12
	frameTypeAt    = 1 // u8
	frameLengthAt  = 8 // u32, big-endian: of data, the bytes behind the head
	frameOfData    = 0
	frameOfPing    = 2
)

// noPings is a pipe that ends with an error when the other end sends a ping. No end here
// sends any. yamux answers each ping in a goroutine of its own, which waits while the
// pipe takes no data: a far end that reads nothing could fill this end's memory.
type noPings struct {
	io.ReadWriteCloser
	head [frameHeadBytes]byte
	have int    // bytes of head
	left uint32 // bytes of data until the next head
}

func (p *noPings) Read(b []byte) (int, error) {
	n, err := p.ReadWriteCloser.Read(b)
	for seen := b[:n]; len(seen) > 0; {
		if p.left > 0 {
			skipped := min(uint64(p.left), uint64(len(seen)))
			p.left -= uint32(skipped)
			seen = seen[skipped:]
			continue
		}
		copied := copy(p.head[p.have:], seen)
		p.have += copied
		seen = seen[copied:]
		if p.have < frameHeadBytes {
			continue
		}
		p.have = 0
		switch p.head[frameTypeAt] {
		case frameOfData:
			p.left = binary.BigEndian.Uint32(p.head[frameLengthAt:])
		case frameOfPing:
			return 0, fmt.Errorf("%w: a ping", errMessage)
		}
	}
	return n, err
}
