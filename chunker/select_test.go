package chunker

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestLeaveOut(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	makeTree(t, dir, "a=", "d/", "d/x=", "d/y/", "d/y/x=", "dir/", "dir/x=", "e>x")
	w := openLocal(t, false, Source{dir, "."}).Walk(true)
	defer w.Close()
	var asked []string
	w.LeaveOut(func(path string, isDir bool) bool {
		if isDir {
			path += "/"
		}
		asked = append(asked, path)
		return slices.Contains([]string{"a", "d/y/", "dir/", "d/x/"}, path)
	})
	got, problems := drain(t, w)
	if want := []string{".", "d", "d/x", "e"}; !slices.Equal(got, want) || len(problems) > 0 {
		t.Errorf("found %q, %v, want %q", got, problems, want)
	}
	if want := []string{"./", "a", "d/", "d/x", "d/y/", "dir/", "e"}; !slices.Equal(asked, want) {
		t.Errorf("asked about %q, want %q", asked, want)
	}
}

// What is left out may be as unreadable as it likes, or gone.
func TestLeaveOutProblems(t *testing.T) {
	dir := t.TempDir()
	asNobody(t, dir, func() {
		makeTree(t, dir, "a=", "closed/", "gone=", "lost=", "open=")
		if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
			t.Error(err)
		}
		w := openLocal(t, false, Source{dir, "."}).Walk(true)
		defer w.Close()
		w.LeaveOut(func(path string, isDir bool) bool { return path == "closed" || path == "gone" && isDir })
		for _, want := range []string{".", "a"} {
			if f, err := w.Next(); err != nil || f.Entry.Path != want {
				t.Error(f, err)
			}
		}
		for _, name := range []string{"gone", "lost"} {
			if err := os.Remove(filepath.Join(dir, name)); err != nil {
				t.Error(err)
			}
		}
		got, problems := drain(t, w)
		if !slices.Equal(got, []string{"open"}) || len(problems) != 1 || !errors.Is(problems["lost"], fs.ErrNotExist) {
			t.Errorf("found %q, %v", got, problems)
		}
		if err := os.Chmod(filepath.Join(dir, "closed"), 0o700); err != nil {
			t.Error(err)
		}
	})
}
