package dest

import (
	"errors"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
)

// mountOverlay mounts an overlay of what the specs say, until the test ends, and returns where.
func mountOverlay(t *testing.T, options string, lower ...string) (dir string) {
	t.Helper()
	base, dir := t.TempDir(), t.TempDir()
	// The temporary directory may be an overlay itself, which cannot be an upper layer.
	if err := unix.Mount("tmpfs", base, "tmpfs", 0, ""); err != nil {
		without(t, "mounting needs root: "+err.Error())
	}
	t.Cleanup(func() { unix.Unmount(base, unix.MNT_DETACH) })
	treetest.MakeTree(t, base, "lower/", "upper/", "work/")
	treetest.MakeTree(t, base+"/lower", lower...)
	layers := fmt.Sprintf("lowerdir=%s/lower,upperdir=%s/upper,workdir=%s/work,%s", base, base, base, options)
	if err := unix.Mount("overlay", dir, "overlay", 0, layers); err != nil {
		without(t, "mounting overlayfs: "+err.Error())
	}
	t.Cleanup(func() { unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// TestTreeOverOverlay: over overlayfs a tree that a lower layer has is not replaced, which is
// told before anything is made, and one of the upper layer is.
func TestTreeOverOverlay(t *testing.T) {
	treetest.NoLeaks(t)
	lower := []string{"tree/", "tree/a=old"}
	for name, c := range map[string]struct {
		options  string
		lower    []string
		upper    []string
		replaces bool
	}{
		"lower layer":       {"redirect_dir=off", lower, nil, false},
		"both layers":       {"redirect_dir=off", lower, []string{"tree/b=new"}, false},
		"upper layer":       {"redirect_dir=off", nil, lower, true},
		"layers redirected": {"redirect_dir=on", lower, []string{"tree/b=new"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := mountOverlay(t, c.options, c.lower...)
			treetest.MakeTree(t, dir, c.upper...)
			was := treetest.ListTree(t, dir)
			if !c.replaces {
				if _, err := Open(Options{Dest: dir + "/tree", Whole: &Whole{ID: fileset.NewStageID(), Force: true}}); !errors.Is(err, ErrNoExchange) {
					t.Errorf("%v, want %v", err, ErrNoExchange)
				}
				treetest.WantTree(t, dir, was...)
				return
			}
			s := wholeSink(t, dir, "tree", fileset.NewStageID())
			putEach(t, s, "a=A")
			appear(t, s)
			s.Close()
			treetest.WantTree(t, dir, "tree/", "tree/a=A")
		})
	}
}

// TestTreeOfLowerLayerAtTheEnd: what is at the final name by then may be of a lower layer.
func TestTreeOfLowerLayerAtTheEnd(t *testing.T) {
	dir := mountOverlay(t, "redirect_dir=off", "other/", "other/a=old")
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, s, "a=A")
	s.leaf, s.stage.leaf = "other", "other"
	if err := s.Commit(); !errors.Is(err, ErrNoExchange) {
		t.Errorf("%v, want %v", err, ErrNoExchange)
	}
	treetest.WantTree(t, dir+"/other", "a=old")
}
