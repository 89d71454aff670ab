package xfer_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gdrcp/chunker/dest"
	"gdrcp/internal/audit"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// createIn writes the manifest of dir into a file, like manifest create.
func createIn(t *testing.T, name, dir string) {
	t.Helper()
	h := manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	f, err := manifest.Create(name, h)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Abort()
	if _, err := audit.Create(t.Context(), dir, f.Writer, h, audit.Options{}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Commit(); err != nil {
		t.Fatal(err)
	}
}

func TestWrittenManifestIsNotCopied(t *testing.T) { over(t, testWrittenManifestIsNotCopied) }

func testWrittenManifestIsNotCopied(t *testing.T, w way) {
	xfer.OnHost(t)
	s, parent := serve(t, w), t.TempDir()
	src := filepath.Join(parent, "src")
	write(t, filepath.Join(src, "a"), []byte("a"))
	for i, tc := range []struct {
		sources []string
		files   int64
		skipped int64
		there   string // at the destination, and kept
	}{
		{[]string{src}, 1, 0, "a"},
		{[]string{src}, 1, 1, "src/m"}, // replaces the first
		{[]string{src + "/."}, 1, 1, "m"},
		{[]string{src, filepath.Join(src, "m")}, 2, 1, "m"}, // it was named
	} {
		o := w.options(t)
		o.WriteManifest, o.Delete = filepath.Join(src, "m"), true
		dst := filepath.Join(s.root, string(rune('0'+i)))
		write(t, filepath.Join(dst, tc.there), []byte("old"))
		sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), tc.sources, s.ep, filepath.Base(dst), o)
		if err != nil || sum.Files != tc.files || sum.Skipped != tc.skipped || sum.Deleted != 0 {
			t.Errorf("%v: %v, %+v", tc.sources, err, sum)
		}
		if _, err := os.Stat(filepath.Join(dst, tc.there)); err != nil {
			t.Errorf("%v: %v", tc.sources, err)
		}
		noTemps(t, dst)
	}
}

// An entry that a pull would write in place of its manifest is left out, and is an error if nothing
// else is copied.
func TestPullSparesItsManifest(t *testing.T) {
	w := tcpWay(t)
	s, dst := serve(t, w), t.TempDir()
	for _, name := range []string{"src/m", "src/sub/m", "src/x"} {
		write(t, filepath.Join(s.root, name), []byte(name))
	}
	pull := func(m, to string, sources ...string) (*xfer.Summary, error) {
		o := w.options(t)
		o.WriteManifest = filepath.Join(dst, m)
		return w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, sources, filepath.Join(dst, to), o)
	}
	sum, err := pull("tree/m", "", "src/x") // there is no tree yet
	if err == nil {
		t.Errorf("a manifest in no directory: %+v", sum)
	}
	write(t, filepath.Join(dst, "tree/old"), nil)
	if sum, err = pull("tree/m", "tree", "src/."); err != nil || sum.Files != 2 || sum.Skipped != 1 || !sum.Verified {
		t.Errorf("a tree: %v, %+v", err, sum)
	}
	r, err := manifest.Open(filepath.Join(dst, "tree/m"))
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	if sum, err = pull("tree/m", "tree", "src/m", "src/x"); err != nil || sum.Files != 1 || sum.Failed != 1 {
		t.Errorf("several files: %v, %+v", err, sum)
	}
	for _, to := range []string{"tree", "tree/x"} {
		write(t, filepath.Join(dst, "tree/x"), []byte("old"))
		if sum, err = pull("tree/x", to, "src/x"); !errors.Is(err, dest.ErrSpared) {
			t.Errorf("to %s: %v, %+v", to, err, sum)
		}
		if text, err := os.ReadFile(filepath.Join(dst, "tree/x")); err != nil || string(text) != "old" {
			t.Errorf("to %s: %q, %v", to, text, err)
		}
	}
	noTemps(t, dst)
}

