package xfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// An entry that cannot be read is reported once and is not missing, nor is anything in a directory
// that cannot be read. An entry that is no longer a file does not match the manifest.
func TestGivenManifestOfWhatCannotBeRead(t *testing.T) { over(t, testGivenManifestOfWhatCannotBeRead) }

func testGivenManifestOfWhatCannotBeRead(t *testing.T, w way) {
	s := serve(t, w)
	src, elsewhere := filepath.Join(s.root, "src"), filepath.Join(s.root, "elsewhere")
	for _, name := range []string{"1", "2", "sub/3"} {
		write(t, filepath.Join(elsewhere, name), []byte(name))
	}
	for _, name := range []string{"a", "d-e", "fifo", "z"} {
		write(t, filepath.Join(src, name), []byte(name))
	}
	link := func(target, name string) {
		t.Helper()
		_ = os.Remove(filepath.Join(src, name))
		if err := os.Symlink(target, filepath.Join(src, name)); err != nil {
			t.Fatal(err)
		}
	}
	link("../elsewhere", "d")
	link("../elsewhere/1", "f")
	o := w.options(t)
	o.Follow, o.WriteManifest = true, filepath.Join(t.TempDir(), "m")
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "first", o); err != nil {
		t.Fatal(err)
	}
	o.Manifest, o.WriteManifest = o.WriteManifest, ""

	link(".", "d") // a loop: a directory that cannot be read
	link("nowhere", "f")
	if err := errors.Join(os.Remove(filepath.Join(src, "fifo")), syscall.Mkfifo(filepath.Join(src, "fifo"), 0o600)); err != nil {
		t.Fatal(err)
	}
	check := func(what string, sum *xfer.Summary, err error) {
		t.Helper()
		if err != nil || sum.Failed != 2 || sum.Corrupt != 1 || sum.Skipped != 0 || sum.Missing != 0 || sum.Files != 3 {
			t.Errorf("%s: %v, %+v", what, err, sum)
		}
	}
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "second", o)
	check("push", sum, err)
	sum, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"src"}, filepath.Join(t.TempDir(), "out"), o)
	check("pull", sum, err)

	// An entry next to it that is gone is still missing.
	if err := os.Remove(filepath.Join(src, "d-e")); err != nil {
		t.Fatal(err)
	}
	if sum, err = w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "third", o); err != nil || sum.Missing != 1 {
		t.Errorf("%v, %+v", err, sum)
	}
}

// A manifest is read twice: one that cannot be is refused before anything is done.
func TestGivenManifestThatIsNoFile(t *testing.T) {
	w := tcpWay(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"-", fifo, "/"} {
		o := w.options(t)
		o.Manifest = name
		if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{t.TempDir()}, xfer.Endpoint{Host: "127.0.0.1", Port: 1}, "x", o); !errors.Is(err, xfer.ErrUsage) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGivenManifest(t *testing.T) { over(t, testGivenManifest) }

func testGivenManifest(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	makeTree(t, src)
	m := filepath.Join(t.TempDir(), "m.zst")
	o := w.options(t)
	o.WriteManifest = m
	first, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := manifest.Open(m)
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := r.Next(); err != nil {
			break
		}
	}
	if r.Summary().Content != first.Content {
		t.Errorf("the manifest has root %x, the copy %x", r.Summary().Content, first.Content)
	}
	r.Close()

	// The same tree matches it, in both directions.
	o = w.options(t)
	o.Manifest = m
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "again", o); err != nil {
		t.Fatal(err)
	}
	sameTree(t, src, filepath.Join(s.root, "again"))

	// A changed byte, a file more and a file less do not match.
	big := filepath.Join(src, "big", "1048577")
	data, err := os.ReadFile(big)
	if err != nil {
		t.Fatal(err)
	}
	data[1<<20] ^= 1
	write(t, big, data)
	write(t, filepath.Join(src, "more"), []byte("more"))
	if err := os.Remove(filepath.Join(src, "one")); err != nil {
		t.Fatal(err)
	}
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "third", o)
	if err != nil || sum.Corrupt != 2 || sum.Missing != 1 {
		t.Errorf("push: %v, %+v", err, sum)
	}
	os.Rename(src, filepath.Join(s.root, "source"))
	dst := filepath.Join(t.TempDir(), "pulled")
	sum, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"source"}, dst, o)
	if err != nil || sum.Corrupt != 2 || sum.Missing != 1 {
		t.Errorf("pull: %v, %+v", err, sum)
	}
	for _, dir := range []string{filepath.Join(s.root, "third"), dst} {
		notPublished(t, dir, "more")
		notPublished(t, dir, "big/1048577")
	}
}
