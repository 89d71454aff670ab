package chunker

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/disktest"
	"gdrcp/internal/fsys"
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
		if err := fsys.Fstatat(int(h.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH); err != nil {
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
	const ms, whole = time.Millisecond, 1_700_000_000 * time.Second
	for _, c := range []struct {
		ctime, mtime, age, want time.Duration
	}{
		{whole + ms, 0, 0, 20 * ms}, {whole + ms, 0, 5 * ms, 15 * ms},
		{whole + ms, 0, 20*ms - 1, 1}, {whole + ms, 0, 20 * ms, 0}, {whole + ms, 0, time.Hour, 0},
		{whole + ms, 0, -1, 20 * ms}, {whole + ms, 0, -time.Hour, 20 * ms}, // in the future
		{whole, ms, 5 * ms, 15 * ms}, // its mtime shows a change
		{whole + time.Second, 0, 0, 1020 * ms}, {whole + time.Second, whole, 1019 * ms, ms}, {whole + time.Second, 0, 1020 * ms, 0},
		{whole, 0, 0, 2020 * ms}, {whole, 0, 1500 * ms, 520 * ms}, {whole, 0, 2020 * ms, 0}, // even: FAT
		{whole + time.Second, 0, -time.Hour, 1020 * ms},
		{0, 0, 1 << 62, 0},
	} {
		s := Stamp{CtimeNs: int64(c.ctime), MtimeNs: int64(c.mtime)}
		if got := s.freshFor(time.Unix(0, int64(c.ctime+c.age))); got != c.want {
			t.Errorf("mtime %d, changed at %d, %v ago: %v, want %v", c.mtime, c.ctime, c.age, got, c.want)
		}
	}
}

// TestStampsOfWholeSeconds: on a file system with times of whole seconds a file that is
// rewritten within the second in which it was changed is seen to have changed.
func TestStampsOfWholeSeconds(t *testing.T) {
	dir := disktest.Mount(t, "1M", "mkfs.ext4", "-q", "-F", "-I", "128", "-O", "^has_journal")
	for name, opens := range map[string]func(t *testing.T) (changed func() bool){
		"source": func(t *testing.T) func() bool {
			f, err := openLocal(t, false, Source{Path: dir + "/source", Name: "source"}).Open("source")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { f.Close() })
			was, err := f.AgedStamp(nil)
			if err != nil {
				t.Fatal(err)
			}
			return func() bool {
				now, err := f.Stamp()
				return err == nil && now != was
			}
		},
		"basis": func(t *testing.T) func() bool {
			b, err := sinkInto(t, dir, SinkOptions{}).OpenBasis(&manifest.Entry{Type: manifest.File, Path: "basis", Size: 6, Mode: 0o644}, nil, 6)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
			return func() bool { return !b.Stands() }
		},
	} {
		makeTree(t, dir, name+"=before")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := opens(t)
			if changed() {
				t.Error("it is seen to have changed before it does")
			}
			makeTree(t, dir, name+"=behind")
			if !changed() {
				t.Error("it changed unseen")
			}
		})
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
		return fsys.Nanoseconds(st.Ctim)
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
