package manifest

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Roots computes the two roots of a tree of files from its entries, in bytewise
// order of path. Whatever algorithm the pieces use, both are BLAKE3-256 of
//
//	label            u8 length, then "gdrcp content 1" or "gdrcp meta 1"
//	algorithm        u8 length, then its name
//	piece size       u64
//
// followed, per entry, in the content root by
//
//	type             u8: 'f', 'd' or 'l'
//	path             u32 length, then the bytes
//	size             u64
//	link target      u32 length, then the bytes
//	file's root      u8 length (0 if no file), then DigestBytes
//
// and in the meta root by
//
//	path             u32 length, then the bytes
//	mode             u32
//	time of change   u64: nanoseconds since 1970, two's complement
//
// with all integers little-endian. Every field is preceded by its length, so
// different entries never yield the same bytes.
//
// NewRoots makes a Roots, which is not safe for concurrent use. It uses about
// 40 KiB, regardless of the number of entries.
type Roots struct {
	algorithm Algorithm
	content   blake3Stream
	meta      blake3Stream
	scratch   [64]byte

	prev    string // path of the last entry placed, "" before the first and after "."
	placed  bool   // an entry has been placed
	entries int64
	bytes   int64
	// leaves are the lengths, in ascending order, of the prefixes of prev that
	// are entries but not directories: nothing may be below them.
	leaves []int
}

// NewRoots returns the roots of no entries. a must be valid.
func NewRoots(a Algorithm, pieceBytes int64) *Roots {
	r := &Roots{algorithm: a}
	r.start(&r.content, "gdrcp content 1", pieceBytes)
	r.start(&r.meta, "gdrcp meta 1", pieceBytes)
	return r
}

func (r *Roots) start(s *blake3Stream, label string, pieceBytes int64) {
	name := r.algorithm.String()
	s.write([]byte{byte(len(label))})
	s.writeString(label)
	s.write([]byte{byte(len(name))})
	s.writeString(name)
	s.write(binary.LittleEndian.AppendUint64(nil, uint64(pieceBytes)))
}

// Add adds the next entry; a file's Root must be set. On an error r is
// unchanged. Errors: those of Entry.Check; ErrOrder if e's path does not come
// after the last path bytewise ("." comes before all); ErrEntry if the path
// leads through an entry that is not a directory, or the sum of the sizes does
// not fit an int64. r keeps e.Path until the next Add.
func (r *Roots) Add(e *Entry) error {
	if err := r.place(e); err != nil {
		return err
	}
	r.cover(e)
	return nil
}

// cover adds a placed entry to the roots.
func (r *Roots) cover(e *Entry) {
	r.addContent(e)
	r.addMeta(e)
	r.entries++
	r.bytes += e.Size
}

// place checks e and its place in the order and in the tree, and records its
// path: the next entry must come after e, whether or not e is covered.
func (r *Roots) place(e *Entry) error {
	if err := e.Check(); err != nil {
		return err
	}
	if r.bytes > math.MaxInt64-e.Size {
		return fmt.Errorf("%w: sizes up to %q exceed %d bytes", ErrEntry, e.Path, int64(math.MaxInt64))
	}
	if e.Path == "." {
		if r.placed {
			return fmt.Errorf("%w: \".\" is not the first", ErrOrder)
		}
		r.placed = true
		return nil
	}
	if e.Path <= r.prev {
		return fmt.Errorf("%w: %q after %q", ErrOrder, e.Path, r.prev)
	}
	common := 0
	for common < len(r.prev) && r.prev[common] == e.Path[common] {
		common++
	}
	keep := len(r.leaves)
	for keep > 0 && r.leaves[keep-1] > common {
		keep--
	}
	for _, n := range r.leaves[:keep] {
		if e.Path[n] == '/' {
			return fmt.Errorf("%w: %q lies below %q, which is not a directory", ErrEntry, e.Path, e.Path[:n])
		}
	}
	r.leaves = r.leaves[:keep]
	if e.Type != Dir {
		r.leaves = append(r.leaves, len(e.Path))
	}
	r.prev, r.placed = e.Path, true
	return nil
}

func (r *Roots) addContent(e *Entry) {
	b := append(r.scratch[:0], byte(e.Type))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Path)))
	r.content.write(b)
	r.content.writeString(e.Path)
	b = binary.LittleEndian.AppendUint64(r.scratch[:0], uint64(e.Size))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(e.Target)))
	r.content.write(b)
	r.content.writeString(e.Target)
	b = append(r.scratch[:0], 0)
	if e.Type == File {
		b[0] = byte(r.algorithm.DigestBytes())
		b = append(b, e.Root[:r.algorithm.DigestBytes()]...)
	}
	r.content.write(b)
}

func (r *Roots) addMeta(e *Entry) {
	r.meta.write(binary.LittleEndian.AppendUint32(r.scratch[:0], uint32(len(e.Path))))
	r.meta.writeString(e.Path)
	b := binary.LittleEndian.AppendUint32(r.scratch[:0], e.Mode)
	r.meta.write(binary.LittleEndian.AppendUint64(b, uint64(e.MtimeNs)))
}

// Content returns the root over types, paths, sizes, link targets and files' roots of
// the entries so far. It is printed as 64 hex digits.
func (r *Roots) Content() [32]byte { return r.content.sum() }

// Meta returns the root over paths, modes and modification times of the entries so far.
func (r *Roots) Meta() [32]byte { return r.meta.sum() }

// Entries is the number of entries that have been added.
func (r *Roots) Entries() int64 { return r.entries }

// Bytes is the sum of the files' sizes.
func (r *Roots) Bytes() int64 { return r.bytes }

// Summary returns the roots and counts of the entries so far.
func (r *Roots) Summary() Summary {
	return Summary{Content: r.Content(), Meta: r.Meta(), Entries: r.entries, Bytes: r.bytes}
}
