package chunker

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fusetest"
	"gdrcp/manifest"
)

// TestStampOfRememberedFile: a file that changes at its server while it is read is seen to
// have changed, and one that is compared not to stand, though the kernel remembers what they were.
func TestStampOfRememberedFile(t *testing.T) {
	below := t.TempDir()
	makeTree(t, below, "f=before")
	seen := fusetest.MountRemembered(t, below)
	f, err := openLocal(t, false, Source{Path: seen + "/f", Name: "f"}).Open("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := sinkInto(t, seen, SinkOptions{})
	basis, err := s.OpenBasis(&manifest.Entry{Type: manifest.File, Path: "f", Size: 6, Mode: 0o644}, nil, 6)
	if err != nil {
		t.Fatal(err)
	}
	defer basis.Close()
	if now, err := f.Stamp(); err != nil || now != f.Opened() || !basis.Stands() {
		t.Fatalf("%+v, %v before the change; want %+v, and that it stands", now, err, f.Opened())
	}

	makeTree(t, below, "f=behind")
	if err := os.Chtimes(below+"/f", time.Time{}, time.Unix(1000, 0)); err != nil {
		t.Fatal(err)
	}
	if now, err := f.Stamp(); err != nil || now == f.Opened() {
		t.Errorf("%+v, %v after the change, as before", now, err)
	}
	if basis.Stands() {
		t.Error("it stands after the change")
	}
}

// TestStampNow: what is asked of the server, and what stat(2) tells, are the same.
func TestStampNow(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "f=content", "l>f")
	h, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, name := range []string{"", "f", "l"} {
		var st unix.Stat_t
		if err := fstatat(int(h.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH); err != nil {
			t.Fatal(err)
		}
		if now, err := stampNow(int(h.Fd()), name); err != nil || now != stampOf(&st) {
			t.Errorf("%q: %+v, %v; want %+v", name, now, err, stampOf(&st))
		}
	}
	if _, err := stampNow(int(h.Fd()), "none"); err != unix.ENOENT {
		t.Errorf("none: %v, want %v", err, unix.ENOENT)
	}
}
