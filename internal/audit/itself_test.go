package audit

import (
	"os"
	"path/filepath"
	"testing"

	"gdrcp/manifest"
)

var itselfHeader = manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}

// createAndVerify writes the manifest of a tree to a file in it, and compares
// the tree with it.
func createAndVerify(t *testing.T, name, top string) *Summary {
	t.Helper()
	w, err := manifest.Create(name, itselfHeader)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Abort()
	if _, err := Create(t.Context(), top, w.Writer, itselfHeader, Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	r, err := manifest.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	s, err := Verify(t.Context(), r, top, Options{Report: func(f Finding) { t.Log(f.Text) }})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Trees of hard links (cp -al, rsync --link-dest) have the same manifest several times
// under the same last name: only the one that is replaced is omitted.
func TestCreateKeepsLinkOfReplacedManifest(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"day1", "day2"} {
		if err := os.Mkdir(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	old, now := filepath.Join(top, "day1", "m"), filepath.Join(top, "day2", "m")
	if err := os.WriteFile(old, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(old, now); err != nil {
		t.Fatal(err)
	}
	if s := createAndVerify(t, now, top); s.Bad+s.Missing+s.Extra > 0 || s.Files != 1 {
		t.Errorf("%d bad, %d missing, %d extra, %d files, want only day1/m", s.Bad, s.Missing, s.Extra, s.Files)
	}
}

// The manifest replaces a link of its name, which is therefore not listed.
func TestCreateLeavesOutReplacedLink(t *testing.T) {
	top := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(top, "m")); err != nil {
		t.Fatal(err)
	}
	if s := createAndVerify(t, filepath.Join(top, "m"), top); s.Bad+s.Missing+s.Extra > 0 {
		t.Errorf("%d bad, %d missing, %d extra", s.Bad, s.Missing, s.Extra)
	}
}

// Another hard link to the manifest in the tree is an extra file.
func TestVerifyFindsLinkOfTheManifest(t *testing.T) {
	top := t.TempDir()
	name := filepath.Join(top, "m")
	if s := createAndVerify(t, name, top); s.Extra > 0 {
		t.Errorf("%d extra", s.Extra)
	}
	if err := os.Mkdir(filepath.Join(top, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(name, filepath.Join(top, "d", "m")); err != nil {
		t.Fatal(err)
	}
	r, err := manifest.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if s, err := Verify(t.Context(), r, top, Options{}); err != nil || s.Extra != 2 {
		t.Errorf("%+v, %v, want d and d/m as extra", s, err)
	}
}
