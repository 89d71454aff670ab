package manifest

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"lukechampine.com/blake3"
)

// smallTree returns a tree with an entry of each type.
func smallTree(a Algorithm) []Entry {
	return []Entry{
		{Type: Dir, Path: ".", Mode: 0o755, MtimeNs: 1},
		{Type: File, Path: "a file", Size: 3, Mode: 0o644, MtimeNs: 2, Root: a.Piece([]byte("abc"), 0, DefaultPieceBytes, true)},
		{Type: Dir, Path: "d", Mode: 0o700, MtimeNs: 3},
		{Type: File, Path: "d-empty", Mode: 0o600, MtimeNs: -4, Root: a.Piece(nil, 0, DefaultPieceBytes, true)},
		{Type: Symlink, Path: "d/link", Mode: 0o777, MtimeNs: 5, Target: "../a file"},
	}
}

// rootsOf returns the content and meta roots of entries, as 128 hex digits.
func rootsOf(t *testing.T, a Algorithm, pieceBytes int64, entries []Entry) string {
	t.Helper()
	r := NewRoots(a, pieceBytes)
	for i := range entries {
		if err := r.Add(&entries[i]); err != nil {
			t.Fatalf("add %q: %v", entries[i].Path, err)
		}
	}
	content, meta := r.Content(), r.Meta()
	return hex.EncodeToString(content[:]) + hex.EncodeToString(meta[:])
}

// The content root of one entry, spelled out byte by byte.
func TestRootsByDefinition(t *testing.T) {
	r := NewRoots(CRC32C, 1<<20)
	e := Entry{Type: File, Path: "p", Size: 9, Mode: 0o644, MtimeNs: -1, Root: Digest{0xe3, 0x06, 0x92, 0x83}}
	if err := r.Add(&e); err != nil {
		t.Fatal(err)
	}
	head := "\x06crc32c\x00\x00\x10\x00\x00\x00\x00\x00"
	content := "\x0fgdrcp content 1" + head + "f\x01\x00\x00\x00p\x09\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x04\xe3\x06\x92\x83"
	meta := "\x0cgdrcp meta 1" + head + "\x01\x00\x00\x00p\xa4\x01\x00\x00\xff\xff\xff\xff\xff\xff\xff\xff"
	if got, want := r.Content(), blake3.Sum256([]byte(content)); got != want {
		t.Errorf("content root %x, want %x", got, want)
	}
	if got, want := r.Meta(), blake3.Sum256([]byte(meta)); got != want {
		t.Errorf("meta root %x, want %x", got, want)
	}
}

func TestRootsCover(t *testing.T) {
	const contentOnly, metaOnly, both = "content", "meta", "content and meta"
	base := rootsOf(t, XXH3, 1<<20, smallTree(XXH3))
	for name, c := range map[string]struct {
		covers string
		change func(e []Entry) []Entry
	}{
		"mode":      {metaOnly, func(e []Entry) []Entry { e[1].Mode = 0o640; return e }},
		"mtime":     {metaOnly, func(e []Entry) []Entry { e[1].MtimeNs++; return e }},
		"dir mtime": {metaOnly, func(e []Entry) []Entry { e[2].MtimeNs++; return e }},
		"size":      {contentOnly, func(e []Entry) []Entry { e[1].Size++; return e }},
		"file root": {contentOnly, func(e []Entry) []Entry { e[1].Root[15]++; return e }},
		"target":    {contentOnly, func(e []Entry) []Entry { e[4].Target += "x"; return e }},
		"type": {contentOnly, func(e []Entry) []Entry {
			e[2] = Entry{Type: Symlink, Path: "d", Mode: 0o700, MtimeNs: 3, Target: "a"}
			return e[:4]
		}},
		"path":    {both, func(e []Entry) []Entry { e[1].Path = "a filf"; return e }},
		"missing": {both, func(e []Entry) []Entry { return append(e[:2], e[3:]...) }},
	} {
		ref := base
		if name == "type" { // nothing can be below a link: compare without d/link
			ref = rootsOf(t, XXH3, 1<<20, smallTree(XXH3)[:4])
		}
		got := rootsOf(t, XXH3, 1<<20, c.change(smallTree(XXH3)))
		content, meta := got[:64] != ref[:64], got[64:] != ref[64:]
		if content != (c.covers != metaOnly) || meta != (c.covers != contentOnly) {
			t.Errorf("%s: content root changed %v, meta root changed %v, want %s", name, content, meta, c.covers)
		}
	}
	for name, other := range map[string]string{
		"piece size": rootsOf(t, XXH3, 1<<21, smallTree(XXH3)),
		"algorithm":  rootsOf(t, CRC32C, 1<<20, smallTree(XXH3)),
	} {
		if other[:64] == base[:64] {
			t.Errorf("the %s is not covered", name)
		}
	}
}

