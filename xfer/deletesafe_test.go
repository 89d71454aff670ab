package xfer_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// Where the source has not what the given manifest says, it may have lost more:
// nothing is deleted, at whichever end the manifest is.
func TestNothingDeletedUnlessTheManifestIsMet(t *testing.T) {
	xfer.OnHost(t)
	over(t, testNothingDeletedUnlessTheManifestIsMet)
}

func testNothingDeletedUnlessTheManifestIsMet(t *testing.T, w way) {
	for _, c := range []struct {
		name             string
		change           func(src string) error
		missing, corrupt int64
	}{
		{"all there", func(string) error { return nil }, 0, 0},
		{"lost in the middle", func(src string) error { return os.Remove(filepath.Join(src, "d/b")) }, 1, 0},
		{"lost at the end", func(src string) error { return os.Remove(filepath.Join(src, "z")) }, 1, 0},
		{"lost with its directory", func(src string) error { return os.RemoveAll(filepath.Join(src, "d")) }, 3, 0},
		{"too many", func(src string) error { return os.WriteFile(filepath.Join(src, "e"), nil, 0o644) }, 0, 1},
		{"of another size", func(src string) error { return os.WriteFile(filepath.Join(src, "d/b"), []byte("longer"), 0o644) }, 0, 1},
		{"of other content", func(src string) error { return os.WriteFile(filepath.Join(src, "d/b"), []byte("B"), 0o644) }, 0, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := t.TempDir()
			for _, name := range []string{"a", "d/b", "d/c", "z"} {
				at(t, filepath.Join(src, name), "b", time.Unix(1_500_000_000, 0))
			}
			o := xfer.Options{Delete: true, Manifest: filepath.Join(t.TempDir(), "m")}
			createIn(t, o.Manifest, src)
			if err := c.change(src); err != nil {
				t.Fatal(err)
			}
			met := c.missing+c.corrupt == 0
			fill := func(dst string) {
				for _, name := range []string{"d/b", "d/old", "old", "z"} {
					write(t, filepath.Join(dst, name), []byte("here"))
				}
			}
			contentsInto(t, w, src, o, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
				if sum.Missing != c.missing || sum.Corrupt != c.corrupt || sum.NotDeleted == met {
					t.Errorf("%+v", sum)
				}
				for _, name := range []string{"d/old", "old"} {
					if _, err := os.Lstat(filepath.Join(dst, name)); err == nil == met {
						t.Errorf("%s: %v", name, err)
					}
				}
				for _, name := range []string{"d/b", "z"} {
					if _, err := os.Lstat(filepath.Join(dst, name)); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// When the source is known not to be known whole, a directory with something in
// it makes no room either.
func TestNoRoomIsMadeWithoutTheWholeList(t *testing.T) {
	w := tcpWay(t)
	s, src, l := serve(t, w), t.TempDir(), &told{}
	for _, name := range []string{"empty", "file", "full", "dir/x"} {
		write(t, filepath.Join(src, name), []byte("x"))
	}
	if err := os.MkdirAll(filepath.Join(s.root, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(s.root, "full/old"), []byte("old"))
	write(t, filepath.Join(s.root, "dir"), []byte("old"))
	o := w.options(t)
	o.Delete, o.Report = true, l.report
	var sources []string
	for _, name := range []string{"a-none", "empty", "file", "full", "dir"} {
		sources = append(sources, filepath.Join(src, name))
	}
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), sources, s.ep, "/", o)
	if err != nil || !sum.NotDeleted || sum.Failed != 2 || sum.Files != 3 || sum.Deleted != 2 {
		t.Errorf("%+v, %v", sum, err)
	}
	if got := l.paths(wasDeleted); !slices.Equal(got, []string{"dir", "empty/"}) {
		t.Errorf("deleted %q", got)
	}
	if _, err := os.Stat(filepath.Join(s.root, "full/old")); err != nil {
		t.Error(err)
	}
}
