package manifest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// diffTexts compares two manifests given as text.
func diffTexts(t testing.TB, a, b string) (changes []Change, identical bool, err error) {
	t.Helper()
	ra, err := NewReader(strings.NewReader(a))
	if err != nil {
		t.Fatal(err)
	}
	rb, err := NewReader(strings.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	identical, err = Diff(ra, rb, func(c Change) error {
		changes = append(changes, c)
		return nil
	})
	return changes, identical, err
}

// told is changes in short form, for comparison with the expected ones.
func told(changes []Change) (s []string) {
	for _, c := range changes {
		switch {
		case c.B == nil:
			s = append(s, "- "+c.Path())
		case c.A == nil:
			s = append(s, "+ "+c.Path())
		case c.Ranges == nil:
			s = append(s, fmt.Sprintf("%s: %s", c.Path(), c.Differs))
		default:
			s = append(s, fmt.Sprintf("%s: %s %v", c.Path(), c.Differs, c.Ranges))
		}
	}
	return s
}

func TestDiff(t *testing.T) {
	h := Header{XXH3, 64 << 10}
	x, y, z := leafDigest(XXH3, 1), leafDigest(XXH3, 2), leafDigest(XXH3, 3)
	dir := func(path string) item { return item{Entry: Entry{Type: Dir, Path: path}} }
	link := func(target string) item { return item{Entry: Entry{Type: Symlink, Path: "a", Target: target}} }
	file := func(size int64, pieces ...run) item { return fileItem(h, "a", size, pieces...) }
	void := file(3<<16, run{x, 3})
	void.void, void.Root = true, Digest{}
	meta := file(1, run{x, 1})
	meta.Mode, meta.MtimeNs = 0, 0
	type items = []item
	for name, c := range map[string]struct {
		a, b items
		want []string
	}{
		"nothing":            {nil, nil, nil},
		"same":               {items{dir("."), file(3<<16, run{x, 1}, run{y, 2}), dir("b")}, items{dir("."), file(3<<16, run{x, 1}, run{y, 2}), dir("b")}, nil},
		"added":              {items{dir("b")}, items{dir("."), dir("a"), dir("b"), dir("c")}, []string{"+ .", "+ a", "+ c"}},
		"removed":            {items{dir("."), dir("!"), dir("b")}, items{dir("!")}, []string{"- .", "- b"}},
		"top before all":     {items{dir("!")}, items{dir(".")}, []string{"+ .", "- !"}},
		"big one removed":    {items{file(3<<16, run{x, 3}), dir("b")}, items{dir("b")}, []string{"- a"}},
		"type":               {items{link("t")}, items{dir("a")}, []string{"a: type"}},
		"type, of a big one": {items{file(3<<16, run{x, 3}), dir("b")}, items{dir("a")}, []string{"a: type,mode,mtime", "- b"}},
		"target":             {items{link("t")}, items{link("u")}, []string{"a: target"}},
		"mode and time":      {items{file(1, run{x, 1})}, items{meta}, []string{"a: mode,mtime"}},
		"small content":      {items{file(9, run{x, 1})}, items{file(9, run{y, 1})}, []string{"a: content [{0 9}]"}},
		"to empty":           {items{file(9, run{x, 1})}, items{file(0)}, []string{"a: size,content [{0 9}]"}},
		"one piece":          {items{file(4<<16, run{x, 4})}, items{file(4<<16, run{x, 2}, run{y, 1}, run{x, 1})}, []string{"a: content [{131072 196608}]"}},
		"merged":             {items{file(4<<16, run{x, 4})}, items{file(4<<16, run{x, 1}, run{y, 1}, run{z, 1}, run{x, 1})}, []string{"a: content [{65536 196608}]"}},
		"apart":              {items{file(3<<16-1, run{x, 3})}, items{file(3<<16-1, run{y, 1}, run{x, 1}, run{y, 1})}, []string{"a: content [{0 65536} {131072 196607}]"}},
		"grown":              {items{file(2<<16, run{x, 2})}, items{file(3<<16+5, run{x, 3}, run{y, 1})}, []string{"a: size,content [{131072 196613}]"}},
		"shrunk mid-piece":   {items{file(3<<16, run{x, 3})}, items{file(1<<16+5, run{x, 1}, run{y, 1})}, []string{"a: size,content [{65536 196608}]"}},
		"void and absent":    {items{void}, items{dir("b")}, []string{"+ b"}},
		"void both":          {items{void}, items{void}, nil},
		"void and there":     {items{void}, items{file(3<<16, run{y, 3})}, []string{"+ a"}},
		"there and void":     {items{file(3<<16, run{y, 3})}, items{void}, []string{"- a"}},
		"void and directory": {items{void}, items{dir("a")}, []string{"+ a"}},
		"huge":               {items{file(1<<62, run{x, 1 << 46})}, items{file(1<<62, run{x, 1<<46 - 1}, run{y, 1})}, []string{fmt.Sprintf("a: content [{%d %d}]", int64(1<<62-1<<16), int64(1<<62))}},
	} {
		changes, identical, err := diffTexts(t, manifestText(t, h, c.a), manifestText(t, h, c.b))
		if got := told(changes); err != nil || identical != (c.want == nil) || !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, identical %v, %v; want %q", name, got, identical, err, c.want)
		}
	}
}

