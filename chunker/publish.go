package chunker

import (
	"errors"

	"golang.org/x/sys/unix"
)

// maxDirSyncs is up to how many directories of a batch are synced one by one;
// for more, another syncfs is cheaper.
const maxDirSyncs = 4

// Publish gives finished files their final names and returns one result for
// each. A file counts as published, with a nil error, once its data and its
// name are on the disk (unless NoFsync): fsync for a single file, one syncfs for
// each file system for a batch; then rename; then the directories. A file
// that could not be published is discarded; where only the last step went
// wrong, or root could not give it its owner, it has its final name all the same.
// Publish blocks for the disk; it must not be called for the same Temp twice at
// once. ErrKept: see KeepIf and KeepExisting.
func (s *Sink) Publish(temps []*Temp) []error {
	errs := make([]error, len(temps))
	for i, t := range temps {
		t.mu.Lock()
		if t.state != tempFinished {
			errs[i] = &opError{op: "publish", path: t.path, err: errors.New("it is not finished")}
		}
	}
	if !s.opt.NoFsync {
		s.syncData(temps, errs)
	}
	renamed := make([]bool, len(temps))
	for i, t := range temps {
		if errs[i] == nil {
			errs[i] = t.rename()
			renamed[i] = errs[i] == nil
		}
	}
	if !s.opt.NoFsync {
		s.syncNames(temps, errs)
	}
	for i, t := range temps {
		switch {
		case renamed[i]:
			errs[i] = errors.Join(errs[i], t.close(), errNotGiven(t.path, t.denied))
		case errs[i] != nil:
			errs[i] = errors.Join(errs[i], t.discard())
		}
		t.mu.Unlock()
	}
	return errs
}

func (t *Temp) rename() error {
	if t.stays != nil {
		var st unix.Stat_t
		err := fstatat(t.dir.fd, t.leaf, &st, unix.AT_SYMLINK_NOFOLLOW)
		if err == nil && t.stays(standingOf(&st)) {
			return kindErr("publish", t.path, ErrKept)
		}
		if err != nil && err != unix.ENOENT {
			return opErr("publish", t.path, err)
		}
	}
	return opErr("publish", t.path, t.sink.moveInto(t.dir, t.name, t.leaf, t.ino))
}

// syncData brings the files' data to the disk.
func (s *Sink) syncData(temps []*Temp, errs []error) {
	if len(temps) == 1 {
		if errs[0] == nil {
			fd := temps[0].fd
			errs[0] = opErr("sync", temps[0].path, uninterrupted(func() error { return unix.Fsync(fd) }))
		}
		return
	}
	s.syncDevices(temps, errs)
}

// syncNames brings the files' names to the disk, and the directories made on
// the way to them.
func (s *Sink) syncNames(temps []*Temp, errs []error) {
	dirs := make(map[*dirHandle]error)
	unsynced := false
	for i, t := range temps {
		if errs[i] == nil {
			dirs[t.dir] = nil
			unsynced = unsynced || s.isUnsynced(t.dir.dev)
		}
	}
	if unsynced || len(dirs) > maxDirSyncs {
		s.syncDevices(temps, errs)
		return
	}
	for dir := range dirs {
		dirs[dir] = uninterrupted(func() error { return unix.Fsync(dir.fd) })
	}
	for i, t := range temps {
		if errs[i] == nil {
			errs[i] = opErr("sync directory of", t.path, dirs[t.dir])
		}
	}
}

// syncDevices calls syncfs(2) once for each file system of the files without
// an error so far.
func (s *Sink) syncDevices(temps []*Temp, errs []error) {
	results := make(map[uint64]error)
	for i, t := range temps {
		if errs[i] != nil {
			continue
		}
		err, done := results[t.dir.dev]
		if !done {
			err = s.syncDevice(t.dir.dev)
			results[t.dir.dev] = err
		}
		errs[i] = opErr("sync", t.path, err)
	}
}

// device is a file system that the sink writes to.
type device struct {
	// fd is of a directory on it, open since before the first write and as long
	// as the sink: syncfs(2) tells an error of writing back once to every open
	// file, but not to those that were opened after another was told.
	fd      int
	changes uint64 // how many names were made
	synced  uint64 // up to which of them it was synced
}

// keepDevice keeps the file system of a directory open.
func (s *Sink) keepDevice(h *dirHandle) error {
	if s.opt.NoFsync {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.devices[h.dev] != nil {
		return nil
	}
	fd, err := unix.FcntlInt(uintptr(h.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return opErr("keep open", s.entryPath(h.path), err)
	}
	s.devices[h.dev] = &device{fd: fd}
	return nil
}

// syncDevice syncs the file system dev. What is made meanwhile still counts as
// not synced.
func (s *Sink) syncDevice(dev uint64) error {
	s.mu.Lock()
	d := s.devices[dev]
	changes := d.changes
	s.mu.Unlock()
	if err := uninterrupted(func() error { return unix.Syncfs(d.fd) }); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d.synced = max(d.synced, changes)
	return nil
}

// syncAll syncs every file system where names were made since it was synced.
func (s *Sink) syncAll() error {
	s.mu.Lock()
	var due []uint64
	for dev, d := range s.devices {
		if d.changes != d.synced {
			due = append(due, dev)
		}
	}
	s.mu.Unlock()
	var errs []error
	for _, dev := range due {
		if err := s.syncDevice(dev); err != nil {
			errs = append(errs, opErr("sync", s.dest, err))
		}
	}
	return errors.Join(errs...)
}

// markUnsynced notes that a name was made in a directory, or changed.
func (s *Sink) markUnsynced(h *dirHandle) {
	if s.opt.NoFsync {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.devices[h.dev].changes++
}

func (s *Sink) isUnsynced(dev uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.devices[dev]
	return d.changes != d.synced
}
