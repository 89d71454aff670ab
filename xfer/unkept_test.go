package xfer_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// lateTime gives a file a time that cannot be sent.
func lateTime(t *testing.T, path string) {
	t.Helper()
	late := unix.Timespec{Sec: 10e9} // in 2286
	if err := unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{late, late}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil || st.Mtim != late {
		t.Skipf("needs a file system with times beyond 2262 for TMPDIR (%v, %v)", st.Mtim, err)
	}
}

// TestUnkeptAttributes: both ends have in their results what entries lack, including those of an
// attempt whose connection was lost. If attributes are required, the entries fail.
func TestUnkeptAttributes(t *testing.T) {
	xfer.OnHost(t)
	rdmatest.BesideOthers(t)
	for _, push := range []bool{true, false} {
		for _, required := range []bool{false, true} {
			t.Run(fmt.Sprintf("push %v, required %v", push, required), func(t *testing.T) { testUnkept(t, push, required) })
		}
	}
}

func testUnkept(t *testing.T, push, required bool) {
	var settled, healed atomic.Bool
	w := tcpWay(t)
	good := w.provider
	w.provider = rdmatest.Faulty(good, rdmatest.Faults{Drop: func(p rdmatest.Posted) bool {
		return isPayload(p) && settled.Load() && !healed.Load()
	}})
	s := serve(t, w)
	src, dst := t.TempDir(), filepath.Join(s.root, "copy")
	if !push {
		src, dst = filepath.Join(s.root, "src"), filepath.Join(t.TempDir(), "copy")
	}
	for _, name := range []string{"a", "b", "z"} {
		write(t, filepath.Join(src, name), randomBytes(t, 100))
		lateTime(t, filepath.Join(src, name))
	}
	write(t, filepath.Join(src, "m"), randomBytes(t, 24<<20))
	o := w.options(t)
	o.Times, o.RequireAttributes, o.Tries, o.Tally, o.BytesPerSecond = true, required, xfer.NewTries(), new(xfer.Tally), 16<<20
	o.Report = func(e xfer.Event) {
		if e.Kind == xfer.EventFile && e.Path == "b" {
			settled.Store(true)
		}
	}
	copyIt := func() (*xfer.Summary, error) {
		o.Follow = push
		if push {
			return w.client(rdmatest.Faults{}).Push(t.Context(), []string{src + "/."}, s.ep, "copy", o)
		}
		return w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"src"}, dst, o)
	}
	if err := os.MkdirAll(dst, 0o755); err != nil {
		t.Fatal(err)
	}
	if !push {
		dst = filepath.Join(dst, "src")
	}
	if _, err := copyIt(); err == nil || !o.Tries.MayGoOn(err) {
		t.Fatalf("the first attempt: %v", err)
	}
	healed.Store(true)
	plain := time.Unix(1e9, 0)
	for _, dir := range []string{src, dst} { // the second attempt finds nothing to report of these
		for _, name := range []string{"a", "b"} {
			if err := os.Chtimes(filepath.Join(dir, name), plain, plain); err != nil && !required {
				t.Fatal(err)
			}
		}
	}
	o.Tries.Again(o.Tally)
	sum, err := copyIt()
	if err != nil {
		t.Fatal(err)
	}
	end := s.lastEnd(t, 2)
	if required {
		if sum.Failed == 0 || sum.Files == 4 || len(sum.Unkept) > 0 {
			t.Errorf("%+v", sum)
		}
		return
	}
	want := xfer.Unkept{Attribute: fileset.AttributeTime, Dir: ".", Entries: 2, First: "a", Reason: dest.ErrTime.Error(), AtLeast: true}
	if len(sum.Unkept) == 1 && sum.Unkept[0].Entries == 3 {
		want.Entries = 3 // the first attempt was cut off when it had made z, too
	}
	if sum.Failed != 0 || sum.Files != 4 || !sum.Verified || len(sum.Unkept) != 1 || sum.Unkept[0] != want {
		t.Errorf("not kept: %+v, in %+v", sum.Unkept, sum)
	}
	if end.Err != nil || len(end.Summary.Unkept) != 1 || end.Summary.Unkept[0].First != "z" { // the second attempt's
		t.Errorf("server: %+v", end.Summary)
	}
	for _, name := range []string{"a", "b", "m", "z"} {
		if _, err := os.Lstat(filepath.Join(dst, name)); err != nil {
			t.Error(err)
		}
	}
}

// bind mounts a directory at another place until the test ends.
func bind(t *testing.T, dir, at string) {
	t.Helper()
	if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount(dir, at, "", unix.MS_BIND, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// TestOddAttributes: an attribute that the source cannot read, or that only its file system has,
// costs no content.
func TestOddAttributes(t *testing.T) {
	xfer.OnHost(t)
	w := tcpWay(t)
	for _, push := range []bool{true, false} {
		for _, required := range []bool{false, true} {
			below, s, dst := t.TempDir(), serve(t, w), t.TempDir()
			for _, name := range []string{"a", "b", "c"} {
				write(t, filepath.Join(below, name), []byte(name))
				if err := unix.Setxattr(filepath.Join(below, name), "user.good", []byte("v"), 0); err != nil {
					t.Skipf("needs a file system with extended attributes for TMPDIR: %v", err)
				}
			}
			src := fusetest.MountOddXattrs(t, below, "user.bad", "btrfs.compression")
			o := w.options(t)
			o.Xattrs, o.RequireAttributes = true, required
			var sum *xfer.Summary
			var err error
			if push {
				dst = filepath.Join(s.root, "copy")
				sum, err = w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o)
			} else {
				bind(t, src, filepath.Join(s.root, "src"))
				sum, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"src/."}, dst, o)
			}
			if err != nil {
				t.Fatal(err)
			}
			want := []xfer.Unkept{{Attribute: "user.bad", Dir: ".", Entries: 4, First: ".", Reason: "cannot be read at the source: " + unix.EIO.Error()}}
			files, failed := int64(3), int64(0)
			if required { // a server sets, and sends, only user's attributes
				want, files, failed = nil, 0, 4
			}
			if sum.Files != files || sum.Failed != failed || !slices.Equal(sum.Unkept, want) {
				t.Errorf("push %v, required %v: %d files, %d failed, not kept: %+v", push, required, sum.Files, sum.Failed, sum.Unkept)
			}
			if end := s.lastEnd(t, 1); !slices.Equal(end.Summary.Unkept, want) {
				t.Errorf("push %v, required %v: server: %+v", push, required, end.Summary.Unkept)
			}
			var v [1]byte
			if _, err := unix.Getxattr(filepath.Join(dst, "c"), "user.good", v[:]); !required && (err != nil || v[0] != 'v') {
				t.Errorf("push %v: %q, %v", push, v, err)
			}
		}
	}
}
