package dest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// tellingDisk stands before the kernel's calls and tells errors as the kernel
// does: one of writing back once to syncfs, whoever's it is, and once to fsync of
// the file or directory that it is of.
type tellingDisk struct {
	t  *testing.T
	at func(path string) manifest.Inode

	mu     sync.Mutex
	syncfs []error                           // of the next calls; then nil
	fsync  map[manifest.Inode]error          // told once
	always map[manifest.Inode]error          // told each time
	flush  map[manifest.Inode]error          // told once
	calls  map[string]int                    // by name
	asked  map[string]map[manifest.Inode]int // by name of the call and what it was of
}

// onDisk has a sink's calls go by way of a tellingDisk.
func onDisk(t *testing.T, s *Sink, dir string) *tellingDisk {
	t.Helper()
	d := &tellingDisk{
		t: t, fsync: make(map[manifest.Inode]error), always: make(map[manifest.Inode]error), flush: make(map[manifest.Inode]error),
		calls: make(map[string]int), asked: map[string]map[manifest.Inode]int{"fsync": {}, "syncfs": {}, "flush": {}},
	}
	d.at = func(path string) manifest.Inode {
		var st unix.Stat_t
		if err := unix.Lstat(dir+"/"+path, &st); err != nil {
			t.Fatal(err)
		}
		return fileset.InodeOf(&st)
	}
	s.deviceOf(s.base).flushesEarly = false // wherever TMPDIR is
	kernel := kernelCalls()
	s.calls = diskCalls{
		fsync: func(fd int) error { return d.ask("fsync", fd, d.fsync, kernel.fsync) },
		flush: func(fd int) error { return d.ask("flush", fd, d.flush, kernel.flush) },
		syncfs: func(fd int) error {
			err := d.ask("syncfs", fd, nil, kernel.syncfs)
			d.mu.Lock()
			defer d.mu.Unlock()
			if len(d.syncfs) > 0 {
				err, d.syncfs = d.syncfs[0], d.syncfs[1:]
			}
			return err
		},
	}
	return d
}

func (d *tellingDisk) ask(name string, fd int, once map[manifest.Inode]error, call func(fd int) error) error {
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		d.t.Error(err)
	}
	id := fileset.InodeOf(&st)
	d.mu.Lock()
	d.calls[name]++
	d.asked[name][id]++
	err := once[id]
	delete(once, id)
	if err == nil && name == "fsync" {
		err = d.always[id]
	}
	d.mu.Unlock()
	if err != nil {
		return err
	}
	return call(fd)
}

func beginAll(t *testing.T, s *Sink, names ...string) []*Temp {
	t.Helper()
	temps := make([]*Temp, 0, len(names))
	for _, name := range names {
		temp, err := begin(s, fileEntry(name, name), name)
		if err != nil {
			t.Fatal(err)
		}
		temps = append(temps, temp)
	}
	return temps
}

func (t *Temp) inode() manifest.Inode { return fileset.InodeOf(&t.made) }

