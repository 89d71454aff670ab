package xfer_test

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
)

// Holes of a file are zeros in a stream, and a manifest is written with one.
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

// If a file changes while it is streamed, the copy is a partial one.
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
