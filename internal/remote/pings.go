package remote

import (
	"encoding/binary"
	"fmt"
	"io"
)

// The format of a frame: yamux's spec.md, "Framing". All frames have a header;
// only data frames have more.
const (
	frameHeadBytes = 12
	frameTypeAt    = 1 // u8
	frameLengthAt  = 8 // u32, big-endian: in data frames, the number of bytes after the header
	frameOfData    = 0
	frameOfPing    = 2
)

// noPings is a pipe that fails when the peer sends a ping, which gdrcp never does. yamux
// answers each ping in a goroutine of its own, which blocks while the pipe accepts no
// data, so a far end that reads nothing could fill this end's memory.
type noPings struct {
	io.ReadWriteCloser
	head [frameHeadBytes]byte
	have int    // bytes of the header read so far
	left uint32 // bytes of data until the next header
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
