package dest

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// An absolute link whose target lies inside the root is followed, as if the root were not
// there; one that leads outside is not, in whatever way it does.
func TestAbsoluteLinksInsideARoot(t *testing.T) {
	top, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	dir := top + "/root"
	treetest.MakeTree(t, top, "root/", "secret=secret", "root2/", "root2/f=secret", "root/d/", "root/d/f=text", "root/f=text",
		"root/file>"+dir+"/f", "root/dir>"+dir+"/d", "root/self>"+dir, "root/chain>"+dir+"/dir/f", "root/d/up>../dir/f",
		"root/out>"+top+"/secret", "root/beside>"+dir+"2/f", "root/dots>"+dir+"/../secret", "root/through>"+dir+"/d/../../secret",
		"root/loop>"+dir+"/loop", "root/none>"+dir+"/nothing", "root/relative>../secret", "root/then>"+dir+"/out")
	root := treetest.OpenRoot(t, dir)
	for path, want := range map[string]error{
		"file": nil, "dir/f": nil, "self/f": nil, "self/self/dir/f": nil, "chain": nil, "d/up": nil, "f": nil,
		"out": fsys.ErrEscape, "beside": fsys.ErrEscape, "dots": fsys.ErrEscape, "through": fsys.ErrEscape, "relative": fsys.ErrEscape, "then": fsys.ErrEscape, "loop": fsys.ErrEscape,
		"none": os.ErrNotExist,
	} {
		f, err := fsys.OpenInside(root, path, os.O_RDONLY)
		if want != nil {
			if err == nil || !errors.Is(fsys.RootErr(err), want) {
				t.Errorf("%s: %v, want %v", path, err, want)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		if text, err := io.ReadAll(f); string(text) != "text" || err != nil {
			t.Errorf("%s has %q, %v", path, text, err)
		}
		f.Close()
		if st, err := fsys.StatInside(root, path); err != nil || !st.Mode().IsRegular() {
			t.Errorf("stat %s: %v", path, err)
		}
	}
	if st, err := fsys.LstatInside(root, "self/file"); err != nil || st.Mode()&os.ModeSymlink == 0 {
		t.Errorf("lstat of a link behind a link: %v, %v", st, err)
	}
	if _, err := fsys.OpenInside(root, "dir", os.O_RDONLY|unix.O_NOFOLLOW); err == nil {
		t.Error("a link was followed that was not to be")
	}
}

// A destination and a source may be named through such links.
func TestPlacesThroughAbsoluteLinks(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	treetest.MakeTree(t, dir, "d/", "d/f=text", "dir>"+dir+"/d")
	root := treetest.OpenRoot(t, dir)
	s := openSink(t, Options{Root: root, Dest: "/dir"})
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	if err := put(s, fileEntry("new", "new"), "new"); err != nil {
		t.Error(err)
	}
	if err := s.CheckPlace(); err != nil {
		t.Error(err)
	}
	s.Close()
	treetest.WantTree(t, dir, "d/", "d/f=text", "d/new=new", "dir>"+dir+"/d")
	for _, follow := range []bool{false, true} {
		tree, err := chunker.OpenRooted(root, []chunker.Source{{Path: "/dir/.", Name: "."}}, follow)
		if err != nil {
			t.Fatal(err)
		}
		paths, problems := walked(t, tree)
		if len(paths) != 3 || len(problems) != 0 {
			t.Errorf("with follow %t: %q, %v", follow, paths, problems)
		}
		tree.Close()
	}
	tree, err := chunker.OpenRooted(root, []chunker.Source{{Path: "/", Name: "."}}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer tree.Close()
	if paths, problems := walked(t, tree); len(problems) != 0 || len(paths) != 7 {
		t.Errorf("following links: %q, %v", paths, problems)
	}
}
