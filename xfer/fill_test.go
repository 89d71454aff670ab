package xfer_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/fusetest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// misstated are files of this machine whose content is longer or shorter than their size.
func misstated(t *testing.T) []string {
	t.Helper()
	more, less := "/proc/version", "/sys/kernel/mm/transparent_hugepage/enabled"
	if st, err := os.Stat(more); err != nil || st.Size() != 0 {
		t.Skipf("%s with size 0 is needed: mount proc(5): %v", more, err)
	}
	files := []string{more}
	if st, err := os.Stat(less); err == nil && st.Size() > 0 {
		files = append(files, less)
	}
	return files
}

func TestFilesOfAnotherSizeAreNotCopied(t *testing.T) { over(t, testFilesOfAnotherSizeAreNotCopied) }

func testFilesOfAnotherSizeAreNotCopied(t *testing.T, w way) {
	xfer.OnHost(t)
	files := misstated(t)
	s, l, src := serve(t, w), &told{}, t.TempDir()
	write(t, filepath.Join(src, "empty"), nil)
	write(t, filepath.Join(src, "full"), []byte("x"))
	o := w.options(t)
	o.Follow, o.Delete, o.Recursive, o.Report = true, true, true, l.report
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(file))
		if err := os.Symlink(file, filepath.Join(src, filepath.Base(file))); err != nil {
			t.Fatal(err)
		}
		write(t, filepath.Join(s.root, filepath.Base(file)), []byte("old"))
	}
	write(t, filepath.Join(s.root, "surplus"), nil)
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src + "/."}, s.ep, "/", o)
	if err != nil || sum.Files != 2 || sum.Changed != int64(len(files)) || sum.Failed != 0 || sum.Deleted != 1 {
		t.Errorf("%+v, %v", sum, err)
	}
	slices.Sort(names)
	if got := l.paths(ended(xfer.Changed)); !slices.Equal(got, names) {
		t.Errorf("changed %q, want %q", got, names)
	}
	for _, name := range names {
		if got, err := os.ReadFile(filepath.Join(s.root, name)); string(got) != "old" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// TestFreshFilesAreReadLater: a file that has just been changed is read only when its times would
// show every further change.
func TestFreshFilesAreReadLater(t *testing.T) {
	xfer.OnHost(t)
	below := t.TempDir()
	write(t, filepath.Join(below, "empty"), nil)
	write(t, filepath.Join(below, "small"), randomBytes(t, 1000))
	write(t, filepath.Join(below, "large"), randomBytes(t, 5<<20))
	src, youngest := fusetest.MountFresh(t, below)
	w := tcpWay(t)
	s := serve(t, w)
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", w.options(t))
	if err != nil || sum.Files != 3 || !sum.Verified {
		t.Errorf("%+v, %v", sum, err)
	}
	if got := youngest(); got < 20*time.Millisecond {
		t.Errorf("a file was read %v after its last change", got)
	}
}

func TestFileChangesWhileRead(t *testing.T) { over(t, testFileChangesWhileRead) }

func testFileChangesWhileRead(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	path := filepath.Join(src, "growing")
	write(t, path, randomBytes(t, 20<<20))
	write(t, filepath.Join(src, "still"), randomBytes(t, 1000))
	var n atomic.Int64
	f := rdmatest.Faults{Delay: func(c rdma.Completion) time.Duration {
		if c.Kind == rdma.Done && c.ID < 1<<40 && n.Add(1) == 3 { // chunks only: messages have other numbers
			g, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				t.Error(err)
				return 0
			}
			g.Write([]byte("more"))
			g.Close()
		}
		return 0
	}}
	sum, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", w.options(t))
	if err != nil {
		t.Fatal(err)
	}
	if sum.Changed != 1 || sum.Files != 1 || !sum.Verified {
		t.Errorf("summary: %+v", sum)
	}
	if end := s.lastEnd(t, 1); end.Err != nil || end.Summary.Changed != 1 {
		t.Errorf("server: %+v", end)
	}
	notPublished(t, s.root, "copy/growing")
}
