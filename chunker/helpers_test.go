package chunker

import (
	"errors"
	"io"
	"testing"
)

func openLocal(t *testing.T, follow bool, sources ...Source) *Tree {
	t.Helper()
	tree, err := OpenLocal(sources, follow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

// walkAll returns the paths of a walk, and those that had a problem.
func walkAll(t *testing.T, tree *Tree, recursive bool) (paths []string, problems map[string]error) {
	t.Helper()
	w := tree.Walk(recursive)
	defer w.Close()
	return drain(t, w)
}

func drain(t *testing.T, w *Walker) (paths []string, problems map[string]error) {
	t.Helper()
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
