package wire

import (
	"errors"
	"fmt"
	"math"

	"gdrcp/manifest"
)

// Bounds of what can be agreed on.
const (
	MinChunkBytes = 64 << 10 // a copy's chunks hold a piece at the least
	MaxChunkBytes = 64 << 20
	MaxSlots      = 256
	MaxQPs        = 16
	// MaxRingBytes bounds one end's ring.
	MaxRingBytes = 1 << 30
	// MaxCompressedChunkBytes bounds chunks that are compressed: each worker
	// needs as much again to unpack them.
	MaxCompressedChunkBytes = 8 << 20
)

// Terms are what the two ends agree on: what the client's hello asks for and the
// server's welcome grants.
type Terms struct {
	Mode       Mode
	ChunkBytes int
	PieceBytes int64
	Hash       manifest.Algorithm // 0: no digests (bench only)
	Slots      int
	QPs        int
	Codec      Compress // what the source may use
	Flags      uint64
	Name       string    // base name of a single source
	MaxDelete  uint64    // one more than may be deleted; 0 for any number
	Sizes      FileSizes // of the files that are transferred
}

// Encrypted reports whether chunks are sealed.
func (p *Terms) Encrypted() bool { return p.Flags&FlagEncrypt != 0 }

// Has reports whether both ends agreed on one of the flags.
func (p *Terms) Has(flags uint64) bool { return p.Flags&flags != 0 }

// MostDeleted is what a hello's MaxDelete says, as the sink's store takes it.
func (p *Terms) MostDeleted() int64 {
	if p.MaxDelete == 0 || p.MaxDelete > math.MaxInt64 {
		return -1
	}
	return int64(p.MaxDelete - 1)
}

// Touched says why the processor has to touch every chunk, so that none goes
// straight to or from a GPU; nil if it has not.
func (p *Terms) Touched() error {
	switch {
	case p.Encrypted():
		return errors.New("chunks are encrypted by the processor")
	case p.Codec != CompressOff:
		return errors.New("chunks are compressed by the processor")
	case p.Hash != manifest.BLAKE3 && p.Hash != 0:
		return fmt.Errorf("the GPU digests by blake3 only, and %s is asked for", p.Hash)
	}
	return nil
}

// DigestOf is the digest of an extent's bytes, a piece of a file of that size.
func (p *Terms) DigestOf(x *Extent, fileBytes int64, data []byte) manifest.Digest {
	return p.Hash.Piece(data, uint64(x.Off/p.PieceBytes), p.PieceBytes, fileBytes <= p.PieceBytes)
}

// Compress says how a source may store chunks.
type Compress uint8

// The ways to compress. CompressAuto uses s2 where it pays.
const (
	CompressOff  Compress = 0
	CompressZstd Compress = 1
	CompressS2   Compress = 2
	CompressAuto Compress = 3
)

// Mode is what a session is for.
type Mode uint8

const (
	ModePush  Mode = 1 // the client is the source
	ModePull  Mode = 2 // the server is the source
	ModeBench Mode = 3 // the client is the source, of no files
	// 4 was a question, which the door answers now.
	ModePing   Mode = 5 // round trips
	ModeExpand Mode = 6 // what patterns of a pull stand for
)

// String is the word for people.
func (m Mode) String() string {
	switch m {
	case ModePush:
		return "push"
	case ModePull:
		return "pull"
	case ModeBench:
		return "bench"
	case ModePing:
		return "ping"
	case ModeExpand:
		return "look"
	}
	return "unknown"
}

// FileSizes are the sizes of the files that are transferred, with rsync's meaning: they
// say nothing of what is at the source, so that --delete leaves the others alone.
type FileSizes struct {
	MinBytes uint64
	MaxBytes uint64 // one more than the most; 0 for any number
}

// IsSet reports whether any file is kept back by its size.
func (s *FileSizes) IsSet() bool { return *s != FileSizes{} }

// Keeps says why a file is not transferred, or nothing.
func (s *FileSizes) Keeps(e *manifest.Entry) string {
	switch size := uint64(e.Size); {
	case e.Type != manifest.File:
	case s.MaxBytes > 0 && size >= s.MaxBytes:
		return "larger than --max-size"
	case size < s.MinBytes:
		return "smaller than --min-size"
	}
	return ""
}

// check holds a hello's sizes to its flags.
func (s *FileSizes) check(flags uint64) error {
	if s.IsSet() != (flags&FlagSizes != 0) {
		return fmt.Errorf("%w: sizes of files from %d, and flags %#x", ErrProtocol, s.MinBytes, flags)
	}
	return nil
}

// appendTo encodes what is set.
func (s *FileSizes) appendTo(w *Writer) {
	if s.MinBytes != 0 {
		w.Uint(tagMinFile, s.MinBytes)
	}
	if s.MaxBytes != 0 {
		w.Uint(tagMaxFile, s.MaxBytes)
	}
}
