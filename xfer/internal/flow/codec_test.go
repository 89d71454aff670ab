package flow

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"gdrcp/xfer/internal/wire"
)

func TestPackAndUnpack(t *testing.T) {
	const n = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	random, text := make([]byte, n), bytes.Repeat([]byte("a line of text that repeats\n"), n/28+1)[:n]
	for i := range random {
		random[i] = byte(rng.Uint32())
	}
	for _, kind := range []wire.Compress{wire.CompressOff, wire.CompressZstd, wire.CompressS2, wire.CompressAuto} {
		p, err := NewPacker(kind, n)
		if err != nil {
			t.Fatal(err)
		}
		var u Unpacker
		for _, data := range [][]byte{random, text, text[:5], {}} {
			mem := make([]byte, n)
			copy(mem, data)
			codec, stored := p.Pack(mem, len(data))
			got, err := u.Unpack(codec, mem[:stored], uint32(len(data)), n)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("compression %d, %d bytes: %v", kind, len(data), err)
			}
			if shrunk := int(stored) < len(data); shrunk != (codec != wire.CodecPlain) {
				t.Errorf("compression %d: codec %d stores %d bytes in %d", kind, codec, len(data), stored)
			}
		}
		p.Close()
		u.Close()
	}
}

// A payload that claims a small size but would unpack to a large one is refused.
func TestUnpackBomb(t *testing.T) {
	const n = 64 << 20
	p, err := NewPacker(wire.CompressZstd, n)
	if err != nil {
		t.Fatal(err)
	}
	mem := make([]byte, n)
	codec, stored := p.Pack(mem, n)
	var u Unpacker
	if _, err := u.Unpack(codec, mem[:stored], 1<<20, 1<<20); !errors.Is(err, ErrPayload) {
		t.Errorf("got %v", err)
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(uint8(wire.CodecS2), []byte("\x05\x10hello"))
	f.Add(uint8(wire.CodecZstd), []byte("\x28\xb5\x2f\xfd\x04\x00\x29\x00\x00hello"))
	f.Fuzz(func(t *testing.T, codec uint8, b []byte) {
		const chunkBytes = 1 << 16
		if len(b) > chunkBytes {
			return
		}
		var u Unpacker
		defer u.Close()
		for _, n := range []uint32{0, 5, chunkBytes} {
			if out, err := u.Unpack(wire.Codec(codec%3), b, n, chunkBytes); err == nil && len(out) > chunkBytes {
				t.Fatalf("%d bytes", len(out))
			}
		}
	})
}
