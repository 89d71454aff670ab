package xfer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"gdrcp/internal/fusetest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// twins are two names that a file system treats as the same.
type twins struct {
	one, other string
	fold       func(string) string
}

var allTwins = map[string]twins{
	"ASCII case": {"A", "a", fusetest.FoldASCII},
	"case":       {"\u00c9", "\u00e9", fusetest.FoldCase},
	"forms":      {"e\u0301", "\u00e9", fusetest.FoldForms},
}

// makeTwins makes a tree of pairs, of equal size and time, and one name that has no twin.
func makeTwins(t *testing.T, src string, of twins) {
	t.Helper()
	for i, x := range []string{of.one, of.other} {
		content := []byte("content " + strconv.Itoa(i))
		for _, path := range []string{"file" + x, "dir" + x + "/same", "dir" + x + "/only" + strconv.Itoa(i)} {
			path = filepath.Join(src, path)
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				t.Fatal(err)
			}
			write(t, path, content)
		}
		if err := os.Symlink("target"+strconv.Itoa(i), filepath.Join(src, "link"+x)); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(src, "mixed"+of.one), []byte("file"))
	write(t, filepath.Join(src, "single"), []byte("single"))
	err := errors.Join(os.Mkdir(filepath.Join(src, "mixed"+of.other), 0o755),
		os.Link(filepath.Join(src, "single"), filepath.Join(src, "name"+of.one)),
		os.Link(filepath.Join(src, "single"), filepath.Join(src, "name"+of.other)))
	if err != nil {
		t.Fatal(err)
	}
}

// isThere reports whether an entry of src is in dst by exactly its name and with its content.
func isThere(t *testing.T, src, dst, path string) bool {
	t.Helper()
	for dir, name := filepath.Split(path); name != ""; dir, name = filepath.Split(strings.TrimSuffix(dir, "/")) {
		list, err := os.ReadDir(filepath.Join(dst, dir))
		if err != nil || !slices.ContainsFunc(list, func(e os.DirEntry) bool { return e.Name() == name }) {
			return false
		}
	}
	a, b := filepath.Join(src, path), filepath.Join(dst, path)
	is, err := os.Lstat(a)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.Lstat(b)
	if err != nil || got.Mode().Type() != is.Mode().Type() {
		return false
	}
	switch is.Mode().Type() {
	case os.ModeSymlink:
		one, _ := os.Readlink(a)
		other, _ := os.Readlink(b)
		return one == other
	case os.ModeDir:
		return true
	}
	one, _ := os.ReadFile(a)
	other, err := os.ReadFile(b)
	return err == nil && bytes.Equal(one, other)
}

// TestTwins: of names that the file system treats as the same one is copied. The others fail, in a
// first copy, in a second one onto it, and if the other name existed before.
func TestTwins(t *testing.T) {
	w := tcpWay(t)
	for name, of := range allTwins {
		for _, inodes := range []bool{true, false} {
			for option, change := range map[string]func(o *xfer.Options){
				"plain":           func(*xfer.Options) {},
				"checksum":        func(o *xfer.Options) { o.Checksum = true },
				"delete":          func(o *xfer.Options) { o.Delete = true },
				"in place":        func(o *xfer.Options) { o.InPlace = true },
				"update":          func(o *xfer.Options) { o.Update = true },
				"size only":       func(o *xfer.Options) { o.SizeOnly = true },
				"ignore existing": func(o *xfer.Options) { o.IgnoreExisting = true },
				"ignore times":    func(o *xfer.Options) { o.IgnoreTimes = true },
			} {
				title := name + "/" + option
				if !inodes {
					title += "/without inodes"
				}
				t.Run(title, func(t *testing.T) {
					o := w.options(t)
					o.Recursive, o.Links, o.Times = true, true, true
					o.HardLinks = inodes
					change(&o)
					copyTwins(t, w, of, inodes, o)
				})
			}
		}
	}
}

func copyTwins(t *testing.T, w way, of twins, inodes bool, o xfer.Options) {
	s := serve(t, w)
	makeTwins(t, s.root, of)
	below := t.TempDir()
	there := filepath.Join("there", "file"+of.other)
	for _, dir := range []string{"new", "there"} {
		if err := os.Mkdir(filepath.Join(below, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(below, there), []byte("content 1"))
	mount := fusetest.MountFolding(t, below, of.fold, inodes)
	for _, c := range []string{"new", "new", "there"} {
		dst := filepath.Join(mount, c)
		l := &told{}
		o.Report = l.report
		sum, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"/"}, dst, o)
		if err != nil || sum.Failed == 0 {
			t.Fatalf("%s: error %v, summary %+v", c, err, sum)
		}
		failed := l.paths(ended(xfer.Failed))
		whole := 0
		_ = filepath.WalkDir(s.root, func(path string, d os.DirEntry, err error) error {
			path, _ = filepath.Rel(s.root, path)
			switch {
			case path == ".":
			case slices.Contains(failed, path):
			case isThere(t, s.root, dst, path):
				whole++
			default:
				t.Errorf("%s: %+q did not fail, and is not there", c, path)
			}
			return err
		})
		// At least half of the ten pairs and the contents of their directories are copied, unless
		// an entry meets the other spelling from before.
		if whole < 6 {
			t.Errorf("%s: only %d entries are there, and failed are %+q", c, whole, failed)
		}
		for _, e := range l.events {
			if strings.HasPrefix(e.Path, "file") && e.Outcome == xfer.Failed && !(strings.Contains(e.Text, quoted("file"+of.one)) && strings.Contains(e.Text, quoted("file"+of.other))) {
				t.Errorf("%s: %s", c, e.Text)
			}
		}
	}
	if b, err := os.ReadFile(filepath.Join(below, there)); err != nil || string(b) != "content 1" {
		t.Errorf("what was there holds %q: %v", b, err)
	}
}

func quoted(name string) string { return strings.Trim(strconv.QuoteToASCII(name), `"`) }

// TestTwinsInATreeThatAppearsWhole: such a tree does not get its name.
func TestTwinsInATreeThatAppearsWhole(t *testing.T) {
	w := tcpWay(t)
	for name, of := range allTwins {
		t.Run(name, func(t *testing.T) {
			s := serve(t, w)
			makeTwins(t, s.root, of)
			dst := filepath.Join(fusetest.MountFolding(t, t.TempDir(), of.fold, true), "tree")
			o := w.options(t)
			o.Recursive, o.Links, o.Times, o.Whole = true, true, true, true
			for range 2 {
				if sum, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"/"}, dst, o); err == nil && sum.Failed == 0 {
					t.Error("nothing failed")
				}
				if _, err := os.Lstat(dst); err == nil {
					t.Error("the tree has its name")
				}
			}
		})
	}
}
