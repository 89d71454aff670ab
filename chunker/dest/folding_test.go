package dest

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// asIs folds nothing.
func asIs(name string) string { return name }

// TestFoldingIsFoundOut: by trying once for each file system, without leaving anything, and in
// a dry run not at all.
func TestFoldingIsFoundOut(t *testing.T) {
	noDots := func(name string) string { return strings.TrimRight(name, ".") }
	for name, c := range map[string]struct {
		fold func(string) string
		want folding
	}{
		"nothing": {asIs, foldNo}, "ASCII": {fusetest.FoldASCII, foldYes}, "case": {fusetest.FoldCase, foldYes},
		"forms": {fusetest.FoldForms, foldYes}, "dots": {noDots, foldYes},
	} {
		for _, inodes := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, inodes %v", name, inodes), func(t *testing.T) {
				below := t.TempDir()
				dir := fusetest.MountFolding(t, below, c.fold, inodes)
				looks := sinkInto(t, dir, Options{OnlyLooks: true})
				if !looks.mayFold(looks.base) || looks.deviceOf(looks.base).folding != foldUnknown {
					t.Error("a dry run has tried")
				}
				s := sinkInto(t, dir, Options{})
				if err := put(s, fileEntry("123", ""), ""); err != nil {
					t.Fatal(err)
				}
				if got := s.base.folding.Load(); got != c.want {
					t.Errorf("folding is %d, want %d", got, c.want)
				}
				if s.deviceOf(s.base).folding != c.want {
					t.Error("the file system's is another")
				}
				treetest.WantTree(t, below, "123=")
			})
		}
	}
}

// TestFoldingUnknown: if it cannot be tried, each name is looked for in the listing.
func TestFoldingUnknown(t *testing.T) {
	below := t.TempDir()
	treetest.MakeTree(t, below, "there=")
	dir := fusetest.MountFolding(t, below, fusetest.FoldCase, true)
	if err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, ""); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	if !s.mayFold(s.base) || s.deviceOf(s.base).folding != foldUnknown {
		t.Error("it is known")
	}
	if now, err := s.Look("there"); err != nil || !now.Exists {
		t.Errorf("the name itself: %v", err)
	}
	if _, err := s.Look("THERE"); !errors.Is(err, ErrTaken) {
		t.Errorf("another spelling: %v", err)
	}
}

// TestDisksOfTheKernelAreNotTried: there folding is an attribute of a directory.
func TestDisksOfTheKernelAreNotTried(t *testing.T) {
	dir := t.TempDir()
	if !slices.Contains([]int64{unix.EXT4_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.BTRFS_SUPER_MAGIC}, fsTypeOf(t, dir)) {
		t.Skip("the temporary directory is on another file system")
	}
	s := sinkInto(t, dir, Options{OnlyLooks: true})
	if s.mayFold(s.base) || s.deviceOf(s.base).folding != foldUnknown {
		t.Error("it may fold")
	}
}

func fsTypeOf(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		t.Fatal(err)
	}
	return int64(st.Type)
}

// TestTwinsFail: an entry does not get the name of another one, whatever it is and whatever
// the other one is.
func TestTwinsFail(t *testing.T) {
	for _, inodes := range []bool{true, false} {
		below := t.TempDir()
		treetest.MakeTree(t, below, "FILE=old", "DIR/", "DIR/x=old", "LINK>old")
		dir := fusetest.MountFolding(t, below, fusetest.FoldCase, inodes)
		s := sinkInto(t, dir, Options{})
		for _, name := range []string{"file", "dir", "link"} {
			file := fileEntry(name, "new")
			for what, err := range map[string]error{
				"file":      put(s, file, "new"),
				"directory": s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: name, Mode: 0o755}, nil),
				"link":      s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: name, Target: "new"}, nil),
				"dry run":   s.Try(file),
				"inside":    put(s, fileEntry(name+"/y", ""), ""),
			} {
				if want := ErrTaken; !errors.Is(err, want) && !(what == "inside" && name != "dir" && errors.Is(err, fileset.ErrNotDir)) {
					t.Errorf("%s %s: %v", what, name, err)
				} else if want := strings.ToUpper(name); what != "inside" && !strings.Contains(err.Error(), `"`+want+`"`) {
					t.Errorf("%s %s: %v does not name %s", what, name, err, want)
				}
			}
			if _, err := s.OpenInPlace(file, nil); !errors.Is(err, ErrTaken) {
				t.Errorf("%s in place: %v", name, err)
			}
			if _, err := s.Standing(name); !errors.Is(err, ErrTaken) {
				t.Errorf("%s as it stands: %v", name, err)
			}
		}
		// By its very name each can be replaced, and what has none is made.
		for _, name := range []string{"FILE", "LINK", "DIR/x", "DIR/y"} {
			if err := put(s, fileEntry(name, "new"), "new"); err != nil {
				t.Error(err)
			}
		}
		if err := put(s, fileEntry("DIR/Y", "other"), "other"); !errors.Is(err, ErrTaken) {
			t.Errorf("the twin of what was made: %v", err)
		}
		treetest.WantTree(t, below, "FILE=new", "LINK=new", "DIR/", "DIR/x=new", "DIR/y=new")
	}
}

// TestListingsAreShared: names that follow each other are all found in one listing.
func TestListingsAreShared(t *testing.T) {
	dir := t.TempDir()
	const files = 40
	var names []string
	for i := range files {
		names = append(names, fmt.Sprintf("%02d", i))
	}
	treetest.MakeTree(t, dir, strings.Split(strings.Join(names, "= ")+"=", " ")...)
	s := sinkInto(t, dir, Options{})
	s.base.folding.Store(foldYes)
	if err := s.checkSpelling(s.base, "10"); err != nil {
		t.Fatal(err)
	}
	for i, name := range names {
		if got := s.spellings.has(s.base, name); got != (i >= 10) {
			t.Errorf("%s is known: %v", name, got)
		}
	}
	listed, is, err := listedFrom(s.base, "39x")
	if len(listed) != 0 || is || err != nil {
		t.Errorf("%q behind the last: %v", listed, err)
	}
}

// The manifest's name is spared in another spelling if names fold, and only then.
func TestSparedNamesFold(t *testing.T) {
	for name, c := range map[string]struct {
		fold         func(string) string
		looks        bool
		spared, free string
	}{
		"nothing": {asIs, false, "", "sums\u00e9 sumse\u0301 SUMS\u00e9"},
		"case":    {fusetest.FoldCase, false, "sums\u00e9 SUMS\u00c9", "Sumse\u0301 other"},
		"forms":   {fusetest.FoldForms, false, "Sumse\u0301", "sums\u00e9 other"},
		"dry run": {fusetest.FoldCase, true, "SUMS\u00e9", "Sumse\u0301 other"},
	} {
		dir := fusetest.MountFolding(t, t.TempDir(), c.fold, true)
		s := sinkInto(t, dir, Options{Spare: filepath.Join(dir, "Sums\u00e9"), OnlyLooks: c.looks})
		for _, leaf := range append(strings.Fields(c.spared), "Sums\u00e9") {
			if !s.Spares(leaf) {
				t.Errorf("%s: %+q is not spared", name, leaf)
			}
		}
		for _, leaf := range append(strings.Fields(c.free), "none/Sums\u00e9") {
			if s.Spares(leaf) {
				t.Errorf("%s: %+q is spared", name, leaf)
			}
		}
	}
}
