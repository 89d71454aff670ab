package chunker

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
)

func openFile(t *testing.T, dir, name string) *File {
	t.Helper()
	f, err := openLocal(t, false, Source{dir, "."}).Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFileReadAt(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=0123456789")
	f := openFile(t, dir, "f")
	f.AdviseSequential()
	for _, test := range []struct {
		off  int64
		n    int
		want string
		err  error
	}{
		{0, 10, "0123456789", nil}, {3, 4, "3456", nil}, {8, 4, "89", io.ErrUnexpectedEOF},
		{10, 1, "", io.ErrUnexpectedEOF}, {99, 1, "", io.ErrUnexpectedEOF}, {4, 0, "", nil}, {-1, 2, "", unix.EINVAL},
	} {
		p := make([]byte, test.n)
		n, err := f.ReadAt(p, test.off)
		if string(p[:n]) != test.want || !errors.Is(err, test.err) {
			t.Errorf("%+v: %q, %v", test, p[:n], err)
		}
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
}

func TestFileStampTellsChanges(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=0123456789", "other=0123456789")
	stamp := func() fileset.Stamp {
		s, err := openFile(t, dir, "f").Stamp()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	path := filepath.Join(dir, "f")
	for name, change := range map[string]func() error{
		"written":  func() error { return os.WriteFile(path, []byte("9876543210"), 0) },
		"cut":      func() error { return os.Truncate(path, 3) },
		"replaced": func() error { return os.Rename(filepath.Join(dir, "other"), path) },
		"time set back": func() error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{{}, {}}, 0)
		},
	} {
		before := stamp()
		// The kernel's clock for files ticks every few milliseconds.
		for end := before.CtimeNs + 20e6; ; {
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil || now.Nano() > end {
				break
			}
		}
		if stamp() != before {
			t.Errorf("%s: differs beforehand", name)
		}
		if err := change(); err != nil {
			t.Fatal(err)
		}
		if stamp() == before {
			t.Errorf("%s: same stamp", name)
		}
	}
}

func TestFileData(t *testing.T) {
	dir := treetest.FastDir(t)
	const block = 64 << 10 // more than any file system's unit of allocation here
	out, err := os.Create(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	data := bytes.Repeat([]byte("x"), block)
	for _, at := range []int64{1, 2, 5} {
		if _, err := out.WriteAt(data, at*block); err != nil {
			t.Fatal(err)
		}
	}
	if err := out.Truncate(8 * block); err != nil {
		t.Fatal(err)
	}
	f := openFile(t, dir, "f")
	for _, test := range []struct{ off, end, start, stop int64 }{
		{0, 8, 1, 3}, {2, 8, 2, 3}, {3, 8, 5, 6}, {0, 2, 1, 2}, {0, 1, 1, 1}, {6, 8, 8, 8}, {3, 5, 5, 5},
		{8, 8, 8, 8}, {9, 10, 10, 10}, {4, 3, 3, 3},
	} {
		start, stop, err := f.Data(test.off*block, test.end*block)
		if err != nil || start != test.start*block || stop != test.stop*block {
			t.Errorf("%+v: %d, %d (of %d), %v", test, start, stop, block, err)
		}
		if start, err := f.DataFrom(test.off*block, test.end*block); err != nil || start != test.start*block {
			t.Errorf("%+v: data from %d (of %d), %v", test, start, block, err)
		}
	}
}

func TestOpenNeverFollowsASwappedFile(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "in/", "in/d/", "in/d/f=", "secret=key")
	tree := openLocal(t, false, Source{dir + "/in", "."})
	paths, _ := walkAll(t, tree, true)
	if len(paths) != 3 {
		t.Fatal(paths)
	}
	path := filepath.Join(dir, "in/d/f")
	for name, put := range map[string]func() error{
		"link":      func() error { return os.Symlink("../../secret", path) },
		"fifo":      func() error { return unix.Mkfifo(path, 0o644) },
		"directory": func() error { return os.Mkdir(path, 0o755) },
	} {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := put(); err != nil {
			t.Fatal(err)
		}
		if f, err := tree.Open("d/f"); !errors.Is(err, fileset.ErrChanged) {
			t.Errorf("%s: %v, %v", name, f, err)
		}
	}
}

// TestOpenWaitsForALease: a file server that holds one is told to give it up,
// and then does.
func TestOpenWaitsForALease(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=x")
	told := make(chan os.Signal, 1)
	signal.Notify(told, unix.SIGUSR1)
	defer signal.Stop(told)
	holder, err := os.OpenFile(dir+"/f", os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	lease := func(kind int) error {
		_, err := unix.FcntlInt(holder.Fd(), unix.F_SETLEASE, kind)
		return err
	}
	if _, err := unix.FcntlInt(holder.Fd(), unix.F_SETSIG, int(unix.SIGUSR1)); err != nil {
		t.Fatal(err)
	}
	if err := lease(unix.F_WRLCK); err != nil {
		t.Skipf("no lease can be had on the temporary directory: %v", err)
	}
	var givenUp atomic.Bool
	gave := make(chan error, 1)
	go func() {
		<-told
		time.Sleep(3 * leasePause)
		givenUp.Store(true)
		gave <- lease(unix.F_UNLCK)
	}()
	f, err := openLocal(t, false, Source{Path: dir, Name: "."}).Open("f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if !givenUp.Load() {
		t.Error("the file was opened while another had a lease on it")
	}
	if err := <-gave; err != nil {
		t.Error(err)
	}
}

func TestReadEnd(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "empty=", "f=0123456789")
	tree := openLocal(t, false, Source{dir, "."})
	for _, c := range []struct {
		name   string
		off    int64
		length int
		want   string
		goesOn bool
		err    error
	}{
		{"empty", 0, 0, "", false, nil},
		{"empty", 0, 1, "", false, io.ErrUnexpectedEOF},
		{"f", 0, 0, "", true, nil},
		{"f", 0, 9, "012345678", true, nil},
		{"f", 0, 10, "0123456789", false, nil},
		{"f", 6, 4, "6789", false, nil},
		{"f", 6, 5, "", false, io.ErrUnexpectedEOF},
	} {
		f, err := tree.Open(c.name)
		if err != nil {
			t.Fatal(err)
		}
		p := make([]byte, c.length)
		goesOn, err := f.ReadEnd(p, c.off)
		if !errors.Is(err, c.err) || goesOn != c.goesOn || err == nil && string(p) != c.want {
			t.Errorf("%+v: %q, %v, %v", c, p, goesOn, err)
		}
		f.Close()
	}
}
