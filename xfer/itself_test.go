package xfer_test

import (
	"os"
	"path/filepath"
	"testing"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// createIn writes the manifest of dir into a file, as manifest create does.
func createIn(t *testing.T, name, dir string) *xfer.AuditSummary {
	t.Helper()
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	f, err := manifest.Create(name, h)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	s, err := xfer.CreateManifest(t.Context(), dir, f.Writer, h, xfer.AuditOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	return s
}

// A manifest in the tree that it is of does not have itself, neither its
// temporary file nor what it replaces, and is not missed.
func TestManifestInItsOwnTree(t *testing.T) {
	for _, name := range []string{"MANIFEST", "sub/m.zst"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "a"), []byte("a"))
		write(t, filepath.Join(dir, "sub", "b"), []byte("b"))
		m := filepath.Join(dir, name)
		for range 2 { // the second replaces the first
			if s := createIn(t, m, dir); s.Files != 2 {
				t.Errorf("%s: %d files", name, s.Files)
			}
		}
		// Another name of the one that is replaced keeps its contents.
		if err := os.Link(m, filepath.Join(dir, "older")); err != nil {
			t.Fatal(err)
		}
		if s := createIn(t, m, dir); s.Files != 3 {
			t.Errorf("%s: %d files", name, s.Files)
		}
		r, err := manifest.Open(m)
		if err != nil {
			t.Fatal(err)
		}
		s, err := xfer.VerifyTree(t.Context(), r, dir, xfer.AuditOptions{Report: func(f xfer.Finding) { t.Errorf("%s: found %s", name, f.Text) }})
		if err != nil || s.Files != 3 {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
		r.Close()
	}
}

// The manifest of standard output can be in the tree, too.
func TestManifestRedirectedIntoItsTree(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "a"), []byte("a"))
	out, err := os.Create(filepath.Join(dir, "MANIFEST"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	w, err := manifest.NewWriter(out, h)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := xfer.CreateManifest(t.Context(), dir, w, h, xfer.AuditOptions{}); err != nil || s.Files != 1 {
		t.Errorf("%v, %+v", err, s)
	}
}

func TestWrittenManifestIsNotCopied(t *testing.T) { over(t, testWrittenManifestIsNotCopied) }

func testWrittenManifestIsNotCopied(t *testing.T, w way) {
	xfer.OnHost(t)
	s, parent := serve(t, w), t.TempDir()
	src := filepath.Join(parent, "src")
	write(t, filepath.Join(src, "a"), []byte("a"))
	for i, tc := range []struct {
		sources []string
		files   int64
		skipped int64
		there   string // at the destination, and stays
	}{
		{[]string{src}, 1, 0, "a"},
		{[]string{src}, 1, 1, "src/m"}, // replaces the first
		{[]string{src + "/."}, 1, 1, "m"},
		{[]string{src, filepath.Join(src, "m")}, 2, 1, "m"}, // it was named
	} {
		o := w.options(t)
		o.WriteManifest, o.Delete = filepath.Join(src, "m"), true
		dst := filepath.Join(s.root, string(rune('0'+i)))
		write(t, filepath.Join(dst, tc.there), []byte("old"))
		sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), tc.sources, s.ep, filepath.Base(dst), o)
		if err != nil || sum.Files != tc.files || sum.Skipped != tc.skipped || sum.Deleted != 0 {
			t.Errorf("%v: %v, %+v", tc.sources, err, sum)
		}
		if _, err := os.Stat(filepath.Join(dst, tc.there)); err != nil {
			t.Errorf("%v: %v", tc.sources, err)
		}
		noTemps(t, dst)
	}
}
