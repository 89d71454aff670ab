package xfer_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

func appendTo(path, text string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// If the option is set, a file that has grown between its announcement and its reading is copied at
// its initial length, with its content at the time of reading. A file that changed otherwise is not
// copied.
func TestCopyGrowing(t *testing.T) {
	xfer.OnHost(t)
	for _, c := range []struct {
		name   string
		was    string
		change func(path string) error
		grown  bool
		want   string
	}{
		{"appended to", "line 1\n", func(p string) error { return appendTo(p, "line 2\n") }, true, "line 1\n"},
		{"appended to nothing", "", func(p string) error { return appendTo(p, "line 1\n") }, true, ""},
		{"written to and appended to", "line 1\n", func(p string) error {
			return errors.Join(os.WriteFile(p, []byte("LINE 1\n"), 0), appendTo(p, "line 2\n"))
		}, true, "LINE 1\n"},
		{"cut", "line 1\nline 2\n", func(p string) error { return os.Truncate(p, 7) }, false, ""},
		{"written anew", "line 1\n", func(p string) error { return os.WriteFile(p, []byte("LINE 1\n"), 0) }, false, ""},
		{"put in its place", "line 1\n", func(p string) error {
			return errors.Join(os.WriteFile(p+"~", []byte("line 1\nline 2\n"), 0o644), os.Rename(p+"~", p))
		}, false, ""},
	} {
		for _, asked := range []bool{true, false} {
			for _, given := range []bool{false, true} {
				t.Run(c.name+map[bool]string{true: ", asked for"}[asked]+map[bool]string{true: ", with a manifest"}[given], func(t *testing.T) {
					src := t.TempDir()
					a, b := filepath.Join(src, "a"), filepath.Join(src, "b")
					lay := func() {
						write(t, a, []byte("a"))
						write(t, b, []byte(c.was))
					}
					lay()
					o := xfer.Options{CopyGrowing: asked}
					if given {
						o.Manifest = filepath.Join(t.TempDir(), "m")
						createIn(t, o.Manifest, src)
					}
					fill := func(string) {
						lay()
						whenRead(t, a, func() error { return c.change(b) })
					}
					contentsInto(t, tcpWay(t), src, o, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
						got, err := os.ReadFile(filepath.Join(dst, "b"))
						if !c.grown || !asked || given {
							if err == nil || sum.Changed != 1 || sum.Grown != 0 {
								t.Errorf("%q, %+v", got, sum)
							}
							return
						}
						if string(got) != c.want || err != nil || sum.Grown != 1 || sum.Changed != 0 || sum.Files != 2 {
							t.Errorf("%q, %v, %+v", got, err, sum)
						}
						grew := l.paths(func(e *xfer.Event) bool { return e.Kind == xfer.EventFile && e.Outcome == xfer.Copied && e.Text != "" })
						if len(grew) != 1 || grew[0] != "b" {
							t.Errorf("told of %q", grew)
						}
					})
				})
			}
		}
	}
}

// A file of many pieces is copied at the length at which it was found, however often it grows while
// it is read. If its beginning is overwritten meanwhile, it has changed.
func TestCopyGrowingWhileRead(t *testing.T) { over(t, testCopyGrowingWhileRead) }

func testCopyGrowingWhileRead(t *testing.T, w way) {
	xfer.OnHost(t)
	for _, push := range []bool{true, false} {
		for _, written := range []bool{false, true} {
			testGrowsWhileRead(t, w, push, written)
		}
	}
}

func testGrowsWhileRead(t *testing.T, w way, push, written bool) {
	// It grows when the source's device gets the second chunk: then more than the slots hold is
	// still to be read.
	var src, dst string
	var posted atomic.Int64
	appended := make(chan error, 1)
	w.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
		if isPayload(p) && posted.Add(1) == 2 {
			err := appendTo(src, "more")
			if written {
				err = errors.Join(err, writeTo(src, "XY", 0))
			}
			appended <- err
		}
		return false
	}})
	s, here := serve(t, w), t.TempDir()
	was := bytes.Repeat([]byte("0123456789abcde\n"), 8<<20/16)
	src, dst = filepath.Join(here, "log"), filepath.Join(s.root, "copy")
	if !push {
		src, dst = filepath.Join(s.root, "log"), filepath.Join(here, "copy")
	}
	write(t, src, was)
	o := w.options(t)
	o.CopyGrowing, o.Slots = true, 2
	var sum *xfer.Summary
	var err error
	if push {
		sum, err = w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o)
	} else {
		sum, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"log"}, dst, o)
	}
	if err := errors.Join(err, <-appended); err != nil {
		t.Fatal(err)
	}
	end := s.lastEnd(t, 1)
	if written {
		if _, err := os.Lstat(dst); err == nil || sum.Changed != 1 || sum.Grown != 0 || end.Summary.Changed != 1 {
			t.Errorf("push: %v, written to: %v: %+v; at the server %+v", push, err, sum, end.Summary)
		}
		return
	}
	if sum.Grown != 1 || sum.Files != 1 || !sum.Verified || sum.Bytes != int64(len(was)) || end.Summary.Grown != 1 {
		t.Errorf("push: %v: %+v; at the server %+v", push, sum, end.Summary)
	}
	if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, was) {
		t.Errorf("push: %v: %d bytes, %v", push, len(got), err)
	}
}

func writeTo(path, text string, off int64) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(text), off)
	return errors.Join(err, f.Close())
}
