package dest

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

func TestLook(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/f=12345", "l>d")
	when := time.Unix(1e9, 7)
	if err := errors.Join(unix.Mkfifo(dir+"/fifo", 0o600), os.Chmod(dir+"/d/f", 0o640), os.Chtimes(dir+"/d/f", when, when)); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	for _, c := range []struct {
		path string
		want Standing
		err  error
	}{
		{".", Standing{Exists: true, Type: manifest.Dir}, nil},
		{"d", Standing{Exists: true, Type: manifest.Dir}, nil},
		{"d/f", Standing{Exists: true, Type: manifest.File, Size: 5, Mode: 0o640, MtimeNs: when.UnixNano()}, nil},
		{"l", Standing{Exists: true, Type: manifest.Symlink}, nil},
		{"fifo", Standing{Exists: true}, nil},
		{"none", Standing{}, nil},
		{"none/of/it", Standing{}, nil},
		{"l/f", Standing{}, fileset.ErrNotDir},
		{"d/f/x", Standing{}, fileset.ErrNotDir},
		{"../x", Standing{}, fsys.ErrEscape},
	} {
		got, err := s.Look(c.path)
		if !errors.Is(err, c.err) || (err == nil) != (c.err == nil) {
			t.Errorf("%q: %v, want %v", c.path, err, c.err)
		}
		if got.Type != manifest.File {
			got.Mode, got.MtimeNs = 0, 0
		}
		if got != c.want {
			t.Errorf("%q: %+v, want %+v", c.path, got, c.want)
		}
	}
}

// TestLookIntoNewDirectory: nothing foreign is in a directory that the copy has made, so
// nobody asks.
func TestLookIntoNewDirectory(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "new", Mode: 0o755}, nil); err != nil {
		t.Fatal(err)
	}
	treetest.MakeTree(t, dir, "new/f=1")
	if got, err := s.Look("new/f"); err != nil || got != (Standing{}) {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestTry: what a dry run finds out, and that it makes nothing.
func TestTry(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	specs := []string{"d/", "f=", "l>d"}
	treetest.MakeTree(t, dir, specs...)
	s := sinkInto(t, dir, Options{})
	for _, c := range []struct {
		kind manifest.EntryType
		path string
		want error
	}{
		{manifest.Dir, ".", nil}, {manifest.Dir, "d", nil}, {manifest.Dir, "new", nil}, {manifest.File, "new/f", nil}, {manifest.File, "f", nil},
		{manifest.File, "l", nil}, {manifest.Symlink, "f", nil}, {manifest.Dir, "f", fileset.ErrNotDir}, {manifest.Dir, "l", fileset.ErrNotDir},
		{manifest.File, "d", fileset.ErrIsDir}, {manifest.Symlink, "d", fileset.ErrIsDir}, {manifest.File, "f/x", fileset.ErrNotDir}, {manifest.File, "l/x", fileset.ErrNotDir},
		{manifest.File, fileset.TempName(), fileset.ErrReserved}, {manifest.File, ".", fileset.ErrIsDir}, {manifest.File, "../x", fsys.ErrEscape},
	} {
		if err := s.Try(&manifest.Entry{Type: c.kind, Path: c.path}); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%c %q: %v, want %v", c.kind, c.path, err, c.want)
		}
	}
	treetest.WantTree(t, dir, specs...)
}
