package wire

import (
	"errors"
	"fmt"
	"math"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// The bounds of the terms.
const (
	MinChunkBytes = 64 << 10 // a chunk of a copy holds at least one piece
	MaxChunkBytes = 64 << 20
	MaxSlots      = 256
	MaxQPs        = 16
	// MaxTransfers is no more than the files that any sink can have open.
	MaxTransfers = 16
	// MaxRingBytes bounds one end's ring.
	MaxRingBytes = 1 << 30
	// MaxCompressedChunkBytes bounds chunks that are compressed. Each worker needs as
	// much memory again to unpack them.
	MaxCompressedChunkBytes = 8 << 20
)

// Terms are what the two ends agree on. The client's hello asks for them, and the
// server's welcome grants them.
type Terms struct {
	Mode       Mode
	ChunkBytes int
	PieceBytes int64
	Hash       manifest.Algorithm // 0: no digests (bench only)
	Slots      int
	QPs        int
	Codec      Compress // how the source may compress
	Flags      uint64
	Name       string         // base name of a single source
	MaxDelete  uint64         // one more than the number of entries that may be deleted; 0 for any number
	Sizes      FileSizes      // of the files that are transferred
	IO         fileset.IOMode // how the sink writes files
	Transfers  int            // how many large files the source has under way at once; 0 is its default
	// Settled is the path of an entry. An earlier try of this copy, whose connection was
	// lost, has settled all files up to it in the order of entries. It is empty where the
	// copy is in its first try, or begins anew.
	Settled string
	// Stage tells, beside FlagWhole, the staging directory of this copy, in all of its
	// tries, from those of others.
	Stage fileset.StageID
	// PartialDir is where the sink of a push keeps partial files, as
	// chunker.SinkOptions.PartialDir. It is empty where they lie beside their targets.
	PartialDir string
}

// HasSettled reports whether an earlier try of the copy has settled an entry.
func (p *Terms) HasSettled(path string) bool {
	return p.Settled != "" && manifest.ComparePaths(path, p.Settled) <= 0
}

// Encrypted reports whether chunks are sealed.
func (p *Terms) Encrypted() bool { return p.Flags&FlagEncrypt != 0 }

// Has reports whether both ends agreed on one of the flags.
func (p *Terms) Has(flags uint64) bool { return p.Flags&flags != 0 }

// MostDeleted is MaxDelete of a hello, as the sink's store takes it.
func (p *Terms) MostDeleted() int64 {
	if p.MaxDelete == 0 || p.MaxDelete > math.MaxInt64 {
		return -1
	}
	return int64(p.MaxDelete - 1)
}

// Touched says why the processor has to touch every chunk. No chunk then goes straight
// to or from a GPU. Touched returns nil if the processor need not.
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

// DigestOf is the digest of data, the bytes of extent x. The extent is a piece of a
// file of fileBytes.
func (p *Terms) DigestOf(x *Extent, fileBytes int64, data []byte) manifest.Digest {
	return p.Hash.Piece(data, uint64(x.Off/p.PieceBytes), p.PieceBytes, fileBytes <= p.PieceBytes)
}

// Compress says how a source may store chunks.
type Compress uint8

// The ways to compress. CompressAuto uses s2 where s2 saves enough bytes.
const (
	CompressOff  Compress = 0
	CompressZstd Compress = 1
	CompressS2   Compress = 2
	CompressAuto Compress = 3
)

// Mode is the purpose of a session.
type Mode uint8

const (
	ModePush  Mode = 1 // the client is the source
	ModePull  Mode = 2 // the server is the source
	ModeBench Mode = 3 // the client is the source, without files
	// 4 was a question that the door answers now.
	ModePing   Mode = 5 // round trips
	ModeExpand Mode = 6 // the names that patterns of a pull stand for
)

// String is the mode as a word for people.
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

// FileSizes bounds the sizes of the files that are transferred, with the meaning that
// rsync gives. Files outside the bounds still exist at the source, so --delete leaves
// them alone.
type FileSizes struct {
	MinBytes uint64
	MaxBytes uint64 // one more than the largest size; 0 for any size
}

// IsSet reports whether any bound is set.
func (s *FileSizes) IsSet() bool { return *s != FileSizes{} }

// Keeps says why a file is not transferred. It is "" for a file that is.
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

// check compares a hello's sizes with its flags.
func (s *FileSizes) check(flags uint64) error {
	if s.IsSet() != (flags&FlagSizes != 0) {
		return fmt.Errorf("%w: sizes of files from %d, and flags %#x", ErrProtocol, s.MinBytes, flags)
	}
	return nil
}

// appendTo encodes the bounds that are set.
func (s *FileSizes) appendTo(w *Writer) {
	if s.MinBytes != 0 {
		w.Uint(tagMinFile, s.MinBytes)
	}
	if s.MaxBytes != 0 {
		w.Uint(tagMaxFile, s.MaxBytes)
	}
}
