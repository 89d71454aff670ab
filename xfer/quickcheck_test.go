package xfer_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/xfer"
)

// Files that are taken for the same get the source's attributes, and stay the
// files that they are. A dry run leaves them alone.
func TestAttributesOfWhatIsTheSame(t *testing.T) {
	src, then := t.TempDir(), time.Unix(1_500_000_000, 123_456_789)
	names := []string{"mode", "same", "time", "xattr"}
	for _, name := range names {
		at(t, filepath.Join(src, name), "source", then)
	}
	if err := unix.Setxattr(src+"/xattr", "user.a", []byte("v"), 0); err != nil {
		t.Skipf("needs a file system with extended attributes for TMPDIR: %v", err)
	}
	inodes := make(map[string]os.FileInfo)
	fill := func(dst string) {
		for _, name := range names {
			at(t, filepath.Join(dst, name), "target", then)
		}
		if err := os.Chmod(dst+"/mode", 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(dst+"/time", then, then.Add(-time.Hour)); err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			inodes[name], _ = os.Stat(filepath.Join(dst, name))
		}
	}
	for _, c := range []struct {
		name string
		o    xfer.Options
		// What is kept, and whether it gets the source's mode, attributes and time.
		kept               []string
		modes, xattrs, old bool
	}{
		{"all", xfer.Options{Perms: true, Times: true, Xattrs: true, Owner: true, Group: true}, []string{"mode", "same", "xattr"}, true, true, false},
		{"times", xfer.Options{Times: true}, []string{"mode", "same", "xattr"}, false, false, false},
		{"by size", xfer.Options{Times: true, Xattrs: true, SizeOnly: true}, names, false, true, false},
		{"by size, without times", xfer.Options{Perms: true, SizeOnly: true}, names, true, false, true},
		{"dry", xfer.Options{Perms: true, Times: true, Xattrs: true, SizeOnly: true, DryRun: true}, names, false, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			contentsInto(t, tcpWay(t), src, c.o, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
				if kept := l.paths(ended(xfer.Kept)); !slices.Equal(kept, c.kept) || sum.Files != int64(len(names)-len(kept)) || sum.Failed != 0 {
					t.Errorf("kept %q: %+v", kept, sum)
				}
				for _, name := range c.kept {
					st, err := os.Stat(filepath.Join(dst, name))
					if data, _ := content(filepath.Join(dst, name)); err != nil || !os.SameFile(st, inodes[name]) || data != "target" {
						t.Fatalf("%s is another file: %q, %v", name, data, err)
					}
					if late := st.ModTime().Equal(then); late == (c.old && name == "time") {
						t.Errorf("%s: time %v", name, st.ModTime())
					}
				}
				if st, err := os.Stat(dst + "/mode"); err != nil || (st.Mode().Perm() == 0o644) != c.modes {
					t.Errorf("mode: %v, %v", st.Mode(), err)
				}
				n, err := unix.Getxattr(dst+"/xattr", "user.a", make([]byte, 8))
				if (err == nil && n == 1) != c.xattrs {
					t.Errorf("attribute of %d bytes, %v", n, err)
				}
			})
		})
	}
}

// A manifest is of a whole copy: what is the same is copied all the same, and in
// the roots.
func TestManifestOfWhatIsTheSame(t *testing.T) {
	src, then := t.TempDir(), time.Unix(1_500_000_000, 0)
	at(t, filepath.Join(src, "same"), "source", then)
	fill := func(dst string) { at(t, filepath.Join(dst, "same"), "target", then) }
	written := filepath.Join(t.TempDir(), "m")
	var roots [][32]byte
	for _, o := range []xfer.Options{{WriteManifest: written}, {Manifest: written}} {
		o.Times = true
		contentsInto(t, tcpWay(t), src, o, fill, func(t *testing.T, dst string, sum *xfer.Summary, _ *told) {
			if data, err := content(filepath.Join(dst, "same")); sum.Files != 1 || sum.Kept != 0 || data != "source" {
				t.Errorf("%q, %v: %+v", data, err, sum)
			}
			roots = append(roots, sum.Content)
		})
	}
	for _, root := range roots {
		if root != roots[0] {
			t.Errorf("roots %x", roots)
		}
	}
}
