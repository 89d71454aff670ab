package manifest

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// run is a number of equal digests, as a Reader returns them.
type run struct {
	d     Digest
	count uint64
}

// item is an entry with its pieces.
type item struct {
	Entry
	pieces []run
	void   bool
}

// writeItems writes items through every kind of call the Writer has.
func writeItems(t testing.TB, w *Writer, items []item) Summary {
	t.Helper()
	for i, it := range items {
		var err error
		switch {
		case it.Type == File && (it.void || len(it.pieces) > 1 || i%2 == 0):
			err = w.BeginFile(&it.Entry)
			for _, p := range it.pieces {
				for ; err == nil && p.count > 0 && p.count < 4; p.count-- {
					err = w.PieceRun(p.d, 1)
				}
				if err == nil {
					err = w.PieceRun(p.d, p.count)
				}
			}
			if err == nil && it.void {
				err = w.VoidFile()
			} else if err == nil {
				err = w.EndFile(it.Root)
			}
		case it.Type == File && PieceCount(it.Size, w.header.PieceBytes) > 1: // one run
			err = w.BeginFile(&it.Entry)
			if err == nil {
				err = w.PieceRun(it.pieces[0].d, it.pieces[0].count)
			}
			if err == nil {
				err = w.EndFile(it.Root)
			}
		default:
			err = w.WriteEntry(&it.Entry)
		}
		if err != nil {
			t.Fatalf("write %q: %v", it.Path, err)
		}
	}
	s, err := w.Close()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// manifestText returns the text of items.
func manifestText(t testing.TB, h Header, items []item) string {
	t.Helper()
	var b strings.Builder
	w, err := NewWriter(&b, h)
	if err != nil {
		t.Fatal(err)
	}
	writeItems(t, w, items)
	return b.String()
}

// readItems reads a whole manifest; void files are marked.
func readItems(r *Reader) (items []item, err error) {
	for {
		e, err := r.Next()
		if err != nil {
			return items, err
		}
		it := item{}
		for {
			d, n, err := r.NextPiece()
			if err != nil {
				it.void = err == ErrVoid
				if !it.void && r.err != nil {
					return items, err
				}
				break
			}
			it.pieces = append(it.pieces, run{d, n})
		}
		it.Entry = *e
		items = append(items, it)
	}
}

// fileItem is a file of those pieces, with its root.
func fileItem(h Header, path string, size int64, pieces ...run) item {
	tree := NewTree(h.Algorithm)
	for _, p := range pieces {
		tree.PushRun(p.d, p.count)
	}
	return item{Entry: Entry{Type: File, Path: path, Size: size, Mode: 0o644, MtimeNs: 1e18, Root: tree.Root()}, pieces: pieces}
}

// goldenHeader and goldenItems are the manifest whose text is golden.
var goldenHeader = Header{CRC32C, 64 << 10}

func goldenItems() []item {
	h := goldenHeader
	a, b := Digest{0xaa, 0, 0, 1}, Digest{0xbb, 0, 0, 2}
	void := fileItem(h, "e void", 3<<16, run{b, 1})
	void.Root, void.void = Digest{}, true
	return []item{
		{Entry: Entry{Type: Dir, Path: ".", Mode: 0o1755, MtimeNs: 1_700_000_000_000_000_001}},
		fileItem(h, "a name with spaces", 9, run{Digest{0xe3, 0x06, 0x92, 0x83}, 1}),
		{Entry: Entry{Type: File, Path: "b\nc\td\\e\xff", Mode: 0, MtimeNs: -1, Root: Digest{}}},
		fileItem(h, "d", 3<<16, run{a, 1}, run{b, 2}),
		{Entry: Entry{Type: Symlink, Path: "d -> link", Mode: 0o777, MtimeNs: 0, Target: "../bloß "}},
		void,
		fileItem(h, "f sparse", 1<<40, run{a, 1 << 23}, run{b, 1 << 23}),
		{Entry: Entry{Type: Dir, Path: "größe\u202e", Mode: 0o700, MtimeNs: math.MinInt64}},
	}
}

const golden = "gdrcp-manifest 1 crc32c 65536\n" +
	"d 1755 1700000000.000000001 .\n" +
	"f 0644 1000000000.000000000 9 e3069283 a name with spaces\n" +
	"f 0000 -0.000000001 0 00000000 b\\nc\\td\\\\e\\xff\n" +
	"f 0644 1000000000.000000000 196608 * d\n" +
	" aa000001\n" +
	" bb000002 x2\n" +
	"= a1121938\n" +
	"l 0777 0.000000000 d -> link\t../bloß\\x20\n" +
	"f 0644 1000000000.000000000 196608 * e void\n" +
	" bb000002\n" +
	"= -\n" +
	"f 0644 1000000000.000000000 1099511627776 * f sparse\n" +
	" aa000001 x8388608\n" +
	" bb000002 x8388608\n" +
	"= 8f6c1f43\n" +
	"d 0700 -9223372036.854775808 größe\\xe2\\x80\\xae\n" +
	"root 158c24071c67da9030d8059c3540b4308fccb99e81ca3ea43bbb3d14ec63c464 " +
	"bcf6fbdb7f8ff93fc9ac90f031fb683755b14923d0c2bc686de1f99b0aec1faf entries=7 bytes=1099511824393\n"

func TestGoldenText(t *testing.T) {
	if got := manifestText(t, goldenHeader, goldenItems()); got != golden {
		t.Errorf("wrote\n%s\nwant\n%s", got, golden)
	}
	r, err := NewReader(strings.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	items, err := readItems(r)
	if got := manifestText(t, r.Header(), items); got != golden {
		t.Errorf("read (%v) and written again:\n%s", err, got)
	}
	if r.Summary().Entries != 7 {
		t.Errorf("summary %+v", r.Summary())
	}
}

func TestEscape(t *testing.T) {
	for plain, want := range map[string]string{
		"":                         "",
		"a b":                      "a b",
		" a":                       " a",
		"a ":                       `a\x20`,
		" ":                        `\x20`,
		`\`:                        `\\`,
		"\n\t\r":                   `\n\t\r`,
		"\x00\x1b[31m\x7f":         `\x00\x1b[31m\x7f`,
		"naïve 日本 🚀":               "naïve 日本 🚀",
		"\xc3\x28":                 `\xc3(`,
		"\xed\xa0\x80":             `\xed\xa0\x80`, // a surrogate
		"\ufffd":                   "\ufffd",       // the character itself is valid
		"\u0085\u009b\u2028":       `\xc2\x85\xc2\x9b\xe2\x80\xa8`,
		"\u200e\u2067\ufeff":       `\xe2\x80\x8e\xe2\x81\xa7\xef\xbb\xbf`,
		"\u061c\u00a0\u200b\u200d": "\\xd8\\x9c\u00a0\u200b\u200d",
	} {
		got := string(appendEscaped(nil, plain))
		if got != want {
			t.Errorf("escaped %q is %s, want %s", plain, got, want)
		}
		if back, ok := appendUnescaped(nil, []byte(got)); string(back) != plain || !ok {
			t.Errorf("%s unescaped is %q, %v, want %q", got, back, ok, plain)
		}
	}
	var r Reader
	for _, bad := range []string{`\`, `a\`, `\x`, `\x4`, `\xg0`, `\xFF`, `\x41`, `\x0a`, `\a`, "a ", "a\tb", "\xff", `\x20a`, "\u202e"} {
		if got, err := r.unescape([]byte(bad)); err == nil {
			t.Errorf("%q was read as %q", bad, got)
		}
	}
}

func TestTimeText(t *testing.T) {
	for ns, want := range map[int64]string{
		0: "0.000000000", 1: "0.000000001", -1: "-0.000000001", 1e9: "1.000000000", -1_500_000_000: "-1.500000000",
		math.MaxInt64: "9223372036.854775807", math.MinInt64: "-9223372036.854775808",
	} {
		if got := string(appendTime(nil, ns)); got != want {
			t.Errorf("%d ns is %s, want %s", ns, got, want)
		}
		if got, ok := parseTime([]byte(want)); got != ns || !ok {
			t.Errorf("%s is %d ns, %v", want, got, ok)
		}
	}
	for _, bad := range []string{
		"", "-", "0", "0.", "1.00000000", "1.0000000000", "-0.000000000", "+1.000000000", "01.000000000", "1.00000000a",
		"9223372036.854775808", "-9223372036.854775809", "9223372037.000000000", "99999999999999999999.000000000", ".000000000",
	} {
		if ns, ok := parseTime([]byte(bad)); ok {
			t.Errorf("%q was read as %d ns", bad, ns)
		}
	}
}

func TestParseDecimal(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "7": 7, "10": 10, "9223372036854775807": math.MaxInt64} {
		if n, ok := parseDecimal([]byte(text)); n != want || !ok {
			t.Errorf("%q is %d, %v", text, n, ok)
		}
	}
	for _, bad := range []string{"", "-1", "+1", "00", "07", "1 ", "0x1", "9223372036854775808", "18446744073709551616"} {
		if n, ok := parseDecimal([]byte(bad)); ok {
			t.Errorf("%q was read as %d", bad, n)
		}
	}
}

// randomName returns a name with troublesome bytes.
func randomName(rng *rand.Rand) string {
	const chars = "aab bc -\\\n\t\r\x01\x7f\x80\xff\xc3\xa9\xe2\x80\xa8\xf0\x9f\x9a\x80.!0~"
	b := make([]byte, 1+rng.IntN(12))
	for i := range b {
		b[i] = chars[rng.IntN(len(chars))]
	}
	if s := string(b); s != "." && s != ".." {
		return s
	}
	return "x"
}

// randomItems returns a sorted tree with every type of entry.
func randomItems(rng *rand.Rand, h Header) []item {
	all := map[string]item{}
	dirs := []string{""}
	if rng.IntN(2) == 0 {
		all["."] = item{Entry: Entry{Type: Dir, Path: "."}}
	}
	for range rng.IntN(30) {
		path := dirs[rng.IntN(len(dirs))] + randomName(rng)
		if _, taken := all[path]; taken {
			continue
		}
		it := item{Entry: Entry{Type: Dir, Path: path}}
		switch rng.IntN(5) {
		case 0:
			dirs = append(dirs, path+"/")
		case 1:
			it.Type, it.Target = Symlink, randomName(rng)+"/"+randomName(rng)
		default:
			it = randomFile(rng, h, path)
		}
		it.Mode, it.MtimeNs = rng.Uint32N(0o10000), int64(rng.Uint64())
		all[path] = it
	}
	var items []item
	for _, it := range all {
		items = append(items, it)
	}
	slices.SortFunc(items, func(a, b item) int { return ComparePaths(a.Path, b.Path) })
	return items
}

func randomFile(rng *rand.Rand, h Header, path string) item {
	count := rng.Int64N(6)
	size := count * h.PieceBytes
	if count > 0 {
		size -= rng.Int64N(h.PieceBytes)
	}
	var pieces []run
	for left := uint64(count); left > 0; {
		n := 1 + rng.Uint64N(left)
		d := leafDigest(h.Algorithm, len(pieces)+2*rng.IntN(8)) // differs from its neighbour
		pieces, left = append(pieces, run{d, n}), left-n
	}
	if rng.IntN(100) == 0 { // far too long to hold
		n := 1 + rng.Uint64N(1<<40)
		size, pieces = int64(n)*h.PieceBytes, []run{{leafDigest(h.Algorithm, 1), n}}
	}
	it := fileItem(h, path, size, pieces...)
	if count > 1 && len(pieces) > 1 && rng.IntN(8) == 0 {
		it.void, it.Root, it.pieces = true, Digest{}, pieces[:rng.IntN(len(pieces)+1)]
	}
	return it
}

func randomHeader(rng *rand.Rand) Header {
	return Header{everyAlgorithm[rng.IntN(4)], MinPieceBytes << rng.IntN(5)}
}

func sameItem(a, b item) bool {
	return a.Entry == b.Entry && a.void == b.void && slices.Equal(a.pieces, b.pieces)
}

func TestRoundTripRandomTrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for i := range 500 {
		h := randomHeader(rng)
		items := randomItems(rng, h)
		var text bytes.Buffer
		w, err := NewWriter(&text, h)
		if err != nil {
			t.Fatal(err)
		}
		wrote := writeItems(t, w, items)
		r, err := NewReader(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		got, err := readItems(r)
		if !slices.EqualFunc(got, items, sameItem) || r.Summary() != wrote {
			t.Fatalf("tree %d: read %v,\n%+v\nwant\n%+v\ntext\n%s", i, err, got, items, text.String())
		}
		// A reader that skips pieces sees the same entries and roots.
		r, err = NewReader(bytes.NewReader(text.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range items {
			e, err := r.Next()
			if err != nil || e.Path != want.Path {
				t.Fatalf("tree %d: skipping: %v, %v, want %q", i, e, err, want.Path)
			}
		}
		if _, err := r.Next(); err == nil || r.Summary() != wrote {
			t.Fatalf("tree %d: skipping: %v at the end", i, err)
		}
	}
}
