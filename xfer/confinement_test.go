package xfer

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/chunker"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"

	"golang.org/x/sys/unix"
)

// The patterns of these tests are those of rsync 3.5.0's regression tests for paths: symlinks in
// the way of everything that an option does besides writing a file.

// confinedOptions are the options that make a sink change a path.
func confinedOptions() map[string]func(*Options) {
	return map[string]func(*Options){
		"plain":      func(*Options) {},
		"attributes": func(o *Options) { o.Perms, o.Times, o.Xattrs = true, true, true },
		"owners":     func(o *Options) { o.Owner, o.Group = true, true },
		"delete":     func(o *Options) { o.Delete = true },
		"hard links": func(o *Options) { o.HardLinks = true },
		"checksum":   func(o *Options) { o.Checksum, o.Times = true, true },
		"in place":   func(o *Options) { o.InPlace = true },
		"append":     func(o *Options) { o.AppendVerify = true },
		"partial":    func(o *Options) { o.PartialDir = "partial" },
		"whole tree": func(o *Options) { o.Whole, o.ForceReplace, o.Times = true, true, true },
		"existing":   func(o *Options) { o.Existing, o.Times = true, true },
	}
}

// outsideState describes all of a directory that a copy must not change. The change times show
// changes to attributes and link counts.
func outsideState(t *testing.T, dir string) string {
	t.Helper()
	var all strings.Builder
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		content, _ := os.ReadFile(path)
		fmt.Fprintf(&all, "%s: inode %d, mode %o, names %d, changed %d.%09d, %q\n", path, st.Ino, st.Mode, st.Nlink, st.Ctim.Sec, st.Ctim.Nsec, content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

const outsideSecret = "what nobody is to see"

// confined is a tree to copy, a destination, and what is outside both.
type confined struct {
	src, dst, outside, state string
	copy                     func(ctx context.Context, o Options) error
}

// newConfined makes one, for a push to a server's root or a pull to this host.
func newConfined(t *testing.T, push bool) *confined {
	t.Helper()
	root, addr, _ := hostileServer(t)
	c := &confined{outside: t.TempDir()}
	client := Client{TCP: tcp.New()}
	if push {
		c.src, c.dst = filepath.Join(t.TempDir(), "src"), filepath.Join(root, "dst")
		c.copy = func(ctx context.Context, o Options) error {
			_, err := client.Push(ctx, []string{c.src + "/."}, endpointAt(addr), "dst", o)
			return err
		}
	} else {
		c.src, c.dst = filepath.Join(root, "src"), filepath.Join(t.TempDir(), "dst")
		c.copy = func(ctx context.Context, o Options) error {
			_, err := client.Pull(ctx, endpointAt(addr), []string{"src/."}, c.dst, o)
			return err
		}
	}
	for _, dir := range []string{c.src + "/d/sub", c.src + "/e", c.dst, c.outside + "/sub", c.outside + "/kept"} {
		makeDir(t, dir)
	}
	for _, name := range []string{"f", "d/f", "d/secret", "d/sub/f", "e/f"} {
		putFile(t, filepath.Join(c.src, name), "of the copy")
	}
	if err := os.Link(c.src+"/d/f", c.src+"/d/g"); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setxattr(c.src+"/d", "user.test", []byte("of the copy"), 0); err != nil {
		t.Logf("no extended attributes: %v", err)
	}
	for name, text := range map[string]string{"f": "another one", "secret": outsideSecret, "sub/f": "another one", "kept/x": outsideSecret} {
		putFile(t, filepath.Join(c.outside, name), text)
	}
	// By size and time they look like files of the copy, which a new tree takes from the old one.
	for _, name := range []string{c.src + "/d/f", c.src + "/d/sub/f", c.src + "/e/f", c.outside + "/f", c.outside + "/sub/f"} {
		if err := os.Chtimes(name, time.Unix(1e9, 0), time.Unix(1e9, 0)); err != nil {
			t.Fatal(err)
		}
	}
	c.state = outsideState(t, c.outside)
	return c
}

func makeDir(t *testing.T, path string) {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func putFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o640); err != nil {
		t.Fatal(err)
	}
}

// unharmed checks that nothing outside has changed.
func (c *confined) unharmed(t *testing.T) {
	t.Helper()
	if now := outsideState(t, c.outside); now != c.state {
		t.Errorf("outside was\n%s, and is\n%s", c.state, now)
	}
}

// confinedWays runs a test for each option, as a push and as a pull.
func confinedWays(t *testing.T, test func(t *testing.T, c *confined, o Options)) {
	OnHost(t)
	for name, set := range confinedOptions() {
		for _, push := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, push %v", name, push), func(t *testing.T) {
				o := *byTCP().options()
				o.NoFsync = true
				set(&o)
				test(t, newConfined(t, push), o)
			})
		}
	}
}

// Links at the destination in place of directories and files of the copy, and of those that hold
// its partial files, never lead out of it.
func TestLinksInTheWay(t *testing.T) {
	confinedWays(t, func(t *testing.T, c *confined, o Options) {
		for name, target := range map[string]string{
			"d": c.outside, "e": strings.Repeat("../", 20) + c.outside, "f": c.outside + "/f", "partial": c.outside, "kept": c.outside + "/kept",
		} {
			if err := os.Symlink(target, filepath.Join(c.dst, name)); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second time finds what the first one made
			_ = c.copy(t.Context(), o) // with some options a link in the way is an error
			c.unharmed(t)
		}
	})
}

// While a directory of the destination is exchanged for a link, the target of the link is not
// changed: no file is made, removed or linked, and no attribute is set.
func TestSwappedDestination(t *testing.T) {
	const least = 150 * time.Millisecond
	confinedWays(t, func(t *testing.T, c *confined, o Options) {
		makeDir(t, c.dst+"/d/sub")
		putFile(t, c.dst+"/d/kept", "to be deleted")
		stop := swapping(t, c.dst+"/d", c.outside)
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(100*least))
		defer cancel()
		for start := time.Now(); time.Since(start) < least && ctx.Err() == nil; {
			_ = c.copy(ctx, o)
		}
		stop()
		c.unharmed(t)
	})
}

// A list of names takes nothing from outside a served root, whatever the names, and with -L neither
// does a link on the way, nor a device.
func TestNamesOfOutside(t *testing.T) {
	OnHost(t)
	c := newConfined(t, false)
	if err := os.Symlink(c.outside, c.src+"/out"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(strings.Repeat("../", 20)+c.outside+"/secret", c.src+"/d/leak"); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/dev/zero", c.src+"/d/device"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"", "out", "out/secret", "d/../out/secret", "d/leak", "d/leak/.", "d", strings.Repeat("../", 20) + c.outside + "/secret", c.outside + "/secret"} {
		for _, follow := range []bool{false, true} {
			o := *byTCP().options()
			o.Follow = follow
			if name != "" {
				b := chunker.NewListBuilder()
				err := b.Add(name)
				if err == nil {
					o.Names, err = b.Finish()
				}
				b.Close()
				if err != nil {
					continue // no name to ask for
				}
			}
			_ = c.copy(t.Context(), o)
			noSecret(t, c.dst, outsideSecret)
			if st, err := os.Stat(c.dst + "/d/device"); err == nil && follow && st.Size() > 0 {
				t.Errorf("%q: a device was read: %d bytes", name, st.Size())
			}
			if o.Names != nil {
				o.Names.Close()
			}
			if err := os.RemoveAll(c.dst); err != nil {
				t.Fatal(err)
			}
			makeDir(t, c.dst)
		}
	}
	c.unharmed(t)
}
