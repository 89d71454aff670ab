package dest

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/disktest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// TestStampOfRememberedFile: a file that changes at its server while it is read is seen to
// have changed, and one that is compared not to stand, though the kernel remembers what they were.
func TestStampOfRememberedFile(t *testing.T) {
	below := t.TempDir()
	treetest.MakeTree(t, below, "f=before")
	seen := fusetest.MountRemembered(t, below)
	f, err := treeAt(t, seen, false).Open("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s := sinkInto(t, seen, Options{})
	basis, err := s.OpenBasis(&manifest.Entry{Type: manifest.File, Path: "f", Size: 6, Mode: 0o644}, nil, 6)
	if err != nil {
		t.Fatal(err)
	}
	defer basis.Close()
	if now, err := f.Stamp(); err != nil || now != f.Opened() || !basis.Stands() {
		t.Fatalf("%+v, %v before the change; want %+v, and that it stands", now, err, f.Opened())
	}

	treetest.MakeTree(t, below, "f=behind")
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

// TestStampsOfWholeSeconds: on a file system with times of whole seconds a file that is
// rewritten within the second in which it was changed is seen to have changed.
func TestStampsOfWholeSeconds(t *testing.T) {
	dir := disktest.Mount(t, "1M", "mkfs.ext4", "-q", "-F", "-I", "128", "-O", "^has_journal")
	for name, opens := range map[string]func(t *testing.T) (changed func() bool){
		"source": func(t *testing.T) func() bool {
			f, err := treeAt(t, dir, false).Open("source")
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
			b, err := sinkInto(t, dir, Options{}).OpenBasis(&manifest.Entry{Type: manifest.File, Path: "basis", Size: 6, Mode: 0o644}, nil, 6)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(b.Close)
			return func() bool { return !b.Stands() }
		},
	} {
		treetest.MakeTree(t, dir, name+"=before")
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			changed := opens(t)
			if changed() {
				t.Error("it is seen to have changed before it does")
			}
			treetest.MakeTree(t, dir, name+"=behind")
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
	treetest.MakeTree(t, dir, "f=content")
	tree := treeAt(t, dir, false)
	s := sinkInto(t, dir, Options{})
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
		if age := time.Now().UnixNano() - ctimeNs; age < int64(20*time.Millisecond) {
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
		err = fileset.Stamp{CtimeNs: time.Now().UnixNano()}.AwaitAge(stopped)
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