func TestRootsRefuse(t *testing.T) {
	file := func(p string) Entry { return Entry{Type: File, Path: p} }
	dir := func(p string) Entry { return Entry{Type: Dir, Path: p} }
	huge := func(p string) Entry { return Entry{Type: File, Path: p, Size: math.MaxInt64} }
	for name, c := range map[string]struct {
		entries []Entry
		want    error // of the last entry; those before it must pass
	}{
		"twice":                 {[]Entry{file("a"), file("a")}, ErrOrder},
		"descending":            {[]Entry{file("b"), file("a")}, ErrOrder},
		"bytewise, unsigned":    {[]Entry{file("\xff"), file("a")}, ErrOrder},
		"top not first":         {[]Entry{file("!"), dir(".")}, ErrOrder},
		"top twice":             {[]Entry{dir("."), dir(".")}, ErrOrder},
		"below its top":         {[]Entry{dir("."), file("!"), file("a"), file("\xff")}, nil},
		"slash sorts as a byte": {[]Entry{dir("a"), file("a-b"), file("a/b"), file("a0")}, nil},
		"below a file":          {[]Entry{file("a"), file("a/b")}, ErrEntry},
		"below a file, later":   {[]Entry{file("a"), file("a!"), file("a-"), file("a-b"), file("a/b")}, ErrEntry},
		"below a dir":           {[]Entry{dir("a"), file("a!"), file("a/b"), dir("a/c"), file("a/c/d")}, nil},
		"below a deep file":     {[]Entry{dir("a"), file("a/b"), file("a/b!"), dir("a/b/c")}, ErrEntry},
		"below one not listed":  {[]Entry{file("a/b"), file("c/d/e")}, nil},
		"sizes overflow":        {[]Entry{huge("a"), file("b"), huge("c")}, ErrEntry},
		"bad path":              {[]Entry{file("a"), file("b/../c")}, ErrPath},
	} {
		r := NewRoots(XXH3, 1<<20)
		var err error
		for i := range c.entries {
			if err != nil {
				t.Fatalf("%s: entry %d: %v", name, i-1, err)
			}
			before := r.Content()
			if err = r.Add(&c.entries[i]); err != nil && r.Content() != before {
				t.Errorf("%s: a refused entry changed the root", name)
			}
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestRootsCounts(t *testing.T) {
	r := NewRoots(BLAKE3, 1<<20)
	for _, e := range smallTree(BLAKE3) {
		if err := r.Add(&e); err != nil {
			t.Fatal(err)
		}
	}
	if r.Entries() != 5 || r.Bytes() != 3 {
		t.Errorf("%d entries of %d bytes, want 5 of 3", r.Entries(), r.Bytes())
	}
}

// Golden roots: if any of them changes, old manifests become unreadable.
func TestRootsGolden(t *testing.T) {
	const want = "f13e1ff817c1bafe216b23aac32d5e2ee61cfb3094540d09f526d9679926b7ec" +
		"6310dace1f2399efd87f391b8283e6ca3927a5af4103612acdcbd42f1a7899d6"
	if got := rootsOf(t, XXH3, 1<<20, smallTree(XXH3)); got != want {
		t.Errorf("roots %s, want %s", got, want)
	}
}

func TestStreamIsBLAKE3(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	data := randomBytes(9*groupBytes, 6)
	for range 200 {
		var s blake3Stream
		var sofar int
		for sofar < len(data) {
			n := min(rng.IntN(1<<rng.IntN(18)), len(data)-sofar)
			if rng.IntN(4) == 0 { // hit the edges
				n = min(groupBytes-sofar%groupBytes, len(data)-sofar)
			}
			if n%2 == 0 {
				s.write(data[sofar : sofar+n])
			} else {
				s.writeString(string(data[sofar : sofar+n]))
			}
			sofar += n
			if rng.IntN(8) == 0 {
				if got, want := s.sum(), Digest(blake3.Sum256(data[:sofar])); got != want {
					t.Fatalf("%d bytes: %x, want %x", sofar, got, want)
				}
			}
		}
		if got := s.sum(); got != blake3.Sum256(data) {
			t.Fatalf("%d bytes: %x", len(data), got)
		}
	}
}

func TestRootsAddDoesNotAllocate(t *testing.T) {
	r := NewRoots(XXH3, 1<<20)
	entries := manyFiles(2100)
	next := 0
	if got := testing.AllocsPerRun(1000, func() {
		if err := r.Add(&entries[next]); err != nil {
			t.Fatal(err)
		}
		next++
	}); got != 0 {
		t.Errorf("%v allocations an entry", got)
	}
}

// manyFiles returns n files in ascending order of path.
func manyFiles(n int) []Entry {
	entries := make([]Entry, n)
	for i := range entries {
		entries[i] = Entry{Type: File, Path: fmt.Sprintf("dataset/part-%04d/sample-%08d.npy", i/1000, i), Size: 1000, Mode: 0o644, MtimeNs: 1_700_000_000_000_000_000 + int64(i)}
	}
	if !slices.IsSortedFunc(entries, func(a, b Entry) int { return bytes.Compare([]byte(a.Path), []byte(b.Path)) }) {
		panic("not sorted")
	}
	return entries
}

func BenchmarkRootsAdd(b *testing.B) {
	entries := manyFiles(1 << 16)
	b.ReportAllocs()
	r := NewRoots(XXH3, 1<<20)
	for i := 0; b.Loop(); i++ {
		if i%len(entries) == 0 {
			r = NewRoots(XXH3, 1<<20)
		}
		if err := r.Add(&entries[i%len(entries)]); err != nil {
			b.Fatal(err)
		}
	}
}
