package xfer_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// misstated are files of this machine that hold more, or less, than their size
// says.
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
