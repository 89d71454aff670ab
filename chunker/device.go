package chunker

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/internal/dirsync"
)

const (
	// maxDirSyncs is up to how many directories of a batch are synced one by one;
	// for more, a syncfs is cheaper.
	maxDirSyncs = 4
	// syncsAtOnce is how many files or directories are synced at once where each
	// is synced by itself: file systems put such syncs together, and those over a
	// network spend their time waiting.
	syncsAtOnce = 16
	// maxUnsyncedBytes bounds what is remembered of directories that are not
	// synced: their paths, and unsyncedDirBytes for each.
	maxUnsyncedBytes = 1 << 20
	unsyncedDirBytes = 64
)

// device is a file system that the sink writes to.
type device struct {
	// fd is of a directory on it, open since before the first write and as long
	// as the sink: syncfs(2) tells an error of writing back once to every open
	// file, but not to those that were opened after another was told.
	fd int
	// tells: a syncfs that says 0 has brought all that was written to the disk.
	tells bool
	// keepsQuiet: but what the file system itself says is told by fsync only.
	keepsQuiet bool
	// timeUnitNs is what it keeps times of change in where that is more than a
	// second, else 0.
	timeUnitNs int64
	// failed: a syncfs has told an error. That may be of any file, be it nobody's
	// here, and the next one will not tell it again: from then on every file and
	// directory is asked for by itself.
	failed atomic.Bool

	// Under the sink's mu:
	unsynced      map[string]struct{} // directories with names that are not synced
	unsyncedBytes int
	lost          error // the first of them that could not be synced
}

// syncsAlone: a syncfs is no answer to whether something is on the disk.
func (d *device) syncsAlone() bool { return !d.tells || d.failed.Load() }

// diskCalls are the system calls that say whether something is on the disk. Each
// is repeated where it was interrupted.
type diskCalls struct {
	fsync, syncfs func(fd int) error
	// flush has a network or FUSE file system say what it says when a file is
	// closed (close(2): "may report write errors"), while the file and its lock
	// stay.
	flush func(fd int) error
}

func kernelCalls() diskCalls {
	return diskCalls{
		fsync:  func(fd int) error { return uninterrupted(func() error { return unix.Fsync(fd) }) },
		syncfs: func(fd int) error { return uninterrupted(func() error { return unix.Syncfs(fd) }) },
		flush:  flushFD,
	}
}

// flushFD closes a second descriptor of an open file.
func flushFD(fd int) error {
	return uninterrupted(func() error {
		other, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return err
		}
		return unix.Close(other)
	})
}

// tellsBySyncfs reports whether a syncfs(2) that says 0 means that everything
// that was written to a file system of this type (statfs(2)) is on the disk. These
// write to a disk of their own and are known for it. Others are not, or known for
// the contrary: FUSE asks its server only where that is virtiofs or privileged
// (fuse_sync_fs in fs/fuse/inode.c); of the errors of the file system below,
// overlayfs tells by fsync only (ovl_sync_fs in fs/overlayfs/super.c); CIFS and 9p
// send what was written, but have their server sync it on fsync only.
func tellsBySyncfs(fsType int64) bool {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC, // and ext2, ext3
		unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC,
		unix.TMPFS_MAGIC, unix.RAMFS_MAGIC: // nothing is to reach a disk
		return true
	}
	return false
}

// kernelSyncs tells what syncfs(2) is good for in a kernel of that release: it
// tells errors of writing back since Linux 5.8 (syncfs(2)), and those of the file
// system's own sync, as of a journal that failed, since 5.17 (commit 5679897eb104).
func kernelSyncs(release string) (tells, keepsQuiet bool) {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false, false
	}
	since := func(wantMajor, wantMinor int) bool {
		return major > wantMajor || major == wantMajor && minor >= wantMinor
	}
	return since(5, 8), !since(5, 17)
}

// keepDevice keeps the file system of a directory open.
func (s *Sink) keepDevice(h *dirHandle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.devices[h.inode.Dev] != nil {
		return nil
	}
	d := &device{unsynced: make(map[string]struct{})}
	var st unix.Statfs_t
	var name unix.Utsname
	err := uninterrupted(func() error { return unix.Fstatfs(h.fd, &st) })
	if err == nil {
		err = unix.Uname(&name)
	}
	if err == nil {
		d.fd, err = unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	if err != nil {
		return opErr("keep open", s.entryPath(h.path), err)
	}
	d.tells, d.keepsQuiet = kernelSyncs(unix.ByteSliceToString(name.Release[:]))
	d.tells = d.tells && tellsBySyncfs(int64(st.Type))
	if st.Type == unix.MSDOS_SUPER_MAGIC {
		d.timeUnitNs = int64(coarsest)
	}
	s.devices[h.inode.Dev] = d
	return nil
}

func (s *Sink) deviceOf(h *dirHandle) *device {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.devices[h.inode.Dev]
}

// syncDevice brings all that was written to a file system to the disk, and
// reports whether that is sure. Under s.syncing: of two at once one would be told
// the error, and the other would go on before that is known. What is made
// meanwhile still counts as not synced.
func (s *Sink) syncDevice(d *device) bool {
	if d.syncsAlone() {
		return false
	}
	unsynced := s.takeUnsynced(d)
	err := s.calls.syncfs(d.fd)
	if err == nil && d.keepsQuiet {
		// A journal that failed, or a file system that was shut down, is so for good.
		err = dirsync.Outcome(s.calls.fsync(d.fd))
	}
	if err == nil {
		return true
	}
	d.failed.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	for path := range unsynced {
		d.note(path)
	}
	return false
}

// takeUnsynced returns the directories with names that are not synced, and
// forgets them.
func (s *Sink) takeUnsynced(d *device) map[string]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsynced := d.unsynced
	d.unsynced, d.unsyncedBytes = make(map[string]struct{}), 0
	return unsynced
}

