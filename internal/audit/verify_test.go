package audit

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

func TestVerifyFindsEveryDifference(t *testing.T) {
	const piece = testPieceBytes
	for _, c := range []struct {
		name   string
		change func(t *testing.T, dir string)
		want   []string
		o      Options
	}{
		{name: "nothing", change: func(*testing.T, string) {}},
		{
			name: "bytes of some pieces",
			change: func(t *testing.T, dir string) {
				for _, off := range []int64{0, 2*piece + 5, 3 * piece, 9*piece - 1, 10*piece + 6} {
					flip(t, dir+"/big", off)
				}
			},
			want: []string{`"big": content differs in bytes 0-65535, 131072-262143, 524288-589823, 655360-655366`},
		},
		{name: "a longer file", change: func(t *testing.T, dir string) { putFile(t, dir+"/big", data(11*piece)) }, want: []string{`"big": size is 720896, not 655367, content differs in bytes 0-720895`}},
		{name: "a cut file", change: func(t *testing.T, dir string) { truncate(t, dir+"/big", 2*piece) }, want: []string{`"big": size is 131072, not 655367`}},
		{name: "an emptied file", change: func(t *testing.T, dir string) { truncate(t, dir+"/small", 0) }, want: []string{`"small": size is 0, not 5`}},
		{name: "an empty file that grew", change: func(t *testing.T, dir string) { putFile(t, dir+"/empty", []byte("x")) }, want: []string{`"empty": size is 1, not 0, content differs in bytes 0-0`}},
		{
			name: "things that came and went",
			change: func(t *testing.T, dir string) {
				remove(t, dir+"/sub/x", dir+"/sub", dir+"/a-b", dir+"/link")
				putFile(t, dir+"/a-c", nil)
				putFile(t, dir+"/zz/new", nil)
				putFile(t, dir+"/sub", []byte("now a file"))
				symlink(t, "elsewhere", dir+"/link")
			},
			want: []string{`"a-b": missing`, `"a-c": not in the manifest`, `"link": link leads to "elsewhere", not "small"`, `"sub": type is f, not d`, `"sub/x": missing`, `"zz": not in the manifest`, `"zz/new": not in the manifest`},
		},
		{
			name: "a link where a file was", change: func(t *testing.T, dir string) { remove(t, dir+"/small"); symlink(t, "big", dir+"/small") },
			want: []string{`"small": type is l, not f`},
		},
		{name: "modes", change: func(t *testing.T, dir string) { chmod(t, dir+"/small", 0o640) }},
		{name: "modes that matter", o: Options{Preserve: true}, change: func(t *testing.T, dir string) { chmod(t, dir+"/small", 0o640) }, want: []string{`"small": mode is 0640, not 0644`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			putFile(t, dir+"/big", data(10*piece+7))
			putFile(t, dir+"/small", []byte("small"))
			putFile(t, dir+"/empty", nil)
			putFile(t, dir+"/a/x", []byte("x"))
			putFile(t, dir+"/a-b", []byte("y")) // sorts before "a/x"
			putFile(t, dir+"/sub/x", []byte("z"))
			symlink(t, "small", dir+"/link")
			text, made := makeManifest(t, dir, xxh3Header(), Options{})
			c.change(t, dir)
			got, s := verify(t, text, dir, c.o)
			if !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if n := s.Bad + s.Missing + s.Extra + s.Unreadable; int(n) != len(c.want) || s.Content != made.Content || s.Meta != made.Meta {
				t.Errorf("summary %+v of %+v", s, made)
			}
		})
	}
}

func flip(t *testing.T, path string, off int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var b [1]byte
	if _, err := f.ReadAt(b[:], off); err != nil {
		t.Fatal(err)
	}
	b[0] ^= 0x40
	if _, err := f.WriteAt(b[:], off); err != nil {
		t.Fatal(err)
	}
}

func truncate(t *testing.T, path string, n int64) {
	t.Helper()
	if err := os.Truncate(path, n); err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, paths ...string) {
	t.Helper()
	for _, p := range paths {
		if err := os.Remove(p); err != nil {
			t.Fatal(err)
		}
	}
}

func symlink(t *testing.T, target, path string) {
	t.Helper()
	if err := os.Symlink(target, path); err != nil {
		t.Fatal(err)
	}
}

func chmod(t *testing.T, path string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
}

