package manifest

import (
	"encoding/binary"
	"math/bits"

	"lukechampine.com/blake3/guts"
)

// groupBytes is how much guts compresses in one call, with all SIMD lanes filled. It is
// a power of two of chunks, so a group is a subtree.
const groupBytes = guts.MaxSIMD * guts.ChunkSize

// subtrees holds the chaining values of the complete subtrees to the left of the growing
// edge of a BLAKE3 tree, at most one for each height, counted in groups.
type subtrees struct {
	cvs   [64][8]uint32
	count uint64 // number of leaves; bit i set: cvs[i] is occupied
}

// push adds a leaf that is not the last of the tree. The subtrees that it
// completes can be merged immediately, because none of them is the tree's root.
func (s *subtrees) push(cv [8]uint32) {
	i := 0
	for ; s.count&(1<<i) != 0; i++ {
		cv = guts.ChainingValue(guts.ParentNode(s.cvs[i], cv, &guts.IV, 0))
	}
	s.cvs[i] = cv
	s.count++
}

// top returns the node over all leaves, of which last is the last. It does not change s.
func (s *subtrees) top(last guts.Node) guts.Node {
	for rest := s.count; rest != 0; rest &= rest - 1 {
		left := s.cvs[bits.TrailingZeros64(rest)]
		last = guts.ParentNode(left, guts.ChainingValue(last), &guts.IV, 0)
	}
	return last
}

// blake3Piece digests a piece of n bytes: data, or zeros if data is nil. See
// Algorithm.Piece.
func blake3Piece(data []byte, n int, index uint64, pieceBytes int64, whole bool) Digest {
	counter := index * (uint64(pieceBytes) / guts.ChunkSize)
	if whole {
		counter = 0
	}
	var node guts.Node
	if n <= groupBytes {
		node = lastGroup(data, n, counter)
	} else {
		node = manyGroups(data, n, counter)
	}
	if whole {
		node.Flags |= guts.FlagRoot
	}
	return digestCV(guts.ChainingValue(node))
}

// manyGroups returns the node over n bytes of data (or zeros) starting with
// chunk number counter.
func manyGroups(data []byte, n int, counter uint64) guts.Node {
	var s subtrees
	off := 0
	for ; n-off > groupBytes; off += groupBytes {
		group := (*[groupBytes]byte)(zeros[:groupBytes])
		if data != nil {
			group = (*[groupBytes]byte)(data[off : off+groupBytes])
		}
		s.push(guts.ChainingValue(guts.CompressBuffer(group, groupBytes, &guts.IV, counter, 0)))
		counter += guts.MaxSIMD
	}
	if data != nil {
		data = data[off:]
	}
	return s.top(lastGroup(data, n-off, counter))
}

// lastGroup returns the node over at most a group of data (or zeros). guts always reads
// a whole group's memory, so lastGroup copies a short group into a buffer of full
// length.
func lastGroup(data []byte, n int, counter uint64) guts.Node {
	switch {
	case data == nil:
		return guts.CompressBuffer((*[groupBytes]byte)(zeros[:groupBytes]), n, &guts.IV, counter, 0)
	case n == groupBytes:
		return guts.CompressBuffer((*[groupBytes]byte)(data), n, &guts.IV, counter, 0)
	case n <= guts.ChunkSize:
		return guts.CompressChunk(data[:n], &guts.IV, counter, 0)
	}
	var group [groupBytes]byte
	copy(group[:], data[:n])
	return guts.CompressBuffer(&group, n, &guts.IV, counter, 0)
}

// digestCV returns a chaining value as bytes; BLAKE3 is little-endian.
func digestCV(cv [8]uint32) (d Digest) {
	for i, w := range cv {
		binary.LittleEndian.PutUint32(d[4*i:], w)
	}
	return d
}

// cvDigest undoes digestCV.
func cvDigest(d Digest) (cv [8]uint32) {
	for i := range cv {
		cv[i] = binary.LittleEndian.Uint32(d[4*i:])
	}
	return cv
}

// blake3Stream computes BLAKE3 of a stream of bytes. The library's own Hasher
// allocates and starts goroutines for long writes; blake3Stream does neither.
type blake3Stream struct {
	done subtrees
	held int // bytes in group
	// group is compressed only when more bytes follow: the last group must wait for sum.
	group [groupBytes]byte
}

func (s *blake3Stream) compress() guts.Node {
	return guts.CompressBuffer(&s.group, s.held, &guts.IV, s.done.count*guts.MaxSIMD, 0)
}

func (s *blake3Stream) writeString(p string) { feed(s, p) }
func (s *blake3Stream) write(p []byte)       { feed(s, p) }

func feed[T string | []byte](s *blake3Stream, p T) {
	for len(p) > 0 {
		if s.held == groupBytes {
			s.done.push(guts.ChainingValue(s.compress()))
			s.held = 0
		}
		n := copy(s.group[s.held:], p)
		s.held += n
		p = p[n:]
	}
}

// sum returns the hash of all bytes written so far. More may be written afterwards.
func (s *blake3Stream) sum() Digest {
	node := s.done.top(s.compress())
	node.Flags |= guts.FlagRoot
	return digestCV(guts.ChainingValue(node))
}
