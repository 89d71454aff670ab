package audit

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/manifest"

	"lukechampine.com/blake3"
)

const testPieceBytes = 64 << 10

// data returns n bytes in which no two pieces are equal.
func data(n int) []byte {
	b := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(n)})
	_, _ = random.Read(b) // never fails
	return b
}

func putFile(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// makeManifest returns the manifest of path, as text.
func makeManifest(t testing.TB, path string, h manifest.Header, o Options) ([]byte, *Summary) {
	t.Helper()
	var text bytes.Buffer
	w, err := manifest.NewWriter(&text, h)
	if err != nil {
		t.Fatal(err)
	}
	s, err := Create(t.Context(), path, w, h, o)
	if err != nil {
		t.Fatal(err)
	}
	return text.Bytes(), s
}

// verify compares path with a manifest and returns the findings, one per line.
func verify(t testing.TB, text []byte, path string, o Options) ([]string, *Summary) {
	t.Helper()
	r, err := manifest.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var lines []string
	o.Report = func(f Finding) { lines = append(lines, f.Text) }
	s, err := Verify(t.Context(), r, path, o)
	if err != nil {
		t.Fatal(err)
	}
	return lines, s
}

func xxh3Header() manifest.Header {
	return manifest.Header{Algorithm: manifest.XXH3, PieceBytes: testPieceBytes}
}

// With BLAKE3 a file's root is the hash that b3sum prints, with or without holes.
func TestRootsAreThoseOfB3sum(t *testing.T) {
	dir := t.TempDir()
	for name, n := range map[string]int{"0": 0, "1": 1, "piece-1": testPieceBytes - 1, "piece": testPieceBytes, "piece+1": testPieceBytes + 1, "many": 21*testPieceBytes + 77} {
		putFile(t, filepath.Join(dir, name), data(n))
	}
	sparse, err := os.Create(dir + "/sparse")
	if err != nil {
		t.Fatal(err)
	}
	_, err = sparse.WriteAt([]byte("data"), 40*testPieceBytes+5)
	if err = errors.Join(err, sparse.Truncate(99*testPieceBytes+3), sparse.Close()); err != nil {
		t.Fatal(err)
	}
	text, _ := makeManifest(t, dir, manifest.Header{Algorithm: manifest.BLAKE3, PieceBytes: testPieceBytes}, Options{})
	r, err := manifest.NewReader(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b3sum, _ := exec.LookPath("b3sum")
	for {
		e, err := r.Next()
		if err != nil {
			break
		}
		if err := r.SkipPieces(); err != nil {
			t.Fatal(err)
		}
		if e.Type != manifest.File {
			continue
		}
		path := filepath.Join(dir, e.Path)
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if want := blake3.Sum256(data); e.Root != manifest.Digest(want) {
			t.Errorf("%s: root %x, want %x", e.Path, e.Root, want)
		}
		if b3sum == "" {
			continue
		}
		out, err := exec.Command(b3sum, "--no-names", path).Output()
		if err != nil || strings.TrimSpace(string(out)) != manifest.BLAKE3.Hex(e.Root) {
			t.Errorf("%s: b3sum prints %s, %v", e.Path, out, err)
		}
	}
}

// Holes are not read: a tebibyte of them takes no time, and the data between
// them is found.
func TestHugeSparseFile(t *testing.T) {
	path := t.TempDir() + "/huge"
	putFile(t, path, []byte("begin"))
	const size = 1<<40 + 12345
	truncate(t, path, size)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt([]byte("middle"), 1<<39); err != nil {
		t.Fatal(err)
	}
	if st, err := f.Stat(); err != nil || st.Size() != size {
		t.Skipf("no sparse files here: %v", err)
	}
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	text, s := makeManifest(t, path, h, Options{})
	if s.Bytes != size || len(text) > 1000 {
		t.Errorf("%d bytes in a manifest of %d:\n%.2000s", s.Bytes, len(text), text)
	}
	if got, _ := verify(t, text, path, Options{}); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	flip(t, path, 1<<39+2)
	flip(t, path, 1<<38)
	want := []string{`"huge": content differs in bytes 274877906944-274878955519, 549755813888-549756862463`}
	if got, _ := verify(t, text, path, Options{}); !slices.Equal(got, want) {
		t.Errorf("found %v", got)
	}
}

// A file that changes between the walk and its reading is reported, and omitted
// from the manifest.
func TestFileThatChangesDuringAnAudit(t *testing.T) {
	for name, size := range map[string]int{"one piece": 100, "many pieces": 5 * testPieceBytes} {
		path := t.TempDir() + "/f"
		putFile(t, path, data(size))
		tr, err := newTreeReader(path, xxh3Header(), &Options{})
		if err != nil {
			t.Fatal(err)
		}
		var text bytes.Buffer
		w, err := manifest.NewWriter(&text, xxh3Header())
		if err != nil {
			t.Fatal(err)
		}
		sum := &Summary{Header: xxh3Header()}
		var found []Finding
		maker := &maker{out: w, sum: sum, report: func(f Finding) { found = append(found, f) }}
		err = tr.run(t.Context(), func(ctx context.Context) error {
			it, err := tr.next()
			if err != nil {
				return err
			}
			flip(t, path, 50)
			truncate(t, path, int64(size)-1)
			return tr.cutFile(ctx, it, nil)
		}, maker)
		if err = errors.Join(err, tr.tree.Close()); err != nil {
			t.Fatal(err)
		}
		if len(found) != 1 || found[0].Kind != Unreadable || !strings.Contains(found[0].Text, fileset.ErrChanged.Error()) || sum.Files != 0 {
			t.Errorf("%s: found %+v, summary %+v", name, found, sum)
		}
	}
}

// A file that has just changed is read once its times would reveal any further change.
func TestFreshFilesAreReadLater(t *testing.T) {
	below := t.TempDir()
	putFile(t, below+"/small", data(100))
	putFile(t, below+"/large", data(5*testPieceBytes))
	dir, youngest := fusetest.MountFresh(t, below)
	if _, sum := makeManifest(t, dir, xxh3Header(), Options{}); sum.Files != 2 {
		t.Errorf("%+v", sum)
	}
	if got := youngest(); got < 20*time.Millisecond {
		t.Errorf("a file was read %v after its last change", got)
	}
}

func TestSpecialFilesInAnAudit(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/a", []byte("a"))
	text, _ := makeManifest(t, dir, xxh3Header(), Options{})
	remove(t, dir+"/a")
	if err := exec.Command("mkfifo", dir+"/a", dir+"/b").Run(); err != nil {
		t.Skipf("mkfifo: %v", err)
	}
	got, s := verify(t, text, dir, Options{})
	if s.Bad != 1 || s.Skipped != 1 || len(got) != 2 || !strings.HasPrefix(got[0], `"a": type differs: `) {
		t.Errorf("found %v, summary %+v", got, s)
	}
	if _, s := makeManifest(t, dir, xxh3Header(), Options{}); s.Files != 0 || s.Skipped != 2 || s.Unreadable != 0 {
		t.Errorf("summary %+v", s)
	}
}

func TestAuditFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	putFile(t, dir+"/blobs/x", []byte("content"))
	if err := os.Mkdir(dir+"/t", 0o755); err != nil {
		t.Fatal(err)
	}
	symlink(t, "../blobs/x", dir+"/t/model")
	if _, s := makeManifest(t, dir+"/t", xxh3Header(), Options{}); s.Links != 1 || s.Files != 0 {
		t.Errorf("without following: %+v", s)
	}
	text, s := makeManifest(t, dir+"/t", xxh3Header(), Options{Follow: true})
	if s.Links != 0 || s.Files != 1 {
		t.Errorf("following: %+v", s)
	}
	remove(t, dir+"/t/model")
	putFile(t, dir+"/t/model", []byte("content"))
	if got, _ := verify(t, text, dir+"/t", Options{}); len(got) > 0 {
		t.Errorf("found %v", got)
	}
	// The path itself may be a link, to a tree or to a file.
	symlink(t, "t", dir+"/to-tree")
	if got, _ := verify(t, text, dir+"/to-tree", Options{}); len(got) > 0 {
		t.Errorf("through a link: found %v", got)
	}
	symlink(t, "blobs/x", dir+"/to-file")
	one, _ := makeManifest(t, dir+"/to-file", xxh3Header(), Options{})
	if got, _ := verify(t, one, dir+"/blobs/x", Options{}); len(got) > 0 {
		t.Errorf("a file through a link: found %v", got)
	}
}

// An interrupted audit leaves no file open.
func TestInterruptedAudit(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b", "c"} {
		putFile(t, filepath.Join(dir, name), data(300*testPieceBytes))
	}
	before := openFiles(t)
	for _, after := range []int64{0, 1, 200, 500} {
		ctx, cancel := context.WithCancelCause(t.Context())
		enough := errors.New("enough")
		tr, err := newTreeReader(dir, xxh3Header(), &Options{})
		if err != nil {
			t.Fatal(err)
		}
		err = tr.run(ctx, tr.cutAll, takerFunc(func() {
			if after--; after < 0 {
				cancel(enough)
			}
		}))
		tr.tree.Close()
		cancel(nil)
		if !errors.Is(err, enough) {
			t.Errorf("it ended with %v", err)
		}
	}
	if now := openFiles(t); now != before {
		t.Errorf("%d files are open, before %d", now, before)
	}
}

// takerFunc is called for every piece.
type takerFunc func()

func (f takerFunc) piece(*piece) error { f(); return nil }
func (f takerFunc) end(*item) error    { return nil }

func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skipf("cannot count open files: %v", err)
	}
	return len(list)
}
