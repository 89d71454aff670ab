package flow

import (
	"fmt"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"gdrcp/xfer/internal/wire"
)

// Packer compresses chunks in place, with memory of its own. One worker owns it.
type Packer struct {
	kind    wire.Compress
	scratch []byte
	zstd    *zstd.Encoder
	// skip counts the chunks that CompressAuto leaves plain after some that did not shrink. backoff
	// is the number it skipped last.
	skip, backoff int
}

func NewPacker(kind wire.Compress, chunkBytes int) (*Packer, error) {
	p := &Packer{kind: kind}
	switch kind {
	case wire.CompressOff:
		return p, nil
	case wire.CompressZstd:
		enc, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false))
		if err != nil {
			return nil, fmt.Errorf("start zstd: %w", err)
		}
		p.zstd = enc
		p.scratch = make([]byte, 0, chunkBytes+chunkBytes/128+1024)
	default:
		p.scratch = make([]byte, s2.MaxEncodedLen(chunkBytes))
	}
	return p, nil
}

func (p *Packer) Close() {
	if p.zstd != nil {
		p.zstd.Close()
	}
}

// worthBytes is the most bytes that n bytes may compress to if the chunk is to be stored
// compressed: an eighth less than n.
func worthBytes(n int) int { return n - n/8 }

// Pack compresses the first n bytes of mem in place if that saves an eighth. It returns the codec
// and the number of bytes stored.
func (p *Packer) Pack(mem []byte, n int) (wire.Codec, uint32) {
	if p.kind == wire.CompressOff || n < 1024 {
		return wire.CodecPlain, uint32(n)
	}
	if p.skip > 0 {
		p.skip--
		return wire.CodecPlain, uint32(n)
	}
	var out []byte
	codec := wire.CodecS2
	if p.kind == wire.CompressZstd {
		codec, out = wire.CodecZstd, p.zstd.EncodeAll(mem[:n], p.scratch[:0])
	} else {
		out = s2.Encode(p.scratch, mem[:n])
	}
	if len(out) > worthBytes(n) {
		if p.kind == wire.CompressAuto {
			p.backoff = min(2*p.backoff+1, 63)
			p.skip = p.backoff
		}
		return wire.CodecPlain, uint32(n)
	}
	p.backoff = 0
	copy(mem, out)
	return codec, uint32(len(out))
}

// Unpacker decodes chunks into memory of its own. One worker owns it.
type Unpacker struct {
	opened []byte // for encrypted chunks
	stored []byte
	plain  []byte
	zstd   *zstd.Decoder
}

func (u *Unpacker) Close() {
	if u.zstd != nil {
		u.zstd.Close()
	}
}

// Unpack returns the plain bytes of a chunk: mem itself if the chunk is stored plain. ErrPayload
// says that the payload was damaged.
func (u *Unpacker) Unpack(codec wire.Codec, mem []byte, plainBytes uint32, chunkBytes int) (out []byte, err error) {
	if codec == wire.CodecPlain {
		return mem, nil
	}
	if u.plain == nil {
		u.plain, u.stored = make([]byte, chunkBytes), make([]byte, chunkBytes)
	}
	// The peer can write to the slot at any time, and a decoder must not see its input
	// change.
	mem = u.stored[:copy(u.stored, mem)]
	if codec == wire.CodecS2 {
		n, err := s2.DecodedLen(mem)
		if err != nil || n != int(plainBytes) {
			return nil, ErrPayload
		}
		if out, err = s2.Decode(u.plain[:n], mem); err != nil {
			return nil, ErrPayload
		}
		return out, nil
	}
	if u.zstd == nil {
		u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(chunkBytes)), zstd.WithDecoderMaxWindow(uint64(max(chunkBytes, 1<<20))))
		if err != nil {
			return nil, fmt.Errorf("start zstd: %w", err)
		}
	}
	out, err = u.zstd.DecodeAll(mem, u.plain[:0])
	if err != nil || len(out) != int(plainBytes) {
		return nil, ErrPayload
	}
	return out, nil
}

// ErrPayload says that a payload does not decode.
var ErrPayload = fmt.Errorf("payload damaged on the way")
