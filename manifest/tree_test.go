package manifest

import (
	"math/rand/v2"
	"testing"
)

// leafDigest returns a digest of a's length that depends on i.
func leafDigest(a Algorithm, i int) Digest {
	return a.Piece([]byte{byte(i), byte(i >> 8)}, 0, DefaultPieceBytes, false)
}

// naiveRoot is the root by its definition: split at the largest power of two
// that leaves something to the right.
func naiveRoot(a Algorithm, leaves []Digest, top bool) Digest {
	switch len(leaves) {
	case 0:
		return a.Piece(nil, 0, DefaultPieceBytes, true)
	case 1:
		return leaves[0]
	}
	split := 1
	for 2*split < len(leaves) {
		split *= 2
	}
	left, right := naiveRoot(a, leaves[:split], false), naiveRoot(a, leaves[split:], false)
	if a == BLAKE3 {
		return NewTree(a).node(left, right, top)
	}
	n := a.DigestBytes()
	data := append([]byte{1}, left[:n]...)
	return a.Piece(append(data, right[:n]...), 0, DefaultPieceBytes, true)
}

func TestTreeRootByDefinition(t *testing.T) {
	for _, a := range everyAlgorithm {
		tree := NewTree(a)
		var leaves []Digest
		for n := range 70 {
			if got, want := tree.Root(), naiveRoot(a, leaves, true); got != want {
				t.Errorf("%s, %d pieces: root %x, want %x", a, n, got, want)
			}
			if tree.Pieces() != uint64(n) {
				t.Errorf("%d pieces after pushing %d", tree.Pieces(), n)
			}
			tree.Push(leafDigest(a, n))
			leaves = append(leaves, leafDigest(a, n))
		}
		tree.Reset()
		if tree.Root() != naiveRoot(a, nil, true) || tree.Pieces() != 0 {
			t.Errorf("%s: a reset tree is not an empty one", a)
		}
	}
}

// Golden roots: if any of them changes, old manifests become unreadable.
func TestTreeGolden(t *testing.T) {
	want := map[Algorithm]string{
		XXH3:   "79411c6cf9852ff016c3128eda61275e",
		BLAKE3: "8da017233d5a943c55056eee5ac2a22edda71a8ad6a35e1e48ba2aa333b986c2",
		CRC32C: "0df1ad35",
		SHA256: "83fa528dd23c45b90223d7bea99cb7ddf71d37cba96e946e76ce72dd6383783c",
	}
	for _, a := range everyAlgorithm {
		if got := a.Hex(fileRoot(a, make([]byte, 3<<16+5), 64<<10)); got != want[a] {
			t.Errorf("%s: root %s, want %s", a, got, want[a])
		}
	}
}

func TestPushRunIsManyPushes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		a := everyAlgorithm[rng.IntN(4)]
		one, run := NewTree(a), NewTree(a)
		for range 1 + rng.IntN(5) {
			d, n := leafDigest(a, rng.IntN(3)), rng.IntN(1<<rng.IntN(8))
			for range n {
				one.Push(d)
			}
			run.PushRun(d, uint64(n))
			if one.Root() != run.Root() || one.Pieces() != run.Pieces() {
				t.Fatalf("%s: after %d pieces: root %x, in runs %x (%d pieces)", a, one.Pieces(), one.Root(), run.Root(), run.Pieces())
			}
		}
	}
}

// A run as long as the longest possible file: if it takes seconds, there is a
// loop over the run.
func TestPushRunLongest(t *testing.T) {
	tree, d := NewTree(XXH3), leafDigest(XXH3, 1)
	tree.PushRun(d, 1<<46+1)
	tree.PushRun(d, 1<<46-1)
	want := d
	for range 47 {
		want = tree.node(want, want, false)
	}
	if tree.Root() != want || tree.Pieces() != 1<<47 {
		t.Errorf("root %x of %d pieces, want %x", tree.Root(), tree.Pieces(), want)
	}
}

func TestTreeDoesNotAllocate(t *testing.T) {
	for _, a := range everyAlgorithm {
		tree, d := NewTree(a), leafDigest(a, 1)
		if got := testing.AllocsPerRun(100, func() {
			tree.Push(d)
			tree.PushRun(d, 7)
			tree.Root()
		}); got != 0 {
			t.Errorf("%s: %v allocations", a, got)
		}
	}
}

func BenchmarkTreePush(b *testing.B) {
	for _, a := range everyAlgorithm {
		b.Run(a.String(), func(b *testing.B) {
			tree, d := NewTree(a), leafDigest(a, 1)
			b.ReportAllocs()
			for b.Loop() {
				tree.Push(d)
			}
		})
	}
}

// TestTreesFromNodes: the nodes of a file's first pieces make a tree to which
// the rest can be added.
func TestTreesFromNodes(t *testing.T) {
	for _, a := range []Algorithm{XXH3, BLAKE3, CRC32C, SHA256} {
		const pieces = 70
		whole := NewTree(a)
		digests := make([]Digest, pieces)
		for i := range digests {
			digests[i] = a.Piece([]byte{byte(i)}, uint64(i), MinPieceBytes, false)
			whole.Push(digests[i])
		}
		for n := uint64(1); n <= pieces; n++ {
			first := NewTree(a)
			for _, d := range digests[:n] {
				first.Push(d)
			}
			nodes := first.Nodes(nil)
			if len(nodes) != NodeCount(n) {
				t.Fatalf("%s: %d nodes of %d pieces, not %d", a, len(nodes), n, NodeCount(n))
			}
			again, ok := TreeOf(a, n, nodes)
			if !ok || again.Pieces() != n || again.Root() != first.Root() {
				t.Fatalf("%s: a tree of %d pieces is another", a, n)
			}
			for _, d := range digests[n:] {
				again.Push(d)
			}
			if again.Root() != whole.Root() {
				t.Errorf("%s: the root behind %d pieces is another", a, n)
			}
			if _, ok := TreeOf(a, n, nodes[1:]); ok {
				t.Errorf("%s: a tree of %d pieces was made of too few nodes", a, n)
			}
			if _, ok := TreeOf(a, n, append(nodes, Digest{})); ok {
				t.Errorf("%s: a tree of %d pieces was made of too many nodes", a, n)
			}
		}
		if _, ok := TreeOf(a, 0, nil); ok || NodeCount(0) != 0 || len(NewTree(a).Nodes(nil)) != 0 {
			t.Errorf("%s: a tree of no pieces", a)
		}
	}
}
