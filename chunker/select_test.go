package chunker

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

func TestLeaveOut(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "a=", "d/", "d/x=", "d/y/", "d/y/x=", "dir/", "dir/x=", "e>x")
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
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "a=", "closed/", "gone=", "lost=", "open=")
		if err := os.Chmod(filepath.Join(dir, "closed"), 0); err != nil {
			t.Error(err)
		}
		w := openLocal(t, false, Source{dir, "."}).Walk(true)
		defer w.Close()
		w.LeaveOut(func(path string, isDir bool) bool {
			return path == "closed" || path == "gone" || path == "lost" && isDir
		})
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

// TestLeaveOutOfWhatCannotBeLookedAt: a directory that is there and cannot be looked at may be
// one that the rules let through, as with --include '*/' --include '*.c' --exclude '*'.
func TestLeaveOutOfWhatCannotBeLookedAt(t *testing.T) {
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "shut/", "shut/data/", "shut/data/x.c=")
		if err := os.Chmod(filepath.Join(dir, "shut"), 0o444); err != nil { // its names can be read, and nothing more
			t.Error(err)
		}
		defer os.Chmod(filepath.Join(dir, "shut"), 0o755)
		w := openLocal(t, false, Source{dir, "."}).Walk(true)
		defer w.Close()
		w.LeaveOut(func(_ string, isDir bool) bool { return !isDir })
		got, problems := drain(t, w)
		if !errors.Is(problems["shut/data"], unix.EACCES) {
			t.Errorf("found %q, problems %v: nothing is said of shut/data", got, problems)
		}
	})
}

// A path may be too long to be copied. What is left out is not to be copied.
func TestLeaveOutOfLongPaths(t *testing.T) {
	top := t.TempDir()
	dir := "."
	const flags = unix.O_DIRECTORY | unix.O_CLOEXEC
	fd, err := unix.Open(top, flags, 0)
	for name := strings.Repeat("d", 250); err == nil && len(dir) < manifest.MaxPathBytes-200; dir += "/" + name {
		above := fd
		if err = unix.Mkdirat(above, name, 0o700); err == nil {
			fd, err = unix.Openat(above, name, flags, 0)
		}
		unix.Close(above)
	}
	long := strings.Repeat("x", 250)
	if err == nil {
		err = unix.Mknodat(fd, long, unix.S_IFREG|0o600, 0)
		unix.Close(fd)
	}
	if err != nil {
		t.Fatal(err)
	}
	for leftOut := range 2 {
		w := openLocal(t, false, Source{top, "."}).Walk(true)
		w.LeaveOut(func(path string, _ bool) bool { return leftOut == 1 && strings.HasSuffix(path, long) })
		if _, problems := drain(t, w); len(problems) != 1-leftOut {
			t.Errorf("left out %d: %d problems", leftOut, len(problems))
		}
		w.Close()
	}
}

// TestWalkEnds: also while it passes over names, looks at those of a list before their
// turn, or reads a directory, a walk ends with the cause of its context.
func TestWalkEnds(t *testing.T) {
	treetest.NoLeaks(t)
	const names, endAt = 3000, 10
	dir := treetest.FastDir(t)
	treetest.MakeTree(t, dir, "d/")
	var list []string
	for i := range names {
		list = append(list, fmt.Sprintf("d/%d", i))
		treetest.MakeTree(t, dir, list[i]+"=")
	}
	for _, c := range []struct {
		name string
		// begin has the walk call step for each name or read. Then step tells when it ends.
		begin func(w *Walker, step func())
	}{
		{"names that are left out", func(w *Walker, step func()) {
			w.LeaveOut(func(path string, _ bool) bool {
				if path != "." && path != "d" {
					step()
				}
				return path != "." && path != "d"
			})
		}},
		{"names of a list that are left out", func(w *Walker, step func()) {
			w.LeaveOut(func(path string, isDir bool) bool {
				if !isDir {
					step()
				}
				return !isDir
			})
			if err := w.Only(listOf(t, list...).Names()); err != nil {
				t.Fatal(err)
			}
		}},
		{"a directory without end", func(w *Walker, step func()) {
			w.names.Getdents = func(fd int, buf []byte) (int, error) {
				step()
				if _, err := unix.Seek(fd, 0, 0); err != nil {
					return 0, err
				}
				return unix.Getdents(fd, buf[:4096])
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			enough := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			w := openLocal(t, false, Source{dir, "."}).Walk(true)
			defer w.Close()
			w.EndWith(ctx)
			steps := 0
			c.begin(w, func() {
				if steps++; steps == endAt {
					cancel(enough)
				}
				if steps > names {
					t.Fatal("the walk does not end")
				}
			})
			_, err := w.Next()
			for err == nil {
				_, err = w.Next()
			}
			if !errors.Is(err, enough) || steps != endAt {
				t.Errorf("after %d steps: %v", steps, err)
			}
		})
	}
}