// note adds a directory to those with names that are not synced. Under the
// sink's mu.
func (d *device) note(path string) {
	if _, is := d.unsynced[path]; !is {
		d.unsynced[path] = struct{}{}
		d.unsyncedBytes += len(path) + unsyncedDirBytes
	}
}

// forget is note's inverse.
func (d *device) forget(path string) {
	if _, is := d.unsynced[path]; is {
		delete(d.unsynced, path)
		d.unsyncedBytes -= len(path) + unsyncedDirBytes
	}
}

// lostDirs are directories that could not be synced, by their path.
type lostDirs map[string]error

// onTheWayTo is what went wrong with a directory, or one that leads to it.
func (l lostDirs) onTheWayTo(path string) error {
	for dir, err := range l {
		if dir == "." || dir == path || strings.HasPrefix(path, dir+"/") {
			return err
		}
	}
	return nil
}

// syncDirs brings the names in the given directories of a file system to the disk,
// and all other names that were made on it. Which directories could not be synced
// it returns; those with names of the others are remembered as lost, too: who is
// told of the error of a directory is the only one. Under s.syncing.
func (s *Sink) syncDirs(d *device, dirs []*dirHandle) lostDirs {
	s.mu.Lock()
	few := len(d.unsynced) == 0 && len(dirs) <= maxDirSyncs
	s.mu.Unlock()
	if !few && s.syncDevice(d) {
		return nil
	}
	unsynced := s.takeUnsynced(d)
	paths := make([]string, 0, len(dirs)+len(unsynced))
	for _, h := range dirs {
		paths = append(paths, h.path)
	}
	given := make(map[string]struct{}, len(dirs))
	for _, path := range paths {
		given[path] = struct{}{}
	}
	for path := range unsynced {
		if _, is := given[path]; !is {
			paths = append(paths, path)
		}
	}
	errs := make([]error, len(paths))
	atOnce(len(paths), func(i int) {
		if i < len(dirs) {
			errs[i] = dirsync.Outcome(s.calls.fsync(dirs[i].fd))
		} else {
			errs[i] = s.syncDirAt(paths[i])
		}
	})
	lost := make(lostDirs)
	for i, err := range errs {
		if err == nil {
			continue
		}
		lost[paths[i]] = err
		if _, is := unsynced[paths[i]]; is {
			s.lose(d, paths[i], err)
		}
	}
	return lost
}

// syncDirAt syncs the directory at target. If it is there no more its names are
// not, either.
func (s *Sink) syncDirAt(target string) error {
	h, err := s.dir(target)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, ErrNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.release()
	return dirsync.Outcome(s.calls.fsync(h.fd))
}

// lose remembers that names may not be on the disk, for syncAll.
func (s *Sink) lose(d *device, path string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.lost == nil {
		d.lost = opErr("sync directory", s.entryPath(path), err)
	}
}

// syncAll syncs every file system where names were made since it was synced. Its
// error is of any name since the sink was opened that is not sure to be on the
// disk, but for files: Publish has told of these.
func (s *Sink) syncAll() error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.mu.Lock()
	var due []*device
	for _, d := range s.devices {
		if len(d.unsynced) > 0 {
			due = append(due, d)
		}
	}
	s.mu.Unlock()
	for _, d := range due {
		s.syncDirs(d, nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, d := range s.devices {
		errs = append(errs, d.lost)
	}
	return errors.Join(errs...)
}

// markUnsynced notes that a name was made in a directory, or changed. Where too
// much is noted it is synced, which blocks for the disk.
func (s *Sink) markUnsynced(h *dirHandle) {
	if s.opt.NoFsync {
		return
	}
	s.mu.Lock()
	d := s.devices[h.inode.Dev]
	d.note(h.path)
	full := d.unsyncedBytes > maxUnsyncedBytes
	s.mu.Unlock()
	if full {
		s.syncing.Lock()
		defer s.syncing.Unlock()
		s.syncDirs(d, nil)
	}
}

// syncSettled is markUnsynced for a directory that has its final mode, by which
// it may not be opened again to be synced.
func (s *Sink) syncSettled(h *dirHandle) {
	d := s.deviceOf(h)
	if s.opt.NoFsync || !d.syncsAlone() {
		s.markUnsynced(h)
		return
	}
	s.mu.Lock()
	d.forget(h.path)
	s.mu.Unlock()
	if err := dirsync.Outcome(s.calls.fsync(h.fd)); err != nil {
		s.lose(d, h.path, err)
	}
}

// atOnce calls f for 0 to n-1, some at a time, and returns when all are done.
func atOnce(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(n, syncsAtOnce) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				f(i)
			}
		})
	}
	wg.Wait()
}
