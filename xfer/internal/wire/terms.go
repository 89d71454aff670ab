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
	MinChunkBytes = 64 << 10 // a chunk of a copy has at least one piece
	MaxChunkBytes = 64 << 20
	MaxSlots      = 256
	MaxQPs        = 16
	// MaxTransfers is less than the number of files that any sink may have open.
	MaxTransfers = 16
	// MaxRingBytes bounds one end's ring.
	MaxRingBytes = 1 << 30
	// MaxCompressedChunkBytes bounds chunks that are compressed. Each worker needs the
	// same amount of memory again to decompress them.
	MaxCompressedChunkBytes = 8 << 20
)

// Terms are what the two ends agree on. The client's hello requests them, and the server's
// welcome grants them.
type Terms struct {
	Mode       Mode
	ChunkBytes int
	PieceBytes int64
	Hash       manifest.Algorithm // 0: no digests (bench only)
	Slots      int
	QPs        int
	Codec      Compress // how the source may compress chunks
	Flags      uint64
	Name       string         // base name of a single source
	MaxDelete  uint64         // the maximum number of entries to delete plus one; 0 for no limit
	Sizes      FileSizes      // of the files that are transferred
	IO         fileset.IOMode // how the sink writes files
	Transfers  int            // how many large files the source transfers concurrently; 0 is its default
	// Settled is the path of an entry. An earlier attempt of this copy, whose connection
	// was lost, has settled all files up to it in the order of entries. It is empty if the
	// copy is in its first attempt, or starts from the beginning.
	Settled string
	// Stage, with FlagWhole, distinguishes the staging tree of this copy, in all of its
	// attempts, from those of others.
	Stage fileset.StageID
	// PartialDir is the directory in which the sink of a push keeps partial files, as
	// dest.Options.PartialDir. It is empty if they are next to their targets.
	PartialDir string
}

// HasSettled reports whether an earlier attempt of the copy has settled an entry.
func (p *Terms) HasSettled(path string) bool {
	return p.Settled != "" && manifest.ComparePaths(path, p.Settled) <= 0
}

// Encrypted reports whether chunks are sealed.
func (p *Terms) Encrypted() bool { return p.Flags&FlagEncrypt != 0 }

// Has reports whether both ends agreed on one of the flags.
func (p *Terms) Has(flags uint64) bool { return p.Flags&flags != 0 }

// MostDeleted returns a hello's MaxDelete in the form that the sink uses.
func (p *Terms) MostDeleted() int64 {
	if p.MaxDelete == 0 || p.MaxDelete > math.MaxInt64 {
		return -1
	}
	return int64(p.MaxDelete - 1)
}

// Touched returns the reason why the processor has to access every chunk, in which case no
// chunk is transferred directly to or from a GPU. It returns nil if the processor need
// not.
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

// DigestOf returns the digest of data, the bytes of extent x. The extent is a piece of a
// file of fileBytes.
func (p *Terms) DigestOf(x *Extent, fileBytes int64, data []byte) manifest.Digest {
	return p.Hash.Piece(data, uint64(x.Off/p.PieceBytes), p.PieceBytes, fileBytes <= p.PieceBytes)
}

// Compress is how a source may encode chunks.
type Compress uint8

// The compression settings. CompressAuto uses s2 if it saves enough bytes.
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
	ModeExpand Mode = 6 // the expansions of a pull's patterns
)

// String returns the mode as a word for people.
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

// FileSizes bounds the sizes of the files that are transferred, as in rsync. Files outside
// the bounds still exist at the source, so --delete leaves them alone.
type FileSizes struct {
	MinBytes uint64
	MaxBytes uint64 // the largest size plus one; 0 for no limit
}

// IsSet reports whether any bound is set.
func (s *FileSizes) IsSet() bool { return *s != FileSizes{} }

// Keeps returns the reason why a file is not transferred, or "" if it is.
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
