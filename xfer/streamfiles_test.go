package xfer_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A new file has the mode that a redirection would give it, and one that is
// replaced keeps its own; what is no file's name takes no stream.
func TestWhereStreamsGo(t *testing.T) {
	w := tcpWay(t)
	umask := unix.Umask(0o027)
	t.Cleanup(func() { unix.Umask(umask) })
	s := serve(t, w)
	write(t, filepath.Join(s.root, "old"), []byte("old"))
	if err := errors.Join(os.Chmod(filepath.Join(s.root, "old"), 0o751), os.Mkdir(filepath.Join(s.root, "dir"), 0o755)); err != nil {
		t.Fatal(err)
	}
	start := time.Now().Add(-time.Second)
	for name, mode := range map[string]os.FileMode{"new": 0o640, "old": 0o751, "dir/new": 0o640} {
		if _, err := s.pushStream(t, w, rdmatest.Faults{}, []byte("data"), 0, name, w.streamOptions(t)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		st, err := os.Stat(filepath.Join(s.root, name))
		if err != nil || st.Mode() != mode || st.Size() != 4 || st.ModTime().Before(start) {
			t.Errorf("%s: %v, %v", name, st, err)
		}
	}
	for _, tc := range []struct {
		name  string
		usage bool
	}{{"dir", false}, {"", true}, {"/", true}, {"dir/", true}, {"dir/.", true}, {"dir/..", true}, {"none/new", false}} {
		if _, err := s.pushStream(t, w, rdmatest.Faults{}, []byte("data"), 0, tc.name, w.streamOptions(t)); err == nil || errors.Is(err, xfer.ErrUsage) != tc.usage {
			t.Errorf("%q: %v", tc.name, err)
		}
	}
	if _, _, err := s.pullStream(t, w, "dir", 0, w.streamOptions(t)); err == nil {
		t.Error("a directory was written as a stream")
	}
}

func TestStreamUsage(t *testing.T) {
	w := tcpWay(t)
	for name, set := range map[string]func(*xfer.Options){
		"recursive": func(o *xfer.Options) { o.Recursive = true },
		"modes":     func(o *xfer.Options) { o.Perms = true },
		"times":     func(o *xfer.Options) { o.Times = true },
		"owners":    func(o *xfer.Options) { o.Owner = true },
		"manifest":  func(o *xfer.Options) { o.Manifest = "m" },
		"dry run":   func(o *xfer.Options) { o.DryRun = true },
		"update":    func(o *xfer.Options) { o.Update = true },
		"gpu":       func(o *xfer.Options) { o.GPU = "auto" },
	} {
		o := w.streamOptions(t)
		set(&o)
		_, pushErr := w.client(rdmatest.Faults{}).PushStream(t.Context(), newStream(), xfer.Endpoint{}, "f", o)
		_, pullErr := w.client(rdmatest.Faults{}).PullStream(t.Context(), xfer.Endpoint{}, "f", newStream(), o)
		if !errors.Is(pushErr, xfer.ErrUsage) || !errors.Is(pullErr, xfer.ErrUsage) {
			t.Errorf("%s: %v, %v", name, pushErr, pullErr)
		}
	}
	for name, set := range map[string]func(*xfer.Options){
		"write manifest": func(o *xfer.Options) { o.WriteManifest = "m" },
		"remote gpu":     func(o *xfer.Options) { o.RemoteGPU = "0" },
	} {
		o := w.streamOptions(t)
		set(&o)
		if _, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), newStream(), xfer.Endpoint{}, "f", o); !errors.Is(err, xfer.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Holes of a file are zeros in a stream, and a manifest is written beside one.
func TestStreamOfASparseFile(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	name := filepath.Join(s.root, "f")
	write(t, name, []byte("begin"))
	f, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("middle"), 20<<20+5); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Truncate(40<<20+1), f.Close()); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var seen sync.Once
	bad := w
	bad.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (offset int, yes bool) {
		if isPayload(p) {
			seen.Do(func() { yes = true })
		}
		return 0, yes
	}})
	from := serve(t, bad)
	if err := os.Rename(name, filepath.Join(from.root, "f")); err != nil {
		t.Fatal(err)
	}
	o := w.streamOptions(t)
	o.WriteManifest = filepath.Join(t.TempDir(), "m")
	got, sum, err := from.pullStream(t, bad, "f", 0, o)
	if err != nil || !bytes.Equal(got, want) || sum.Repairs != 1 || sum.WireBytes > 10<<20 {
		t.Errorf("%d bytes, %+v, %v", len(got), sum, err)
	}
	m, err := manifest.Open(o.WriteManifest)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if e, err := m.Next(); err != nil || e.Size != int64(len(want)) {
		t.Errorf("the manifest has %+v, %v", e, err)
	}
}

// A file that changes while it is streamed makes the copy a partial one.
func TestStreamOfAChangingFile(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	path := filepath.Join(s.root, "f")
	write(t, path, randomBytes(t, 20<<20))
	out := newStream()
	d := &drained{done: make(chan struct{})}
	go func() {
		defer close(d.done)
		_, _ = io.CopyN(&d.got, out.PipeReader, 1) // the source has not read all of it
		g, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
		if err == nil {
			_, err = g.WriteString("more")
			err = errors.Join(err, g.Close())
		}
		if err != nil {
			t.Error(err)
		}
		_, _ = io.Copy(&d.got, out.PipeReader)
	}()
	o := w.streamOptions(t)
	o.Slots = 2
	sum, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), s.ep, "f", out, o)
	out.PipeWriter.Close()
	<-d.done
	if err != nil || sum.Changed != 1 || d.got.Len() >= 20<<20 {
		t.Errorf("%d bytes, %+v, %v", d.got.Len(), sum, err)
	}
}
