package trust

import (
	"crypto/cipher"
	"encoding/binary"
	"errors"
	"sync/atomic"
)

// ErrForged is the error for sealed data that was modified, repeated, moved, or
// sealed with another key.
var ErrForged = errors.New("the seal is broken")

const (
	// TagBytes is the length of a tag (AES-256-GCM, NIST SP 800-38D).
	TagBytes     = 16
	nonceBytes   = 12
	counterBytes = 8
	// SealBytes is the overhead of a sealed message.
	SealBytes = counterBytes + TagBytes
)

// Sealer seals messages of one direction of one queue pair. Each has its own number, so
// that no two messages have the same nonce. It is not safe for concurrent use.
type Sealer struct {
	aead  cipher.AEAD
	used  uint64
	nonce [nonceBytes]byte
}

// Seal appends the sealed message to dst: its number (8 bytes, little-endian), the
// ciphertext and the tag. dst and plain must not overlap.
func (s *Sealer) Seal(dst, plain []byte) []byte {
	s.used++
	dst = binary.LittleEndian.AppendUint64(dst, s.used)
	binary.LittleEndian.PutUint64(s.nonce[:], s.used)
	return s.aead.Seal(dst, s.nonce[:], plain, nil)
}

// Opener opens messages of the peer's Sealer. Numbers may be skipped, because a
// sealed message may not have been sent. But they must increase: no message is
// accepted twice or out of order. It is not safe for concurrent use.
type Opener struct {
	aead  cipher.AEAD
	last  uint64
	nonce [nonceBytes]byte
}

// Open returns the message, which it decrypts in place, or ErrForged.
func (o *Opener) Open(sealed []byte) ([]byte, error) {
	if len(sealed) < SealBytes {
		return nil, ErrForged
	}
	number := binary.LittleEndian.Uint64(sealed)
	if number <= o.last {
		return nil, ErrForged
	}
	binary.LittleEndian.PutUint64(o.nonce[:], number)
	plain, err := o.aead.Open(sealed[counterBytes:counterBytes], o.nonce[:], sealed[counterBytes:], nil)
	if err != nil {
		return nil, ErrForged
	}
	o.last = number
	return plain, nil
}

// Chunks seals, or opens, the headers and payloads of chunks, which are sent
// outside of messages. It is safe for concurrent use.
type Chunks struct {
	header, payload cipher.AEAD
	used            atomic.Uint64
}

// SealPayload encrypts b in place. b must have a capacity of TagBytes more, which are
// overwritten. The number and the tag must be sent to the peer in the chunk's header,
// whose own seal protects them. Every call uses another number, so that no two payloads of
// a session share a nonce, not even those of a chunk that is sent again.
func (c *Chunks) SealPayload(b []byte) (number uint64, tag [TagBytes]byte) {
	number = c.used.Add(1)
	var nonce [nonceBytes]byte
	binary.LittleEndian.PutUint64(nonce[:], number)
	sealed := c.payload.Seal(b[:0], nonce[:], b, nil)
	copy(tag[:], sealed[len(b):])
	return number, tag
}

// OpenPayload decrypts b in place. b must have a capacity of TagBytes more,
// which are overwritten. Nothing else may write to b meanwhile.
func (c *Chunks) OpenPayload(b []byte, number uint64, tag [TagBytes]byte) error {
	var nonce [nonceBytes]byte
	binary.LittleEndian.PutUint64(nonce[:], number)
	if _, err := c.payload.Open(b[:0], nonce[:], append(b, tag[:]...), nil); err != nil {
		return ErrForged
	}
	return nil
}

// HeaderPlace is the place that a header is sealed for: a slot of the sink and
// its generation. A source never uses a place twice.
type HeaderPlace struct {
	Epoch      uint16
	Slot       uint16
	Generation uint64
}

func (p HeaderPlace) nonce() (n [nonceBytes]byte) {
	binary.LittleEndian.PutUint64(n[:], p.Generation)
	binary.LittleEndian.PutUint16(n[8:], p.Slot)
	binary.LittleEndian.PutUint16(n[10:], p.Epoch)
	return n
}

// SealHeader encrypts b in place, for one place, and appends the tag; outside
// is authenticated but not encrypted. b must have a capacity of TagBytes more.
func (c *Chunks) SealHeader(b, outside []byte, p HeaderPlace) []byte {
	nonce := p.nonce()
	return c.header.Seal(b[:0], nonce[:], b, outside)
}

// OpenHeader decrypts b, with its tag, in place.
func (c *Chunks) OpenHeader(b, outside []byte, p HeaderPlace) ([]byte, error) {
	nonce := p.nonce()
	plain, err := c.header.Open(b[:0], nonce[:], b, outside)
	if err != nil {
		return nil, ErrForged
	}
	return plain, nil
}