func mkdirs(t *testing.T, s *Sink, names ...string) {
	t.Helper()
	for _, name := range names {
		if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: name, Mode: 0o755}, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func wantFailed(t *testing.T, temps []*Temp, errs []error, failed ...string) {
	t.Helper()
	for i, err := range errs {
		want := slices.Contains(failed, temps[i].path)
		if (err != nil) != want || want && !errors.Is(err, unix.EIO) {
			t.Errorf("%s: %v", temps[i].path, err)
		}
	}
}

// TestErrorIsOfItsOwnFile: the error that syncfs tells one batch is of a file
// that is published with the next one, and syncfs says nothing of it any more.
func TestErrorIsOfItsOwnFile(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	disk := onDisk(t, s, dir)
	treetest.MakeTree(t, dir, "damaged=old", "mine=old")
	early, late := beginAll(t, s, "a", "b", "mine"), beginAll(t, s, "c", "damaged", "d")
	disk.fsync[early[2].inode()], disk.fsync[late[1].inode()] = unix.EIO, unix.EIO
	disk.syncfs = []error{unix.EIO}
	wantFailed(t, early, s.Publish(early), "mine")
	wantFailed(t, late, s.Publish(late), "damaged")
	if disk.calls["syncfs"] != 1 {
		t.Errorf("%d calls of syncfs, the first one told an error", disk.calls["syncfs"])
	}
	if err := s.FinishDirs(); err != nil {
		t.Error(err)
	}
	treetest.WantTree(t, dir, "a=a", "b=b", "c=c", "d=d", "damaged=old", "mine=old")
}

// TestErrorInTheSyncOfNames: what syncfs tells after the renames may be of the
// data of a file that is still being written, or of a directory.
func TestErrorInTheSyncOfNames(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	disk := onDisk(t, s, dir)
	mkdirs(t, s, "d1", "d2", "d3", "d4", "d5", "d5/deep")
	temps := beginAll(t, s, "d1/f", "d2/f", "d3/f", "d4/f", "d5/deep/f")
	later := beginAll(t, s, "later", "also")
	disk.fsync[later[0].inode()] = unix.EIO
	disk.fsync[disk.at("d2")] = unix.EIO
	disk.syncfs = []error{nil, unix.EIO}
	wantFailed(t, temps, s.Publish(temps), "d2/f")
	if disk.asked["fsync"][disk.at("d5/deep")] != 1 || disk.asked["fsync"][disk.at("d5")] != 0 {
		t.Error("the directories of the files are to be synced, and no others: the rest was synced with the data")
	}
	wantFailed(t, later, s.Publish(later), "later")
	if err := s.FinishDirs(); err != nil {
		t.Error(err)
	}
}

// TestDirectoryThatIsLost: an error of a directory is of the files in it and
// below, and of the copy where other names were made in it, though it is told once.
func TestDirectoryThatIsLost(t *testing.T) {
	for _, tells := range []bool{true, false} {
		t.Run(fmt.Sprintf("syncfs tells %t", tells), func(t *testing.T) {
			treetest.NoLeaks(t)
			dir := t.TempDir()
			s := sinkInto(t, dir, Options{})
			disk := onDisk(t, s, dir)
			s.deviceOf(s.base).tells = tells
			mkdirs(t, s, "good", "bad", "bad/below")
			temps := beginAll(t, s, "good/f", "bad/below/f")
			disk.fsync[disk.at("bad")] = unix.EIO
			disk.syncfs = []error{unix.EIO}
			wantFailed(t, temps, s.Publish(temps), "bad/below/f")
			for range 2 {
				if err := s.FinishDirs(); !errors.Is(err, unix.EIO) || !strings.Contains(err.Error(), `"bad"`) {
					t.Errorf("at the end: %v", err)
				}
			}
		})
	}
}

// TestErrorAtTheEnd: what the last syncfs tells is asked for, directory by
// directory.
func TestErrorAtTheEnd(t *testing.T) {
	for _, lost := range []bool{false, true} {
		dir := t.TempDir()
		s := sinkInto(t, dir, Options{})
		disk := onDisk(t, s, dir)
		mkdirs(t, s, "d", "gone")
		if err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: "d/link", Target: "x"}, nil); err != nil {
			t.Fatal(err)
		}
		mkdirs(t, s, "gone/below")
		if err := errors.Join(unix.Rmdir(dir+"/gone/below"), unix.Rmdir(dir+"/gone")); err != nil {
			t.Fatal(err)
		}
		disk.syncfs = []error{unix.EIO}
		if lost {
			disk.fsync[disk.at("d")] = unix.EIO
		}
		if err := s.FinishDirs(); errors.Is(err, unix.EIO) != lost || !errors.Is(err, ErrMoved) {
			t.Errorf("lost %t: %v", lost, err)
		}
		if disk.asked["fsync"][disk.at("d")] != 1 || disk.asked["fsync"][disk.at(".")] != 1 {
			t.Error("not all directories were asked for")
		}
	}
}

// TestSyncedByThemselves: where syncfs does not say that all is on the disk, each
// file is flushed and synced, and so is each directory.
func TestSyncedByThemselves(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	disk := onDisk(t, s, dir)
	s.deviceOf(s.base).tells = false
	mkdirs(t, s, "d")
	treetest.MakeTree(t, dir, "unflushed=old", "unsynced=old")
	names := []string{"unflushed", "unsynced", "d/whole"}
	for i := range 40 { // more than are synced at once
		names = append(names, fmt.Sprintf("f%d", i))
	}
	temps := beginAll(t, s, names...)
	disk.flush[temps[0].inode()], disk.fsync[temps[1].inode()] = unix.EIO, unix.EIO
	wantFailed(t, temps, s.Publish(temps), "unflushed", "unsynced")
	for i, temp := range temps {
		if disk.asked["flush"][temp.inode()] != 1 || (disk.asked["fsync"][temp.inode()] == 1) != (i != 0) {
			t.Errorf("%s: flushed %d times, synced %d times", temp.path, disk.asked["flush"][temp.inode()], disk.asked["fsync"][temp.inode()])
		}
	}
	for _, d := range []string{".", "d"} {
		if disk.asked["fsync"][disk.at(d)] != 1 {
			t.Errorf("directory %s: synced %d times", d, disk.asked["fsync"][disk.at(d)])
		}
	}
	if disk.calls["syncfs"] != 0 {
		t.Error("syncfs, which tells nothing here")
	}
	if got := treetest.ListTree(t, dir); !slices.Contains(got, "unflushed=old") || !slices.Contains(got, "unsynced=old") {
		t.Error("a file that is not on the disk has replaced another one")
	}
}

