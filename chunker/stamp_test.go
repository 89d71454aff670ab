package chunker

import (
	"context"
	"errors"
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

// TestFreshFor: who waits, and how long.
func TestFreshFor(t *testing.T) {
	now := time.Unix(1000, 0)
	for age, want := range map[time.Duration]time.Duration{
		-time.Hour: 0, -1: 0, 0: 20 * time.Millisecond, 5 * time.Millisecond: 15 * time.Millisecond,
		20*time.Millisecond - 1: 1, 20 * time.Millisecond: 0, time.Hour: 0,
	} {
		if got := (Stamp{CtimeNs: now.Add(-age).UnixNano()}).freshFor(now); got != want {
			t.Errorf("changed %v ago: %v, want %v", age, got, want)
		}
	}
}

// TestAgedStamp: a file that has just been made is read later, an old one at once, and a
// wait ends where the work is to.
func TestAgedStamp(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "f=content")
	tree := openLocal(t, false, Source{Path: dir + "/f", Name: "f"})
	s := sinkInto(t, dir, SinkOptions{})
	changed := func() int64 {
		if err := os.Chmod(dir+"/f", 0o644); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(dir+"/f", &st); err != nil {
			t.Fatal(err)
		}
		return nanoseconds(st.Ctim)
	}
	is := func(what string, ctimeNs int64) {
		if age := time.Now().UnixNano() - ctimeNs; age < int64(freshAge) {
			t.Errorf("%s %d ns after its last change", what, age)
		}
	}
	at := changed()
	f, err := tree.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	now, err := f.AgedStamp(nil)
	is("read", at)
	if err != nil || now != f.Opened() || f.IsFresh() {
		t.Errorf("%+v, %v, fresh: %v", now, err, f.IsFresh())
	}
	stopped := make(chan struct{})
	close(stopped)
	if now, err := f.AgedStamp(stopped); err != nil || now != f.Opened() {
		t.Errorf("an old file: %+v, %v", now, err)
	}
	for err = nil; err == nil; { // a busy machine may find the stamp old
		err = Stamp{CtimeNs: time.Now().UnixNano()}.awaitAge(stopped)
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("stopped: %v", err)
	}

	at = changed()
	basis, err := s.OpenBasis(&manifest.Entry{Type: manifest.File, Path: "f", Size: 7, Mode: 0o644}, nil, 7)
	if err != nil {
		t.Fatal(err)
	}
	defer basis.Close()
	is("compared", at)
}
