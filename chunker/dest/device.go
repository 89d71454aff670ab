package dest

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/parallel"
	"gdrcp/internal/dirsync"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

const (
	// maxDirSyncs is the largest number of directories in a batch that are synced one
	// by one. For more, a syncfs is cheaper.
	maxDirSyncs = 4
	// maxUnsyncedBytes bounds the memory for directories that are not synced: their
	// paths, and unsyncedDirBytes for each.
	maxUnsyncedBytes = 1 << 20
	unsyncedDirBytes = 64
)

// device is a file system that the sink writes to.
type device struct {
	// fd is a directory on the file system. It is open from before the first write
	// until the sink closes: syncfs(2) reports an error of writing back once to every
	// open file, but not to files that were opened after another file got the report.
	fd int
	// tells: when syncfs returns 0, all that was written is on the disk.
	tells bool
	// keepsQuiet: errors of the file system itself are reported by fsync only, not by
	// syncfs.
	keepsQuiet bool
	// realtime: a syncfs brings names to the disk, but not all data; see HasRealtimeDevice.
	realtime bool
	// leavesOverwritten: a syncfs may leave what was written over older data in the disk's
	// cache. XFS flushes that only with its log, and has nothing to log for such data. An fsync
	// flushes it in any case (xfs_fs_sync_fs in fs/xfs/xfs_super.c, xfs_file_fsync in
	// fs/xfs/xfs_file.c, Linux 6.18).
	leavesOverwritten bool
	// flushesEarly: a syncfs leaves some of what it writes in the disk's cache; see
	// MayLackJournal.
	flushesEarly bool
	// at is the directory in which the sink met the file system first, as a path in the tree.
	at string
	// keepsTimes are the kinds of entries of which a time was read back; see setMtime.
	keepsTimes atomic.Uint32
	// flushKeepsTimes: a file has kept its time when it was flushed; see Temp.keepTime.
	flushKeepsTimes atomic.Bool
	// timeUnitNs is the unit in which the file system keeps times of change if that is
	// more than a second, else 0.
	timeUnitNs int64
	// failed: a syncfs has reported an error. The error may be of any file, even one
	// that this copy did not write, and the next syncfs will not report it again. From
	// then on every file and directory is synced by itself.
	failed atomic.Bool
	// noClones: files cannot share blocks (ioctl_ficlone(2)).
	noClones atomic.Bool

	refuses refused

	rungs deviceRungs

	foldingMu sync.Mutex // held while folding is found out
	folding   folding    // unless it is an attribute of directories

	// Under the sink's mu:
	unsynced      map[string]struct{} // directories in which names are not synced
	unsyncedBytes int
	lost          error // of the first directory that could not be synced
}

// refused is what a file system was found to refuse.
type refused struct {
	renames atomic.Bool // see Temp.writeAnew
	unlinks atomic.Bool // a temporary name could not be removed
	// seeks: it takes writes in order only; see writesInOrder.
	seeks struct {
		mu        sync.Mutex // held while that is found out
		known, is bool
	}
}

// syncsAlone reports that a syncfs cannot tell whether something is on the disk.
func (d *device) syncsAlone() bool { return !d.tells || d.failed.Load() }

// diskCalls are the system calls that say whether something is on the disk. Each
// is repeated where it was interrupted.
type diskCalls struct {
	fsync, syncfs func(fd int) error
	// flush makes a network or FUSE file system report what it reports when a file is
	// closed (close(2): "may report write errors"). The file stays open and keeps its
	// lock.
	flush func(fd int) error
}

func kernelCalls() diskCalls {
	return diskCalls{
		fsync:  func(fd int) error { return fsys.Uninterrupted(func() error { return unix.Fsync(fd) }) },
		syncfs: func(fd int) error { return fsys.Uninterrupted(func() error { return unix.Syncfs(fd) }) },
		flush:  fsys.Flush,
	}
}

// keepDevice keeps the file system of a directory open.
func (s *Sink) keepDevice(h *dirHandle) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.devices[h.Inode.Dev]; d != nil {
		h.device.Store(d)
		return nil
	}
	d := &device{unsynced: make(map[string]struct{}), at: s.entryPath(h.Path)}
	st := fsys.Statfs(h.FD)
	var err error
	if d.fd, err = h.openDevice(); err != nil {
		return fileset.OpErr("keep open", s.entryPath(h.Path), err)
	}
	d.failed.Store(isPathOnly(d.fd)) // nothing can be asked by it
	d.tells = fsys.SyncfsReportsWrites.Has() && fsys.TellsBySyncfs(int64(st.Type))
	d.keepsQuiet = !fsys.SyncfsReportsJournal.Has()
	d.flushesEarly = st.Type == unix.EXT4_SUPER_MAGIC && fsys.MayLackJournal(h.Inode.Dev)
	d.leavesOverwritten = st.Type == unix.XFS_SUPER_MAGIC
	d.realtime = d.leavesOverwritten && fsys.HasRealtimeDevice(h.Inode.Dev)
	if st.Type == unix.MSDOS_SUPER_MAGIC {
		d.timeUnitNs = int64(coarsest)
	}
	d.rungs.fsType, d.rungs.dropsBehind = int64(st.Type), fsys.DropsBehindSafely.Has()
	s.devices[h.Inode.Dev] = d
	h.device.Store(d)
	return nil
}