// treeOf lists the contents of a directory.
func treeOf(t *testing.T, dir string) (paths []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err == nil && path != dir {
			paths = append(paths, strings.TrimPrefix(path, dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

// A tree that is copied into itself, by another process of the same host, is copied without what
// the copy makes, but with the result of an earlier copy.
func TestCopyIntoItself(t *testing.T) { over(t, testCopyIntoItself) }

func testCopyIntoItself(t *testing.T, w way) {
	xfer.OnHost(t)
	for _, c := range []struct {
		name    string
		sources []string // below the directory that both ends are in
		dst     string
		there   []string // besides src/a, src/sub/b and other/c
		want    []string // in dst afterwards
		skipped []string
		failed  int64
		change  func(*xfer.Options)
	}{
		{"into a directory", []string{"src"}, "src/sub", nil,
			[]string{"b", "src", "src/a", "src/sub", "src/sub/b"}, nil, 0, nil},
		{"a second time", []string{"src"}, "src/sub", []string{"src/sub/src/a", "src/sub/src/sub/b", "src/sub/src/old"},
			[]string{"b", "src", "src/a", "src/old", "src/sub", "src/sub/b"}, []string{"sub/src"}, 0, nil},
		{"a second time, deleting", []string{"src"}, "src/sub", []string{"src/sub/src/a", "src/sub/src/sub/b", "src/sub/src/old"},
			[]string{"b", "src", "src/a", "src/sub", "src/sub/b"}, []string{"sub/src"}, 0, func(o *xfer.Options) { o.Delete = true }},
		{"by another name", []string{"src"}, "src/new", nil,
			[]string{"a", "sub", "sub/b"}, nil, 0, nil},
		{"contents", []string{"src/."}, "src/sub", []string{"src/sub/a"},
			[]string{"a", "b"}, []string{"sub"}, 0, nil},
		{"several", []string{"other", "src"}, "src/sub", []string{"src/sub/src/x", "src/sub/other/x"},
			[]string{"b", "other", "other/c", "other/x", "src", "src/a", "src/sub", "src/sub/b", "src/x"}, []string{"src/sub/other", "src/sub/src"}, 0, nil},
		{"followed", []string{"src"}, "src/sub", []string{"src/sub/src/old"},
			[]string{"b", "src", "src/a", "src/old", "src/sub", "src/sub/b"}, []string{"sub/src"}, 0, func(o *xfer.Options) { o.Follow, o.Links = true, false }},
		{"a dry run", []string{"src"}, "src/sub", []string{"src/sub/src/old"},
			[]string{"b", "src", "src/old"}, []string{"sub/src"}, 0, func(o *xfer.Options) { o.DryRun = true }},
		{"to its place", []string{"src"}, ".", nil, nil, nil, 1, nil},
		{"contents to their place", []string{"src/."}, "src", nil, []string{"a", "sub", "sub/b"}, nil, 1, nil},
		{"one of several to its place", []string{"src/sub", "other"}, "src", nil,
			[]string{"a", "other", "other/c", "sub", "sub/b"}, nil, 1, nil},
		{"beside itself", []string{"src"}, "other", []string{"other/src/a"},
			[]string{"c", "src", "src/a", "src/sub", "src/sub/b"}, nil, 0, nil},
	} {
		for _, push := range []bool{true, false} {
			t.Run(c.name+map[bool]string{true: ", push", false: ", pull"}[push], func(t *testing.T) {
				s, l := serve(t, w), &told{}
				for _, name := range append([]string{"src/a", "src/sub/b", "other/c"}, c.there...) {
					write(t, filepath.Join(s.root, name), []byte("x"))
				}
				o := w.options(t)
				o.Recursive, o.Links, o.Report = true, true, l.report
				if c.change != nil {
					c.change(&o)
				}
				var here []string
				for _, name := range c.sources {
					if push {
						name = s.root + "/" + name
					}
					here = append(here, name)
				}
				var sum *xfer.Summary
				var err error
				if push {
					sum, err = w.client(rdmatest.Faults{}).Push(t.Context(), here, s.ep, c.dst, o)
				} else {
					sum, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, here, s.root+"/"+c.dst, o)
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := l.paths(ended(xfer.Skipped)); sum.Failed != c.failed || sum.Skipped != int64(len(c.skipped)) || !slices.Equal(got, c.skipped) {
					t.Errorf("skipped %q: %+v", got, sum)
				}
				if got := treeOf(t, filepath.Join(s.root, c.dst)); c.want != nil && !slices.Equal(got, c.want) {
					t.Errorf("%s has %q, want %q", c.dst, got, c.want)
				}
				if _, err := os.Stat(filepath.Join(s.root, "src/src")); !errors.Is(err, fs.ErrNotExist) {
					t.Error(err)
				}
			})
		}
	}
}
