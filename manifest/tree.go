package manifest

import (
	"crypto/sha256"
	"hash/crc32"
	"math/bits"

	"github.com/zeebo/xxh3"
	"lukechampine.com/blake3/guts"
)

// Tree computes a file's root from the digests of its pieces, in order. It is a binary
// Merkle tree that collapses as it fills: it holds one digest per level, 2 KiB in all,
// whatever the file's length. The left side of a node has the largest power of two of
// pieces that leaves at least one for its right side (BLAKE3's shape, and RFC 6962's).
//
//	pieces  root, xxh3 crc32c sha256           root, blake3
//	0       H("")                              BLAKE3("")
//	1       the piece's digest                 the piece's digest (whole)
//	more    H(0x01 || left || right),          BLAKE3 of the file: parent nodes
//	        leaves being the pieces' digests   over the pieces' chaining values
//
// All roots are DigestBytes long. The 0x01 distinguishes a node from a piece that happens
// to contain two digests. The file's size, which accompanies every root, distinguishes one
// piece from several. NewTree makes a Tree, which is not safe for concurrent use.
type Tree struct {
	algorithm Algorithm
	// subtrees has the complete subtrees by height; if bit i of count is set,
	// subtrees[i] is occupied. count is the pieces in them: all but the last.
	subtrees [64]Digest
	count    uint64
	// last is held back: only the top node of a BLAKE3 tree is hashed as a
	// root, and which node that is becomes known at the end.
	last    Digest
	hasLast bool
	// buf is a node's input. A variable on the stack would escape to the heap, because
	// crc32 and sha256 call through variables.
	buf [1 + 2*len(Digest{})]byte
}

// NewTree returns the tree of a file without pieces. All digests pushed must be
// of algorithm a.
func NewTree(a Algorithm) *Tree { return &Tree{algorithm: a} }

// Reset makes t the tree of a file without pieces again.
func (t *Tree) Reset() { t.count, t.hasLast = 0, false }

// Pieces is the number of pieces pushed.
func (t *Tree) Pieces() uint64 {
	if t.hasLast {
		return t.count + 1
	}
	return 0
}

// Push adds the digest of the next piece.
func (t *Tree) Push(d Digest) {
	if t.hasLast {
		t.merge(t.last, 0)
	}
	t.last, t.hasLast = d, true
}

// PushRun adds the same digest n times (fewer than 1<<63 in all). Its time grows with the
// logarithm of n, so a single line of a manifest cannot keep a reader busy for hours.
func (t *Tree) PushRun(d Digest, n uint64) {
	if n == 0 {
		return
	}
	t.Push(d)
	n-- // the last is held back, the others may merge
	var full [65]Digest
	full[0] = d // full[h] is over 1<<h of them
	// Up: fill the edge until a subtree higher than what is left could begin.
	for h := 0; n>>h != 0; h++ {
		if t.count>>h&1 == 1 {
			t.merge(full[h], h)
			n -= 1 << h
		}
		full[h+1] = t.node(full[h], full[h], false)
	}
	// Down: what is left, largest subtree first.
	for n > 0 {
		h := bits.Len64(n) - 1
		t.merge(full[h], h)
		n -= 1 << h
	}
}

// merge adds a complete subtree of 1<<height pieces; count is a multiple of that.
func (t *Tree) merge(d Digest, height int) {
	t.count += 1 << height
	for ; t.count&(1<<height) == 0; height++ {
		d = t.node(t.subtrees[height], d, false)
	}
	t.subtrees[height] = d
}

// Root returns the root over the pieces pushed so far. More may be pushed afterwards.
func (t *Tree) Root() Digest {
	if !t.hasLast {
		return t.algorithm.Piece(nil, 0, MinPieceBytes, true)
	}
	d := t.last
	for rest := t.count; rest != 0; {
		left := t.subtrees[bits.TrailingZeros64(rest)]
		rest &= rest - 1
		d = t.node(left, d, rest == 0)
	}
	return d
}

// Nodes appends to nodes the digests that represent the pieces pushed so far:
// those of the complete subtrees, from the left, and that of the last piece.
// There are at most 65, and none if no piece was pushed.
func (t *Tree) Nodes(nodes []Digest) []Digest {
	for rest := t.count; rest != 0; {
		h := bits.Len64(rest) - 1
		nodes = append(nodes, t.subtrees[h])
		rest &^= 1 << h
	}
	if t.hasLast {
		nodes = append(nodes, t.last)
	}
	return nodes
}

// NodeCount is the number of digests that Nodes returns after the given number of pieces.
func NodeCount(pieces uint64) int {
	if pieces == 0 {
		return 0
	}
	return bits.OnesCount64(pieces-1) + 1
}

// TreeOf returns the tree whose Nodes, after the given number of pieces, are
// nodes. ok is false if nodes has the wrong length.
func TreeOf(a Algorithm, pieces uint64, nodes []Digest) (t *Tree, ok bool) {
	if pieces == 0 || pieces > 1<<62 || len(nodes) != NodeCount(pieces) {
		return nil, false
	}
	t = NewTree(a)
	t.count = pieces - 1
	for rest := t.count; rest != 0; nodes = nodes[1:] {
		h := bits.Len64(rest) - 1
		t.subtrees[h] = nodes[0]
		rest &^= 1 << h
	}
	t.last, t.hasLast = nodes[0], true
	return t, true
}

// node returns the digest of a node; root means that the node is the tree's top.
func (t *Tree) node(left, right Digest, root bool) Digest {
	if t.algorithm == BLAKE3 {
		n := guts.ParentNode(cvDigest(left), cvDigest(right), &guts.IV, 0)
		if root {
			n.Flags |= guts.FlagRoot
		}
		return digestCV(guts.ChainingValue(n))
	}
	size := t.algorithm.DigestBytes()
	t.buf[0] = 0x01
	copy(t.buf[1:], left[:size])
	copy(t.buf[1+size:], right[:size])
	data := t.buf[:1+2*size]
	switch t.algorithm {
	case XXH3:
		return digestXXH3(xxh3.Hash128(data))
	case CRC32C:
		return digestCRC32C(crc32.Checksum(data, castagnoli))
	case SHA256:
		return sha256.Sum256(data)
	}
	panic("manifest: node by " + t.algorithm.String())
}
