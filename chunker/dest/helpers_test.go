package dest

import (
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

// treeAt opens a directory as the source of a copy.
func treeAt(t *testing.T, dir string, follow bool) *chunker.Tree {
	t.Helper()
	tree, err := chunker.OpenLocal([]chunker.Source{{Path: dir, Name: "."}}, follow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

// walked returns the paths of a walk, and those that had a problem.
func walked(t *testing.T, tree *chunker.Tree) (paths []string, problems map[string]error) {
	t.Helper()
	w := tree.Walk(true)
	defer w.Close()
	problems = make(map[string]error)
	for {
		f, err := w.Next()
		switch {
		case errors.Is(err, io.EOF):
			return paths, problems
		case err != nil:
			t.Fatalf("Next: %v", err)
		case f.Problem != nil:
			problems[f.Entry.Path] = f.Problem
		default:
			paths = append(paths, f.Entry.Path)
		}
	}
}

func openSink(t *testing.T, opt Options) *Sink {
	t.Helper()
	s, err := Open(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var topDir = manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}

// smallFileSystem returns a directory on a tmpfs of its own, of so many bytes, as mount's option
// size has them. The test fails if a file is still open there in the end, so close the sink by
// defer.
func smallFileSystem(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system of its own, run as root: mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount, a file is still open: %v", err)
		}
	})
	return dir
}

// sinkInto returns a sink whose entries go into dir itself.
func sinkInto(t *testing.T, dir string, opt Options) *Sink {
	t.Helper()
	opt.Dest = dir
	s := openSink(t, opt)
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	return s
}

func fileEntry(path, content string) *manifest.Entry {
	return &manifest.Entry{Type: manifest.File, Path: path, Size: int64(len(content)), Mode: 0o644}
}

// begin creates, writes and finishes a file.
func begin(s *Sink, e *manifest.Entry, content string) (*Temp, error) {
	temp, err := s.Create(e, nil)
	if err != nil {
		return nil, err
	}
	_, err = temp.WriteAt([]byte(content), 0)
	if err == nil {
		err = temp.Finish()
	}
	if err != nil {
		return nil, errors.Join(err, temp.Discard())
	}
	return temp, nil
}

// put writes and publishes one file.
func put(s *Sink, e *manifest.Entry, content string) error {
	temp, err := begin(s, e, content)
	if err != nil {
		return err
	}
	return s.Publish([]*Temp{temp})[0]
}
