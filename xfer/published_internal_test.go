package xfer

import (
	"os"
	"strings"
	"testing"

	"gdrcp/chunker/dest"
	"gdrcp/manifest"
)

// A file written in place whose publication fails is reported as half-written, like any other.
func TestRefusedInPlaceIsToldAsHalfWritten(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/f", []byte("old old"), 0o644); err != nil {
		t.Fatal(err)
	}
	store, err := dest.Open(dest.Options{Dest: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Place(&manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}, "."); err != nil {
		t.Fatal(err)
	}
	e := &sinkEntry{}
	e.Entry = manifest.Entry{Type: manifest.File, Path: "f", Size: 7, Mode: 0o644}
	if e.temp, err = store.OpenInPlace(&e.Entry, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := e.temp.WriteAt([]byte("new new"), 0); err != nil {
		t.Fatal(err)
	}
	// The disk does not return what was written.
	e.temp.ReadBack(dest.Content{Hash: manifest.XXH3, PieceBytes: 1 << 20, Root: manifest.Digest{1}})
	if err := e.temp.Finish(); err != nil {
		t.Fatal(err)
	}
	k := &sink{openFiles: newFileTokens(1)}
	if err := k.published(e, store.Publish([]*dest.Temp{e.temp})[0]); err != nil {
		t.Fatal(err)
	}
	if e.problem == nil || !strings.Contains(e.problem.Text, errHalfWritten.Error()) {
		t.Errorf("told as %+v", e.problem)
	}
}
