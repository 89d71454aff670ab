package chunker

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
)

// TestAreOneFile: on a file system that gives a number to another file as soon as nobody has the
// first one open, equal numbers are no evidence.
func TestAreOneFile(t *testing.T) {
	below := t.TempDir()
	for _, name := range []string{"x/a", "y/b"} {
		path := filepath.Join(below, name)
		if err := os.Mkdir(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(name[2:]), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(path, time.Time{}, time.Unix(1_500_000_000, 0)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(below, "x/a"), filepath.Join(below, "c")); err != nil {
		t.Fatal(err)
	}
	tree := openLocal(t, false, Source{Path: fusetest.MountRenumbered(t, below, true), Name: "."})
	var stamps [2]fileset.Stamp
	for i, name := range []string{"x/a", "y/b"} {
		a, err := tree.lookUp(name)
		if err != nil {
			t.Fatal(err)
		}
		stamps[i] = a.stamp
	}
	if stamps[0] != stamps[1] {
		t.Fatalf("the numbers are not reused: %+v", stamps)
	}
	if tree.AreOneFile("x/a", "y/b", stamps[0].Dev) {
		t.Error("two files are taken for one")
	}
	if tree.AreOneFile("x/a", "x/none", stamps[0].Dev) {
		t.Error("a missing file is taken for another")
	}
	if !tree.AreOneFile("x/a", "x/a", stamps[0].Dev) {
		t.Error("a file is not itself")
	}
	// Numbers of a disk's file system count.
	local := openLocal(t, false, Source{Path: below, Name: "."})
	a, err := local.lookUp("x/a")
	if err != nil || local.NumbersMayChange("x/a", a.stamp.Dev) || !local.AreOneFile("x/a", "c", a.stamp.Dev) {
		t.Errorf("numbers of the file system of %s count for nothing: %v", below, err)
	}
}
