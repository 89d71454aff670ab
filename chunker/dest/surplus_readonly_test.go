package dest

import (
	"errors"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/treetest"
)

// TestDeleteOnAReadOnlyFileSystem: what could not be deleted is told, and nothing of the
// directories that it is in: they are as they were.
func TestDeleteOnAReadOnlyFileSystem(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=128k"); err != nil {
		t.Skipf("run as root: mount tmpfs: %v", err)
	}
	defer unix.Unmount(dir, unix.MNT_DETACH)
	treetest.MakeTree(t, dir, "a=", "x=")
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s, told := deletingSink(t, dir, Options{Keep: Keep{Times: true}}, DeleteRules{})
	removeSurplus(t, s, "a")
	if got := slices.Collect(maps.Keys(told.errs)); !slices.Equal(got, []string{"x"}) || !errors.Is(told.errs["x"], unix.EROFS) {
		t.Errorf("told %v", told.errs)
	}
	told.want(t)
}
