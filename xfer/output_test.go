package xfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A new file has the mode that a redirection would give it, and one that is replaced keeps its own.
// Anything that is not a file name is refused.
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
		"basis":     func(o *xfer.Options) { o.BasisManifest = "m" },
		"partials":  func(o *xfer.Options) { o.PartialDir = "d" },
		"recheck":   func(o *xfer.Options) { o.Recheck = true },
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
	for name, set := range map[string]func(*xfer.Options){
		"verify written": func(o *xfer.Options) { o.VerifyWritten = true },
		"io":             func(o *xfer.Options) { o.IO = fileset.IODirect },
	} {
		o := w.streamOptions(t)
		set(&o)
		if _, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), xfer.Endpoint{}, "f", newStream(), o); !errors.Is(err, xfer.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
