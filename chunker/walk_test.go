package chunker

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/manifest"
)

// walkAll returns the paths of a walk, and those that had a problem.
func walkAll(t *testing.T, tree *Tree, recursive bool) (paths []string, problems map[string]error) {
	t.Helper()
	w := tree.Walk(recursive)
	defer w.Close()
	problems = make(map[string]error)
	for {
		f, err := w.Next()
		if errors.Is(err, io.EOF) {
			return paths, problems
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		if f.Problem != nil {
			problems[f.Entry.Path] = f.Problem
			continue
		}
		paths = append(paths, f.Entry.Path)
	}
}

// copyTree copies all of a tree to a sink that has its place, one file a
// batch of size batch.
func copyTree(t *testing.T, tree *Tree, sink *Sink, batch int) {
	t.Helper()
	w := tree.Walk(true)
	defer w.Close()
	var temps []*Temp
	publish := func(before string) {
		for i, err := range sink.Publish(temps) {
			if err != nil {
				t.Fatalf("Publish %q: %v", temps[i].Path(), err)
			}
		}
		temps = temps[:0]
		if err := sink.SettleDirs(before); err != nil {
			t.Fatalf("SettleDirs: %v", err)
		}
	}
	for {
		f, err := w.Next()
		if err == io.EOF {
			break
		}
		if err != nil || f.Problem != nil {
			t.Fatalf("Next: %v, %v", err, f.Problem)
		}
		e := f.Entry
		switch e.Type {
		case manifest.Dir:
			err = sink.Mkdir(&e)
		case manifest.Symlink:
			err = sink.Symlink(&e)
		default:
			temps = append(temps, copyFile(t, tree, sink, &e))
		}
		if err != nil {
			t.Fatal(err)
		}
		if len(temps) == batch {
			publish(e.Path)
		}
	}
	publish("~")
	if err := sink.FinishDirs(); err != nil {
		t.Fatalf("FinishDirs: %v", err)
	}
}

func copyFile(t *testing.T, tree *Tree, sink *Sink, e *manifest.Entry) *Temp {
	t.Helper()
	in, err := tree.Open(e.Path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	buf := make([]byte, e.Size)
	if _, err := in.ReadAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	out, err := sink.Create(e)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.WriteAt(buf, 0); err != nil {
		t.Fatal(err)
	}
	if err := out.Finish(); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestCopyTree(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	for _, d := range []string{"a", "a/b", "a-b", "empty"} {
		if err := os.Mkdir(filepath.Join(src, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"a/x", "a/b/y", "a-b/z", "a.b", "top"} {
		if err := os.WriteFile(filepath.Join(src, f), []byte(f), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a/x", filepath.Join(src, "link")); err != nil {
		t.Fatal(err)
	}
	tree, err := OpenLocal([]Source{{Path: src, Name: "."}}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	sink, err := OpenSink(SinkOptions{Dest: dst, Preserve: true})
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Place(&manifest.Entry{Type: manifest.Dir, Path: "."}, "new"); err != nil {
		t.Fatal(err)
	}
	copyTree(t, tree, sink, 2)
	want, problems := walkAll(t, tree, true)
	if len(problems) != 0 {
		t.Fatal(problems)
	}
	copied, err := OpenLocal([]Source{{Path: filepath.Join(dst, "new"), Name: "."}}, false)
	if err != nil {
		t.Fatal(err)
	}
	defer copied.Close()
	got, _ := walkAll(t, copied, true)
	if len(got) != len(want) || len(got) != 11 {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("entry %d: got %q, want %q", i, got[i], want[i])
		}
	}
}