func TestDiffRangesBounded(t *testing.T) {
	h := Header{XXH3, 64 << 10}
	var a, b []run
	const pieces = 4 * MaxRanges
	for i := range pieces {
		a = append(a, run{leafDigest(XXH3, i), 1})
		b = append(b, run{leafDigest(XXH3, i+i%2), 1}) // every second differs
	}
	changes, _, err := diffTexts(t, manifestText(t, h, []item{fileItem(h, "a", pieces<<16, a...)}), manifestText(t, h, []item{fileItem(h, "a", pieces<<16, b...)}))
	if err != nil || len(changes) != 1 {
		t.Fatal(changes, err)
	}
	c := changes[0]
	if len(c.Ranges) != MaxRanges || c.Ranges[0] != (ByteRange{1 << 16, 2 << 16}) || c.Ranges[MaxRanges-1].End != pieces<<16 {
		t.Errorf("%d ranges, last %v", len(c.Ranges), c.Ranges[len(c.Ranges)-1])
	}
}

func TestDiffErrors(t *testing.T) {
	h := Header{XXH3, 1 << 20}
	empty := manifestText(t, h, nil)
	for _, other := range []Header{{SHA256, 1 << 20}, {XXH3, 1 << 21}} {
		if _, identical, err := diffTexts(t, empty, manifestText(t, other, nil)); !errors.Is(err, ErrIncomparable) || identical {
			t.Errorf("%v: %v", other, err)
		}
	}
	text := manifestText(t, h, onePieces())
	for _, cut := range []int{len(text) / 2, len(text) - 50} {
		for which, pair := range map[string][2]string{"first:": {text[:cut], text}, "second:": {text, text[:cut]}} {
			_, identical, err := diffTexts(t, pair[0], pair[1])
			if !errors.Is(err, ErrTruncated) || identical || !strings.HasPrefix(err.Error(), which) {
				t.Errorf("%s cut at %d: %v", which, cut, err)
			}
		}
	}
	stop := errors.New("enough")
	ra, _ := NewReader(strings.NewReader(text))
	rb, _ := NewReader(strings.NewReader(empty))
	if identical, err := Diff(ra, rb, func(Change) error { return stop }); !errors.Is(err, stop) || identical {
		t.Errorf("report's error: %v", err)
	}
}

// Compares Diff, in both directions, with a plain comparison of everything in memory.
func TestDiffRandomTrees(t *testing.T) {
	rng := rand.New(rand.NewPCG(13, 14))
	for range 300 {
		h := randomHeader(rng)
		a := randomItems(rng, h)
		b := randomItems(rng, h)
		if rng.IntN(2) == 0 { // so that the trees have much in common
			b = slices.Clone(a)
			for i := range b {
				if rng.IntN(4) == 0 && b[i].Type == File {
					path := b[i].Path
					b[i] = randomFile(rng, h, path)
				}
			}
		}
		textA, textB := manifestText(t, h, a), manifestText(t, h, b)
		want := map[string][2]*Entry{}
		for i := range a {
			if !a[i].void {
				want[a[i].Path] = [2]*Entry{&a[i].Entry, nil}
			}
		}
		for i := range b {
			if !b[i].void {
				want[b[i].Path] = [2]*Entry{want[b[i].Path][0], &b[i].Entry}
			}
		}
		for path, pair := range want {
			if reflect.DeepEqual(pair[0], pair[1]) {
				delete(want, path)
			}
		}
		changes, identical, err := diffTexts(t, textA, textB)
		back, _, _ := diffTexts(t, textB, textA)
		if err != nil || identical != (len(want) == 0) || len(changes) != len(want) || len(back) != len(want) {
			t.Fatalf("%q, identical %v, %v; want %d of\n%s\n%s", told(changes), identical, err, len(want), textA, textB)
		}
		for i, c := range changes {
			pair := want[c.Path()]
			if !reflect.DeepEqual(pair, [2]*Entry{c.A, c.B}) {
				t.Fatalf("%s: %+v, want %+v", c.Path(), c, pair)
			}
			if !reflect.DeepEqual(back[i], Change{A: c.B, B: c.A, Differs: c.Differs, Ranges: c.Ranges}) {
				t.Fatalf("%s: backwards %+v, forwards %+v", c.Path(), back[i], c)
			}
		}
	}
}

func BenchmarkDiff(b *testing.B) {
	h := Header{XXH3, DefaultPieceBytes}
	text := manifestText(b, h, manyItems())
	b.ReportAllocs()
	for b.Loop() {
		if _, identical, err := diffTexts(b, text, text); !identical || err != nil {
			b.Fatal(err)
		}
	}
}
