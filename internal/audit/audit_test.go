package audit

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gdrcp/manifest"
)

// createIn writes the manifest of dir to a file, as manifest create does.
func createIn(t *testing.T, name, dir string) *Summary {
	t.Helper()
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	f, err := manifest.Create(name, h)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	s, err := Create(t.Context(), dir, f.Writer, h, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	return s
}

// A manifest in the tree that it describes does not list itself, neither its
// temporary file nor the file that it replaces, and Verify does not miss it.
func TestManifestInItsOwnTree(t *testing.T) {
	for _, name := range []string{"MANIFEST", "sub/m.zst"} {
		dir := t.TempDir()
		putFile(t, filepath.Join(dir, "a"), []byte("a"))
		putFile(t, filepath.Join(dir, "sub", "b"), []byte("b"))
		m := filepath.Join(dir, name)
		for range 2 { // the second one replaces the first
			if s := createIn(t, m, dir); s.Files != 2 {
				t.Errorf("%s: %d files", name, s.Files)
			}
		}
		// Another hard link to the replaced file keeps its contents.
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
		s, err := Verify(t.Context(), r, dir, Options{Report: func(f Finding) { t.Errorf("%s: found %s", name, f.Text) }})
		if err != nil || s.Files != 3 {
			t.Errorf("%s: %v, %+v", name, err, s)
		}
		r.Close()
	}
}

// A manifest that is redirected from standard output can be in the tree, too.
func TestManifestRedirectedIntoItsTree(t *testing.T) {
	dir := t.TempDir()
	putFile(t, filepath.Join(dir, "a"), []byte("a"))
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
	if s, err := Create(t.Context(), dir, w, h, Options{}); err != nil || s.Files != 1 {
		t.Errorf("%v, %+v", err, s)
	}
}

// A file that has more or fewer bytes than its size is reported, and omitted
// from the manifest.
func TestFilesOfAnotherSizeAreInNoManifest(t *testing.T) {
	more, less := "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"
	if st, err := os.Stat(more); err != nil || st.Size() != 0 {
		t.Skipf("%s with size 0 is needed: mount proc(5): %v", more, err)
	}
	files := []string{more}
	if st, err := os.Stat(less); err == nil && st.Size() > 0 {
		files = append(files, less)
	}
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	for _, file := range files {
		out, err := manifest.NewWriter(&strings.Builder{}, h)
		if err != nil {
			t.Fatal(err)
		}
		var found []Finding
		s, err := Create(t.Context(), file, out, h, Options{Report: func(f Finding) { found = append(found, f) }})
		if err != nil || s.Files != 0 || s.Unreadable != 1 || !strings.Contains(found[0].Text, "its length differs from its size") {
			t.Errorf("%s: %v, %+v, %+v", file, err, s, found)
		}
	}
}