// If a file has more differing ranges than are kept, the ranges still cover all
// differences.
func TestRangesAreBounded(t *testing.T) {
	path := t.TempDir() + "/f"
	const pieces = 2*manifest.MaxRanges + 10
	putFile(t, path, []byte("x"))
	truncate(t, path, pieces*testPieceBytes)
	text, _ := makeManifest(t, path, xxh3Header(), Options{})
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for i := int64(1); i < pieces; i += 2 {
		if _, err := f.WriteAt([]byte{1}, i*testPieceBytes); err != nil {
			t.Fatal(err)
		}
	}
	r, err := manifest.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var found Finding
	if _, err := Verify(t.Context(), r, path, Options{Report: func(f Finding) { found = f }}); err != nil {
		t.Fatal(err)
	}
	if n := len(found.Ranges); n != manifest.MaxRanges || found.Ranges[0].Offset != testPieceBytes || found.Ranges[n-1].End != pieces*testPieceBytes {
		t.Errorf("%d ranges, the last %v", n, found.Ranges[n-1])
	}
}

// counted is a Tally that stores the counts.
type counted struct {
	total, bytes, files atomic.Int64
	known               atomic.Bool
}

func (c *counted) AddTotal(n int64)         { c.total.Add(n) }
func (c *counted) SetTotalKnown(known bool) { c.known.Store(known) }
func (c *counted) AddBytes(n int64)         { c.bytes.Add(n) }
func (c *counted) AddFile()                 { c.files.Add(1) }

// Files that exist only in the tree are not read, and the counts include only
// what was read.
func TestExtraFilesAreNotRead(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/a", data(3*testPieceBytes))
	text, _ := makeManifest(t, dir, xxh3Header(), Options{})
	putFile(t, dir+"/b", data(9*testPieceBytes))
	tally := &counted{}
	if got, _ := verify(t, text, dir, Options{Tally: tally}); len(got) != 1 {
		t.Errorf("found %v", got)
	}
	if n := tally.bytes.Load(); n != 3*testPieceBytes || tally.total.Load() != n || !tally.known.Load() {
		t.Errorf("counted %+v", tally)
	}
}

// A void file counts as absent from the manifest.
func TestVoidFileCountsAsAbsent(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/a", data(2*testPieceBytes))
	var text bytes.Buffer
	w, err := manifest.NewWriter(&text, xxh3Header())
	if err == nil {
		err = errors.Join(w.WriteEntry(&manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}),
			w.BeginFile(&manifest.Entry{Type: manifest.File, Path: "a", Size: 2 * testPieceBytes, Mode: 0o644}), w.PieceRun(manifest.Digest{1}, 1), w.VoidFile(),
			w.BeginFile(&manifest.Entry{Type: manifest.File, Path: "b", Size: 2 * testPieceBytes, Mode: 0o644}), w.PieceRun(manifest.Digest{1}, 1), w.VoidFile())
	}
	if err == nil {
		_, err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := verify(t, text.Bytes(), dir, Options{}); !slices.Equal(got, []string{`"a": not in the manifest`}) {
		t.Errorf("found %v", got)
	}
}

// A manifest of several sources, or of listed names, has no top. Then the
// tree's own top is not extra.
func TestManifestWithoutATop(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/a", []byte("a"))
	b := chunker.NewListBuilder()
	defer b.Close()
	if err := b.Add("a"); err != nil {
		t.Fatal(err)
	}
	names, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	defer names.Close()
	text, made := makeManifest(t, dir, xxh3Header(), Options{Names: names})
	if got, s := verify(t, text, dir, Options{}); len(got) > 0 || made.Files != 1 || s.Content != made.Content {
		t.Errorf("found %v, summary %+v of %+v", got, s, made)
	}
	putFile(t, dir+"/b", nil)
	if got, _ := verify(t, text, dir, Options{}); !slices.Equal(got, []string{`"b": not in the manifest`}) {
		t.Errorf("found %v", got)
	}
}

// Leftovers of an unfinished copy are neither extra nor unreadable.
func TestLeftoversInAnAudit(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/a", []byte("a"))
	putFile(t, dir+"/.gdrcp-0123456789abcdef0123456789abcdef", []byte("partial"))
	text, s := makeManifest(t, dir, xxh3Header(), Options{})
	if s.Files != 1 || s.Skipped != 1 || s.Unreadable != 0 {
		t.Errorf("the new manifest: %+v", s)
	}
	if got, s := verify(t, text, dir, Options{}); s.Files != 1 || s.Skipped != 1 || s.Unreadable+s.Extra != 0 {
		t.Errorf("found %v, summary %+v", got, s)
	}
}
