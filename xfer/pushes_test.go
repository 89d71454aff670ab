package xfer_test

import (
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/fusetest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// heldCall is the first call of a kind at a file system after it was armed. It waits there for
// release.
type heldCall struct {
	dir     string
	armed   atomic.Bool
	begun   chan struct{} // closed when the call has come
	release func()
}

func holdCall(t *testing.T, call string) *heldCall {
	t.Helper()
	h := &heldCall{begun: make(chan struct{})}
	var calls atomic.Int32
	released := make(chan struct{})
	h.release = sync.OnceFunc(func() { close(released) })
	h.dir = fusetest.MountHeld(t, t.TempDir(), func(c string) {
		if c == call && h.armed.Load() && calls.Add(1) == 1 {
			close(h.begun)
			<-released
		}
	})
	return h
}

func (h *heldCall) hasBegun() bool {
	select {
	case <-h.begun:
		return true
	default:
		return false
	}
}

// TestAttemptsOfAPushRunOneByOne: an attempt whose connection is lost may still write, publish,
// delete, remove its files or set times at the server. The next one begins after that, so its
// results are not changed.
func TestAttemptsOfAPushRunOneByOne(t *testing.T) {
	rdmatest.BesideOthers(t)
	plain := func(*xfer.Options) {}
	deletes := func(o *xfer.Options) { o.Delete = true }
	whole := func(o *xfer.Options) { o.Whole, o.ForceReplace = true, true }
	for name, c := range map[string]struct {
		call     string
		existing bool
		change   func(*xfer.Options)
	}{
		"a file is written, and removed": {"write", false, func(o *xfer.Options) { o.NoResume = true }},
		"a file is written, and kept":    {"write", false, plain},
		"a file is published":            {"rename", false, plain},
		"a time is set":                  {"setattr", false, plain},
		"a directory is deleted":         {"rmdir", true, deletes},
		"a tree is made":                 {"write", true, whole},
		"a tree gets its name":           {"rename", true, whole},
		"a tree is removed":              {"rmdir", true, whole},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			held, w := holdCall(t, c.call), tcpWay(t)
			s, src := serve(t, w), t.TempDir()
			t.Cleanup(held.release)
			bind(t, held.dir, filepath.Join(s.root, "held"))
			dst := filepath.Join(held.dir, "copy")
			write(t, filepath.Join(src, "d", "file"), randomBytes(t, 3<<20))
			write(t, filepath.Join(src, "small"), randomBytes(t, 100))
			if c.existing {
				if err := os.MkdirAll(filepath.Join(dst, "old"), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			past := time.Unix(1e9, 123456789)
			for _, dir := range []string{"d", "."} {
				if err := os.Chtimes(filepath.Join(src, dir), past, past); err != nil {
					t.Fatal(err)
				}
			}
			o := w.options(t)
			o.Times, o.Tries, o.Tally = true, xfer.NewTries(), new(xfer.Tally)
			c.change(&o)
			var connected atomic.Int32
			o.Report = func(e xfer.Event) {
				if e.Kind == xfer.EventConnected {
					held.armed.Store(true)
					connected.Add(1)
				}
			}
			var cut atomic.Bool
			client := w.client(rdmatest.Faults{Drop: func(rdmatest.Posted) bool { return held.hasBegun() && !cut.Load() }})
			push := func() error {
				_, err := client.Push(t.Context(), []string{src + "/."}, s.ep, "held/copy", o)
				return err
			}
			if err := push(); err == nil || !o.Tries.MayGoOn(err) || !held.hasBegun() {
				t.Fatalf("the first attempt: %v", err)
			}
			cut.Store(true)
			o.Tries.Again(o.Tally)
			ended := make(chan error, 1)
			go func() { ended <- push() }()
			time.Sleep(rdmatest.Stretch(500 * time.Millisecond))
			if connected.Load() > 1 {
				t.Error("the second attempt began while the first one was still at work")
			}
			held.release()
			if err := <-ended; err != nil {
				t.Fatal(err)
			}
			s.lastEnd(t, 2)
			noTemps(t, held.dir)
			sameTree(t, src, dst)
			for _, dir := range []string{"d", "."} {
				if st, err := os.Stat(filepath.Join(dst, dir)); err != nil || !st.ModTime().Equal(past) {
					t.Errorf("%s has the time %v (%v), want %v", dir, st.ModTime(), err, past)
				}
			}
		})
	}
}