// TestClosedDirectoriesAreNotOpenedAgain: one that is synced when it gets its
// final mode is not asked for again: its owner may not open it any more.
func TestClosedDirectoriesAreNotOpenedAgain(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}})
	disk := onDisk(t, s, dir)
	d := s.deviceOf(s.base)
	d.tells = false
	for _, name := range []string{"closed", "closed/below"} {
		if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: name, Mode: 0o300}, nil); err != nil {
			t.Fatal(err)
		}
	}
	mkdirs(t, s, "closed/below/deep", "e")
	if err := s.SettleDirs("e"); err != nil {
		t.Fatal(err)
	}
	if want := len(".") + unsyncedDirBytes; len(d.unsynced) != 1 || d.unsyncedBytes != want {
		t.Errorf("%v are left to be synced, %d bytes, and not %d", d.unsynced, d.unsyncedBytes, want)
	}
	if err := s.FinishDirs(); err != nil {
		t.Error(err)
	}
	for _, path := range []string{"closed", "closed/below", "closed/below/deep", "."} {
		if n := disk.asked["fsync"][disk.at(path)]; n != 1 {
			t.Errorf("directory %s: synced %d times", path, n)
		}
	}
}

// TestFlushedWithoutSync: what a file system says when a file is closed is asked
// for before the rename also where nothing is synced.
func TestFlushedWithoutSync(t *testing.T) {
	for _, tells := range []bool{true, false} {
		dir := t.TempDir()
		s := sinkInto(t, dir, Options{NoFsync: true})
		disk := onDisk(t, s, dir)
		s.deviceOf(s.base).tells = tells
		treetest.MakeTree(t, dir, "bad=old")
		temps := beginAll(t, s, "good", "bad")
		disk.flush[temps[1].inode()] = unix.EIO
		var failed []string
		want := []string{"good=good", "bad=bad"}
		if !tells { // a file system of its own disk says nothing then
			failed, want[1] = []string{"bad"}, "bad=old"
		}
		wantFailed(t, temps, s.Publish(temps), failed...)
		if err := s.FinishDirs(); err != nil || disk.calls["fsync"]+disk.calls["syncfs"] > 0 {
			t.Errorf("%v, calls %v", err, disk.calls)
		}
		treetest.WantTree(t, dir, want...)
	}
}

// TestDirectoriesThatCannotBeSynced: that is no error of what is in them.
func TestDirectoriesThatCannotBeSynced(t *testing.T) {
	for _, errno := range []unix.Errno{unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS} {
		for _, tells := range []bool{true, false} {
			dir := t.TempDir()
			s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}})
			disk := onDisk(t, s, dir)
			s.deviceOf(s.base).tells = tells
			mkdirs(t, s, "d")
			disk.always[disk.at(".")], disk.always[disk.at("d")] = errno, errno
			temps := beginAll(t, s, "one")
			wantFailed(t, temps, s.Publish(temps))
			temps = beginAll(t, s, "two", "d/three")
			wantFailed(t, temps, s.Publish(temps))
			if err := s.FinishDirs(); err != nil {
				t.Errorf("%v: %v", errno, err)
			}
		}
	}
}

// TestQuietKernels: before Linux 5.17 syncfs says 0 also where a journal failed;
// fsync tells.
func TestQuietKernels(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	disk := onDisk(t, s, dir)
	d := s.deviceOf(s.base)
	d.keepsQuiet = true
	mkdirs(t, s, "d")
	disk.always[disk.at(".")], disk.always[disk.at("d")] = unix.EIO, unix.EIO
	if err := s.FinishDirs(); !errors.Is(err, unix.EIO) {
		t.Error(err)
	}
}

// TestSyncsOfAnOrdinaryDisk: a batch costs one sync for its data and one for its
// names, however many files it has.
func TestSyncsOfAnOrdinaryDisk(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	d := s.deviceOf(s.base)
	if !d.tells || d.keepsQuiet {
		t.Skip("TMPDIR is on a file system, or the kernel is one, where syncfs does not tell all: set TMPDIR to a directory on ext4, XFS, btrfs, f2fs or tmpfs")
	}
	disk := onDisk(t, s, dir)
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("f%03d", i)
	}
	temps := beginAll(t, s, names...)
	wantFailed(t, temps, s.Publish(temps))
	if disk.calls["syncfs"] != 1 || disk.calls["fsync"] != 1 || disk.calls["flush"] != 0 {
		t.Errorf("1000 files: %v", disk.calls)
	}
}

// TestUnsyncedIsBounded: what is remembered of directories that are not synced
// does not grow with the tree.
func TestUnsyncedIsBounded(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	disk := onDisk(t, s, dir)
	mkdirs(t, s, "bad")
	disk.fsync[disk.at("bad")] = unix.EIO
	disk.syncfs = []error{unix.EIO}
	d := s.deviceOf(s.base)
	h, err := s.dir("bad")
	if err != nil {
		t.Fatal(err)
	}
	s.markUnsynced(h)
	h.release()
	for i := range 3 * maxUnsyncedBytes / 200 {
		s.markUnsynced(&dirHandle{Dir: dirs.Dir{Inode: s.base.Inode, Path: fmt.Sprintf("%0200d", i)}})
		if d.unsyncedBytes > maxUnsyncedBytes {
			t.Fatalf("%d bytes are remembered", d.unsyncedBytes)
		}
	}
	if err := s.FinishDirs(); !errors.Is(err, unix.EIO) {
		t.Errorf("what was found out on the way is forgotten: %v", err)
	}
}
