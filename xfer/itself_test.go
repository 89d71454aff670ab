package xfer_test

import (
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/audit"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// createIn writes the manifest of dir into a file, as manifest create does.
func createIn(t *testing.T, name, dir string) {
	t.Helper()
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	f, err := manifest.Create(name, h)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	if _, err := audit.Create(t.Context(), dir, f.Writer, h, audit.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Commit(); err != nil {
		t.Fatal(err)
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
