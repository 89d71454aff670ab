package xfer_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// told collects events.
type told struct {
	mu     sync.Mutex
	events []xfer.Event
}

func (l *told) report(e xfer.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// paths are those of the events that match, sorted; a directory that was
// deleted ends in a slash.
func (l *told) paths(match func(*xfer.Event) bool) (paths []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.events {
		e := &l.events[i]
		if !match(e) {
			continue
		}
		path := e.Path
		if e.Kind == xfer.EventDeleted && e.Dir {
			path += "/"
		}
		paths = append(paths, path)
	}
	slices.Sort(paths)
	return paths
}

func ended(as xfer.Outcome) func(*xfer.Event) bool {
	return func(e *xfer.Event) bool { return e.Kind == xfer.EventFile && e.Outcome == as }
}

func wasDeleted(e *xfer.Event) bool { return e.Kind == xfer.EventDeleted && e.Text == "" }

// contentsInto copies the contents of src into dst, by a push and by a pull, each into a dst that
// fill has made, and checks that both ends report the same.
func contentsInto(t *testing.T, w way, src string, o xfer.Options, fill func(dst string), check func(t *testing.T, dst string, sum *xfer.Summary, l *told)) {
	for _, push := range []bool{true, false} {
		t.Run(map[bool]string{true: "push", false: "pull"}[push], func(t *testing.T) {
			l, atServer := &told{}, &told{}
			s := serve(t, w, func(c *xfer.ServerConfig) { c.Report = atServer.report })
			o := o
			o.Recursive, o.Links, o.Transport, o.Timeouts, o.Report = true, true, w.provider.Name(), w.timeouts(), l.report
			dst, c := s.root, w.client(rdmatest.Faults{})
			var sum *xfer.Summary
			var err error
			if push {
				fill(dst)
				sum, err = c.Push(t.Context(), []string{src + "/."}, s.ep, "/", o)
			} else {
				if err := errors.Join(os.Remove(s.root), os.Symlink(src, s.root)); err != nil {
					t.Fatal(err)
				}
				dst = t.TempDir()
				fill(dst)
				sum, err = c.Pull(t.Context(), s.ep, []string{"/"}, dst, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			end := s.lastEnd(t, 1)
			if end.Err != nil || end.Summary == nil || !sum.Verified || !end.Summary.Verified || end.Summary.Content != sum.Content || end.Summary.Kept != sum.Kept || end.Summary.LeftOut != sum.LeftOut ||
				end.Summary.Files != sum.Files || end.Summary.DryRun != sum.DryRun || end.Summary.NotDeleted != sum.NotDeleted || end.Summary.Bytes != sum.Bytes {
				t.Errorf("ends: %+v and %+v", sum, end)
			}
			for _, outcome := range []xfer.Outcome{xfer.Copied, xfer.Kept, xfer.Failed} {
				here, there := l.paths(ended(outcome)), atServer.paths(ended(outcome))
				if !slices.Equal(here, there) {
					t.Errorf("outcome %d: %q at the client, %q at the server", outcome, here, there)
				}
			}
			check(t, dst, sum, l)
		})
	}
}

// at writes a file with that modification time.
func at(t testing.TB, path, content string, when time.Time) {
	t.Helper()
	write(t, path, []byte(content))
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestKept(t *testing.T) { over(t, testKept) }

func testKept(t *testing.T, w way) {
	xfer.OnHost(t)
	src, then := t.TempDir(), time.Unix(1_500_000_000, 500)
	big := strings.Repeat("source", 1<<20)
	for _, name := range []string{"same", "same-size", "older", "newer", "size", "new/x", "file-dir", "d/both"} {
		at(t, filepath.Join(src, name), big[:3<<20], then)
	}
	for _, name := range []string{"link", "link-file", "d/link"} {
		if err := os.Symlink("to", filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	fill := func(dst string) {
		at(t, filepath.Join(dst, "same"), big[1:3<<20+1], then)
		at(t, filepath.Join(dst, "same-size"), big[1:3<<20+1], then.Add(-400*time.Millisecond))
		at(t, filepath.Join(dst, "older"), "old", then.Add(-time.Second))
		at(t, filepath.Join(dst, "newer"), "new", then.Add(time.Second))
		at(t, filepath.Join(dst, "size"), "short", then)
		at(t, filepath.Join(dst, "link-file"), "file", then.Add(time.Hour))
		at(t, filepath.Join(dst, "d/other"), "other", then)
		if err := os.Mkdir(filepath.Join(dst, "file-dir"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("elsewhere", filepath.Join(dst, "link")); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		set    func(*xfer.Options)
		kept   string
		failed string
	}{
		{"update", func(o *xfer.Options) { o.Update = true }, "newer", "file-dir"},
		{"update, with times", func(o *xfer.Options) { o.Update, o.Times = true, true }, "newer same", "file-dir"},
		{"update of the same", func(o *xfer.Options) { o.Update, o.Times, o.IgnoreTimes = true, true, true }, "newer", "file-dir"},
		{"update by size", func(o *xfer.Options) { o.Update, o.SizeOnly = true, true }, "newer same same-size", "file-dir"},
		{"times", func(o *xfer.Options) { o.Times = true }, "same", "file-dir"},
		{"times ignored", func(o *xfer.Options) { o.Times, o.IgnoreTimes = true, true }, "", "file-dir"},
		{"no times", func(*xfer.Options) {}, "", "file-dir"},
		{"size", func(o *xfer.Options) { o.SizeOnly, o.IgnoreTimes = true, true }, "same same-size", "file-dir"},
		{"ignore-existing", func(o *xfer.Options) { o.IgnoreExisting = true }, "file-dir link link-file newer older same same-size size", ""},
		{"existing", func(o *xfer.Options) { o.Existing = true }, "d/both d/link new new/x", "file-dir"},
		{"neither", func(o *xfer.Options) { o.Existing, o.IgnoreExisting = true, true },
			"d/both d/link file-dir link link-file new new/x newer older same same-size size", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			var o xfer.Options
			c.set(&o)
			contentsInto(t, w, src, o, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
				kept := strings.Fields(c.kept)
				if got := l.paths(ended(xfer.Kept)); !slices.Equal(got, kept) || sum.Kept+sum.LeftOut != int64(len(kept)) {
					t.Errorf("kept %q, want %q", got, kept)
				}
				if want := int64(len(l.paths(func(e *xfer.Event) bool { return e.LeftOut }))); sum.LeftOut != want || (want > 0) != o.Existing {
					t.Errorf("%d are left out, and %d told", sum.LeftOut, want)
				}
				if got := l.paths(ended(xfer.Failed)); !slices.Equal(got, strings.Fields(c.failed)) {
					t.Errorf("failed %q, want %q", got, c.failed)
				}
				// Kept files cost nothing on the wire.
				if files := sum.Files + sum.Failed; sum.WireBytes > files*(3<<20+4096) {
					t.Errorf("%d bytes for %d files", sum.WireBytes, files)
				}
				checkKept(t, src, dst, kept, strings.Fields(c.failed))
			})
		})
	}
}

// checkKept checks the contents of the destination: kept and failed entries must be unchanged, all
// others must equal the source's.
func checkKept(t *testing.T, src, dst string, kept, failed []string) {
	t.Helper()
	for _, name := range []string{"same", "same-size", "older", "newer", "size", "new/x", "d/both", "d/link", "link", "link-file"} {
		want, errWant := content(filepath.Join(src, name))
		got, errGot := content(filepath.Join(dst, name))
		if equal := errWant == nil && errGot == nil && got == want; equal == (slices.Contains(kept, name) || slices.Contains(failed, name)) {
			t.Errorf("%s is as at the source: %v (%v)", name, equal, errGot)
		}
	}
	if got, err := os.ReadFile(filepath.Join(dst, "d/other")); err != nil || string(got) != "other" {
		t.Errorf("d/other: %q, %v", got, err)
	}
}

// content returns a file's content, or a link's target.
func content(path string) (string, error) {
	if target, err := os.Readlink(path); err == nil {
		return "-> " + target, nil
	}
	data, err := os.ReadFile(path)
	return string(data), err
}

// Many kept files among others: more than the window has room for.
func TestManyKept(t *testing.T) {
	if testing.Short() {
		t.Skip("makes tens of thousands of files: run without -short")
	}
	w := tcpWay(t)
	src := t.TempDir()
	const n = 8400
	for i := range n {
		write(t, filepath.Join(src, fmt.Sprintf("d%d/%d", i%7, i)), []byte("new"))
	}
	fill := func(dst string) {
		for i := range n {
			if i%5 != 0 {
				write(t, filepath.Join(dst, fmt.Sprintf("d%d/%d", i%7, i)), []byte("old"))
			}
		}
	}
	contentsInto(t, w, src, xfer.Options{IgnoreExisting: true, NoFsync: true}, fill, func(t *testing.T, dst string, sum *xfer.Summary, _ *told) {
		if sum.Kept != n*4/5 || sum.Files != n/5 || sum.Bytes != 3*n/5 {
			t.Errorf("%+v", sum)
		}
		for i := range n {
			want := map[bool]string{true: "new", false: "old"}[i%5 == 0]
			if got, err := os.ReadFile(filepath.Join(dst, fmt.Sprintf("d%d/%d", i%7, i))); err != nil || string(got) != want {
				t.Fatalf("%d: %q, %v, want %q", i, got, err, want)
			}
		}
	})
}

// TestKeptLater: a file that appears in an entry's place while its data arrives is kept if the
// options say so, and both ends know of it.
func TestKeptLater(t *testing.T) {
	rdmatest.BesideOthers(t)
	w, src := tcpWay(t), t.TempDir()
	at(t, src+"/big", strings.Repeat("new", 1<<20), time.Unix(1_500_000_000, 0))
	write(t, src+"/small", []byte("small"))
	for name, o := range map[string]xfer.Options{"--ignore-existing": {IgnoreExisting: true}, "--update": {Update: true}} {
		t.Run(name, func(t *testing.T) {
			// The source's device holds the second chunk back until the other file has arrived, and
			// that arrives after the first chunk.
			var posted atomic.Int64
			var into string
			w := w
			w.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
				if !isPayload(p) || posted.Add(1) != 2 {
					return false
				}
				for under := []string(nil); len(under) == 0 && t.Context().Err() == nil; time.Sleep(time.Millisecond) {
					under, _ = filepath.Glob(into + "/.gdrcp-*")
				}
				_ = os.WriteFile(into+"/big", []byte("mine"), 0o644) // which is checked below
				return false
			}})
			fill := func(dst string) {
				posted.Store(0)
				into = dst
			}
			contentsInto(t, w, src, o, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
				if got, err := content(dst + "/big"); got != "mine" {
					t.Errorf("it is %.10q, %v", got, err)
				}
				if kept := l.paths(ended(xfer.Kept)); !slices.Equal(kept, []string{"big"}) || sum.Kept != 1 || sum.Files != 1 {
					t.Errorf("kept %q, %+v", kept, sum)
				}
			})
		})
	}
}

// A dry run reports what a copy would do, and does nothing.
func TestDryRun(t *testing.T) { over(t, testDryRun) }

func testDryRun(t *testing.T, w way) {
	xfer.OnHost(t)
	src := t.TempDir()
	makeTree(t, src)
	fill := func(dst string) {
		write(t, filepath.Join(dst, "one"), []byte("old"))
		write(t, filepath.Join(dst, "many/3/f3"), []byte("old"))
		write(t, filepath.Join(dst, "many/3/extra/x"), []byte("old"))
		write(t, filepath.Join(dst, "a-b/extra"), []byte("in the way"))
	}
	for _, o := range []xfer.Options{{Delete: true}, {IgnoreExisting: true, Delete: true}} {
		contentsInto(t, w, src, o, fill, func(t *testing.T, _ string, sum *xfer.Summary, real *told) {
			o := o
			o.DryRun = true
			contentsInto(t, w, src, o, fill, func(t *testing.T, dst string, dry *xfer.Summary, l *told) {
				if !dry.DryRun || dry.WireBytes != 0 || dry.Files != sum.Files || dry.Bytes != sum.Bytes || dry.Dirs != sum.Dirs || dry.Links != sum.Links ||
					dry.Kept != sum.Kept || dry.LeftOut != sum.LeftOut || dry.Failed != sum.Failed || dry.Deleted != sum.Deleted {
					t.Errorf("dry %+v\nreal %+v", dry, sum)
				}
				for _, match := range []func(*xfer.Event) bool{ended(xfer.Copied), ended(xfer.Kept), ended(xfer.Failed), wasDeleted} {
					if was, would := real.paths(match), l.paths(match); !slices.Equal(was, would) {
						t.Errorf("told %q, and did %q", would, was)
					}
				}
				untouched := t.TempDir()
				fill(untouched)
				sameTree(t, untouched, dst)
			})
		})
	}
}

func TestSinkOptionsThatMakeNoSense(t *testing.T) {
	w := tcpWay(t)
	s, src := serve(t, w), t.TempDir()
	for _, o := range []xfer.Options{
		{Delete: true}, {DeleteExcluded: true}, {Recursive: true, Update: true, WriteManifest: src + "/m"},
		{Recursive: true, SizeOnly: true, Manifest: src + "/m"},
		{Recursive: true, DryRun: true, Manifest: src + "/m"}, {Recursive: true, IgnoreExisting: true, Manifest: src + "/m"},
	} {
		o.Transport, o.Timeouts = "tcp", w.timeouts()
		_, pushed := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "/", o)
		_, pulled := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"/"}, src, o)
		for _, err := range []error{pushed, pulled} {
			if err == nil || !strings.Contains(err.Error(), xfer.ErrUsage.Error()) {
				t.Errorf("%+v: %v", o, err)
			}
		}
	}
}

// Files that pass for the same get the source's attributes, but are not replaced. A dry run does
// not change them.
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
		// The files that are kept, and whether they get the source's mode, attributes and time.
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

// A manifest covers a whole copy: files that are the same are copied nevertheless, and are in the
// roots.
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