func (s *Sink) deviceOf(h *dirHandle) *device {
	if d := h.device.Load(); d != nil {
		return d
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[h.Inode.Dev]
	h.device.Store(d)
	return d
}

// syncDevice brings all that was written to a file system to the disk, and reports
// whether that is sure. The caller holds s.syncing: of two calls at once, one would get
// the error, and the other would go on before the error is known. Names that are made
// during the call still count as not synced.
func (s *Sink) syncDevice(d *device) bool {
	if d.syncsAlone() {
		return false
	}
	unsynced := s.takeUnsynced(d)
	err := s.calls.syncfs(d.fd)
	if err == nil && (d.keepsQuiet || d.flushesEarly) {
		// A failed journal stays failed, and a file system that was shut down stays
		// down. The flush is of the whole disk.
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

// takeUnsynced returns the directories in which names are not synced, and forgets them.
func (s *Sink) takeUnsynced(d *device) map[string]struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	unsynced := d.unsynced
	d.unsynced, d.unsyncedBytes = make(map[string]struct{}), 0
	return unsynced
}

// note adds a directory to those in which names are not synced. The caller holds the
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

// lostDirs maps the path of each directory that could not be synced to its error.
type lostDirs map[string]error

// onTheWayTo returns the error of a directory, or of one that leads to it.
func (l lostDirs) onTheWayTo(path string) error {
	for dir, err := range l {
		if dir == "." || dir == path || strings.HasPrefix(path, dir+"/") {
			return err
		}
	}
	return nil
}

// syncDirs brings the names in the given directories of a file system to the disk, and
// all other names that were made on it. It returns the directories that could not be
// synced. It also remembers as lost those of them that were noted as not synced,
// because the kernel reports the error of a directory only once. The caller holds
// s.syncing.
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
		paths = append(paths, h.Path)
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
	parallel.Each(len(paths), func(i int) {
		if i < len(dirs) {
			errs[i] = s.syncDir(dirs[i])
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

// syncDirAt syncs the directory at target. If the directory is gone, so are its names.
func (s *Sink) syncDirAt(target string) error {
	h, err := s.dir(target)
	if errors.Is(err, unix.ENOENT) || errors.Is(err, fileset.ErrNotDir) {
		return nil
	}
	if err != nil {
		return err
	}
	defer h.release()
	return s.syncDir(h)
}

// lose remembers that names may not be on the disk, for syncAll.
func (s *Sink) lose(d *device, path string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.lost == nil {
		d.lost = fileset.OpErr("sync directory", s.entryPath(path), err)
	}
}

// syncAll syncs every file system where names were made since it was last synced. It
// returns an error if any name that was made since the sink was opened may be missing
// on the disk. It leaves out names of files, which Publish has reported.
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

// markUnsynced notes that a name was made in a directory, or changed. If the notes take
// too much memory, it syncs the file system, which blocks for the disk.
func (s *Sink) markUnsynced(h *dirHandle) {
	if s.opt.NoFsync {
		return
	}
	s.mu.Lock()
	d := s.devices[h.Inode.Dev]
	d.note(h.Path)
	full := d.unsyncedBytes > maxUnsyncedBytes
	s.mu.Unlock()
	if full {
		s.syncing.Lock()
		defer s.syncing.Unlock()
		s.syncDirs(d, nil)
	}
}

// foundAge is how old a directory's last change is at least where no try that was cut off
// has left its names unsynced: the kernel writes what is older than half a minute or, to
// save a disk's power, some minutes (dirty_expire_centisecs and laptop_mode in the kernel's
// Documentation/admin-guide/sysctl/vm.rst).
const foundAge = time.Hour

// markFound is markUnsynced for a directory in which a name was found that an earlier try
// of the copy may have made: then nobody has synced it. It leaves out directories that
// nobody has changed lately, so that a copy into a large tree does not sync all of it.
func (s *Sink) markFound(h *dirHandle) {
	if s.opt.NoFsync {
		return
	}
	var st unix.Stat_t
	if fsys.Fstat(h.FD, &st) == nil && time.Since(time.Unix(st.Ctim.Unix())) > foundAge {
		return
	}
	s.markUnsynced(h)
}

// syncSettled is markUnsynced for a directory that has its final mode, which may forbid
// opening the directory again to sync it.
func (s *Sink) syncSettled(h *dirHandle) {
	d := s.deviceOf(h)
	if s.opt.NoFsync || !d.syncsAlone() {
		s.markUnsynced(h)
		return
	}
	s.mu.Lock()
	d.forget(h.Path)
	s.mu.Unlock()
	if err := s.syncDir(h); err != nil {
		s.lose(d, h.Path, err)
	}
}
