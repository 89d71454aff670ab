package xfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

func TestDelete(t *testing.T) { over(t, testDelete) }

func testDelete(t *testing.T, w way) {
	xfer.OnHost(t)
	src := t.TempDir()
	makeTree(t, src)
	if err := unix.Mkfifo(filepath.Join(src, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	fill := func(dst string) {
		write(t, filepath.Join(dst, "a/y"), []byte("extra"))
		write(t, filepath.Join(dst, "a/x"), []byte("old"))
		write(t, filepath.Join(dst, "a.b/x"), []byte("extra"))
		write(t, filepath.Join(dst, "big/deep/er/x"), []byte("extra"))
		write(t, filepath.Join(dst, "fifo"), []byte("skipped at the source, and there"))
		write(t, filepath.Join(dst, "one/in"), []byte("in the way"))
		write(t, filepath.Join(dst, "many"), []byte("in the way"))
		if err := os.Symlink("/", filepath.Join(dst, "zlink")); err != nil {
			t.Fatal(err)
		}
	}
	contentsInto(t, w, src, xfer.Options{Delete: true}, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
		want := []string{"a.b/", "a.b/x", "a/y", "big/deep/", "big/deep/er/", "big/deep/er/x", "many", "one/", "one/in", "zlink"}
		if got := l.paths(wasDeleted); !slices.Equal(got, want) || sum.Deleted != int64(len(want)) || sum.NotDeleted {
			t.Errorf("deleted %q, want %q: %+v", got, want, sum)
		}
		if got, err := os.ReadFile(filepath.Join(dst, "fifo")); err != nil || string(got) != "skipped at the source, and there" {
			t.Errorf("fifo: %q, %v", got, err)
		}
		if err := os.Remove(filepath.Join(dst, "fifo")); err != nil {
			t.Fatal(err)
		}
		fifo := filepath.Join(src, "fifo")
		if err := os.Rename(fifo, t.TempDir()+"/fifo"); err != nil { // it cannot be read for the comparison
			t.Fatal(err)
		}
		sameTree(t, src, dst)
		if err := unix.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
	})
}

// Deletions are reported in as many messages as they need.
func TestManyDeleted(t *testing.T) {
	w := tcpWay(t)
	src := t.TempDir()
	const n = 500
	fill := func(dst string) {
		for i := range n {
			write(t, filepath.Join(dst, fmt.Sprintf("d/%0200d", i)), nil)
		}
	}
	contentsInto(t, w, src, xfer.Options{Delete: true}, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
		if got := l.paths(wasDeleted); len(got) != n+1 || sum.Deleted != n+1 || got[0] != "d/" {
			t.Errorf("%d told, %d counted", len(got), sum.Deleted)
		}
		sameTree(t, src, dst)
	})
}

// Nothing is deleted without a complete list from the source.
func TestNothingDeletedWithoutTheWholeList(t *testing.T) {
	w := tcpWay(t)
	src := t.TempDir()
	write(t, filepath.Join(src, "d/x"), []byte("x"))
	for _, push := range []bool{true, false} {
		s, local := serve(t, w), t.TempDir()
		o := w.options(t)
		o.Delete = true
		dst := s.root
		var sum *xfer.Summary
		var err error
		if push {
			write(t, filepath.Join(dst, "d/old"), []byte("old"))
			sum, err = w.client(rdmatest.Faults{}).Push(t.Context(), []string{src + "/d", src + "/none"}, s.ep, "/", o)
		} else {
			dst = local
			write(t, filepath.Join(dst, "d/old"), []byte("old"))
			write(t, filepath.Join(s.root, "d/x"), []byte("x"))
			sum, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"d", "none"}, dst, o)
		}
		if err != nil || !sum.NotDeleted || sum.Deleted != 0 || sum.Failed != 1 || sum.Files != 1 {
			t.Errorf("push %v: %+v, %v", push, sum, err)
		}
		if _, err := os.Stat(filepath.Join(dst, "d/old")); err != nil {
			t.Error(err)
		}
	}
}

// Entries that cannot be deleted are reported, and count as failed at both ends.
func TestUndeletable(t *testing.T) {
	w := tcpWay(t)
	if os.Geteuid() != 0 {
		t.Skip("needs root, who can make a file that cannot be deleted")
	}
	src := t.TempDir()
	fill := func(dst string) {
		write(t, filepath.Join(dst, "d/fixed"), []byte("x"))
		setImmutable(t, filepath.Join(dst, "d/fixed"), true)
	}
	contentsInto(t, w, src, xfer.Options{Delete: true}, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
		if got := l.paths(ended(xfer.Failed)); !slices.Equal(got, []string{"d/fixed"}) || sum.Failed != 1 || sum.Deleted != 0 {
			t.Errorf("failed %q: %+v", got, sum)
		}
		setImmutable(t, filepath.Join(dst, "d/fixed"), false)
	})
}

// setImmutable sets or clears FS_IMMUTABLE_FL (ioctl_iflags(2)), or skips.
func setImmutable(t *testing.T, path string, on bool) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const immutable = 0x10
	flags, err := unix.IoctlGetUint32(int(f.Fd()), unix.FS_IOC_GETFLAGS)
	if err == nil {
		flags = flags&^immutable | map[bool]uint32{true: immutable}[on]
		err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, int(flags))
	}
	if err != nil && on {
		t.Skipf("%s: the file system has no immutable files: %v; set TMPDIR", path, err)
	}
}

// If the source does not have what the given manifest says, it may have lost more: nothing is
// deleted, at whichever end the manifest is.
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

// If the source's list is known to be incomplete, a directory that is not empty is not removed to
// make room either.
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
