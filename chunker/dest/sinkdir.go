package dest

import (
	"cmp"
	"errors"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// dirToSettle is a directory that gets its mode and time once all its entries are
// there: until then its owner must be able to write, and every new name changes its
// time.
type dirToSettle struct {
	entry   string
	target  string
	made    bool   // by this sink
	private bool   // open to its owner only, until it is settled
	mode    uint32 // the final permission bits
	setID   uint32 // added if it gets its owner and group
	mtimeNs int64
	owner   *Attributes // owner, group and ACLs alone, or nil
	was     widened
	id      manifest.Inode
	// stays: the directory keeps what it has, and is only looked up by its name.
	stays bool
}

// Mkdir makes a directory, or accepts one that exists. Its contents may follow at once.
// SettleDirs sets mode, time and owner. If mode or owner is kept, only the owner can
// enter a new directory until then. ErrNotDir: a file or link is in its place. ErrTime:
// the directory is there, and will not get its time, which is required.
func (s *Sink) Mkdir(e *manifest.Entry, a *Attributes) error {
	if err := s.mkdir(e, a); err != nil {
		return err
	}
	return s.checkTime(e)
}

func (s *Sink) mkdir(e *manifest.Entry, a *Attributes) error {
	target, err := s.target("make directory", e.Path)
	if err != nil {
		return err
	}
	if target == "." {
		return s.adoptDir(e, a, s.base, target, widened{})
	}
	parentPath, leaf := fileset.SplitPath(target)
	parent, err := s.dir(parentPath)
	if err != nil {
		return fileset.WithinErr("make directory", e.Path, err)
	}
	defer parent.release()
	d := s.settling(e, a, target)
	mode := d.mode | 0o700
	if s.opt.Keep.Modes {
		mode = 0o700
	}
	release := s.holdNames(parent)
	mkdir := func() error { return unix.Mkdirat(parent.FD, leaf, mode) }
	err = fsys.Uninterrupted(mkdir)
	release()
	if err == unix.EEXIST {
		err = cmp.Or(s.checkTwin(parent, leaf), err)
	}
	if err == unix.EEXIST && !s.keepsAll && s.makeRoomForDir(parent, leaf) {
		err = fsys.Uninterrupted(mkdir)
	}
	if err != nil && err != unix.EEXIST {
		name := e.Path
		if name == "." {
			name = s.topName()
		}
		return fileset.OpErr("make directory", name, err)
	}
	made := err == nil
	var was widened
	h, err := s.openDirAt(parent, leaf, target)
	if errors.Is(err, unix.EACCES) {
		h, was, err = s.openClosedDir(parent, leaf, target)
		if isNotAllowed(err) { // it is another user's
			h, err = s.openAnyDirAt(parent, leaf, target)
		}
	}
	if s.keepsAll && errors.Is(err, fileset.ErrNotDir) {
		return fileset.KindErr("make directory", e.Path, ErrKept)
	}
	if err != nil {
		return err
	}
	if h.fresh = made; made {
		h.folding.Store(parent.folding.Load())
		s.noteMade(target, h.Inode)
	}
	h = s.dirs.Add(h)
	defer h.release()
	if target == s.prefix {
		s.top.Store(&h.Inode)
	}
	if s.stage != nil && target == s.prefix && s.stage.fd < 0 {
		if err := s.claimStage(h); err != nil {
			return fileset.OpErr("make directory", e.Path, err)
		}
	}
	if !made {
		s.markFound(parent)
		return s.adoptDir(e, a, h, target, was)
	}
	s.markUnsynced(parent)
	d.made, d.id = true, h.Inode
	if err := s.openToOwner(h, &d, was); err != nil {
		return fileset.OpErr("make directory", e.Path, err)
	}
	if err := s.withhold(h, &d); err != nil {
		return fileset.OpErr("make directory", e.Path, err)
	}
	d.stays = !s.changesDirs(a) && d.mode&0o700 == 0o700
	s.addToSettle(d)
	return s.applyDirXattrs(h, e.Path, a)
}

// openToOwner lets the owner of a directory that was made fill it, if the umask or the default
// ACL took away the right to. It goes when the directory is settled.
func (s *Sink) openToOwner(h *dirHandle, d *dirToSettle, was widened) error {
	mode := h.Mode & 0o7777
	if was.is {
		mode = was.mode
	}
	if !s.opt.Keep.Modes {
		d.mode &^= 0o700 &^ mode
	}
	if h.Mode&0o700 == 0o700 {
		return nil
	}
	return fsys.Fchmod(h.FD, mode|0o700)
}

// settling returns the final state of a directory.
func (s *Sink) settling(e *manifest.Entry, a *Attributes, target string) dirToSettle {
	d := dirToSettle{entry: e.Path, target: target, mode: e.Mode & 0o777, mtimeNs: e.MtimeNs, owner: a.rights()}
	if s.opt.Keep.Modes {
		d.mode, d.setID = s.keptMode(e.Mode)
		if s.opt.Root == nil {
			d.setID = e.Mode & setIDs // of a directory they lend nothing
		}
	}
	return d
}

// changesDirs reports whether existing directories get any metadata of the source.
func (s *Sink) changesDirs(a *Attributes) bool {
	return s.opt.Keep != (Keep{}) || a.owns()
}

// adoptDir takes an existing directory. It changes only the metadata that is kept. If
// nothing could be put into the directory otherwise, its owner may write to it until it
// is settled, as in rsync. If attributes are required, adoptDir finds out now whether the
// directory can be settled at all, while the entry can still fail.
func (s *Sink) adoptDir(e *manifest.Entry, a *Attributes, h *dirHandle, target string, was widened) error {
	d := s.settling(e, a, target)
	d.id = h.Inode
	var st unix.Stat_t
	if err := fsys.Fstat(h.FD, &st); err != nil {
		return fileset.OpErr("stat", e.Path, err)
	}
	keep := s.opt.Keep
	if d.was = was; st.Mode&0o700 != 0o700 && (keep.Modes || !mayFill(h)) {
		switch err := fsys.Fchmod(h.FD, st.Mode&0o7777|0o700); {
		case err == nil:
			d.was = widened{true, st.Mode & 0o7777}
		case keep.Modes && s.opt.RequireAttributes:
			return fileset.OpErr("make writable", e.Path, err)
		}
		// Else it belongs to another user, and making its entries will fail.
	}
	d.stays = !s.changesDirs(a) && !d.was.is
	switch {
	case d.was.is, d.stays, !s.opt.RequireAttributes:
	case keep.Times:
		if err := fsys.SetTimes(h.FD, ".", st.Atim, st.Mtim); err != nil {
			return fileset.OpErr("set time of", e.Path, err)
		}
	case keep.Modes && st.Mode&0o1777 != d.mode:
		if err := fsys.Fchmod(h.FD, st.Mode&0o7777); err != nil {
			return fileset.OpErr("set mode of", e.Path, err)
		}
	}
	s.addToSettle(d)
	if d.stays {
		return nil
	}
	return s.applyDirXattrs(h, e.Path, a)
}

// mayFill reports whether this process may put things into a directory.
func mayFill(h *dirHandle) bool {
	return fsys.Uninterrupted(func() error { return unix.Faccessat(h.FD, ".", unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS) }) == nil
}

// narrow gives directories that will not be settled their former modes back, the
// deepest first, and those that were made their final ones where modes are not kept: a
// later copy takes what it finds there for what it is to be.
func (s *Sink) narrow(dirs []dirToSettle) error {
	var errs []error
	for _, d := range slices.Backward(dirs) {
		if d.stays || !d.was.is && (!d.made || s.opt.Keep.Modes) {
			continue
		}
		h, err := s.dir(d.target)
		if err == nil {
			err = s.leaveMode(h, &d)
			h.release()
		}
		if !errors.Is(err, unix.ENOENT) { // else somebody has removed it
			errs = append(errs, fileset.OpErr("set mode of", d.entry, err))
		}
	}
	return errors.Join(errs...)
}

// openClosedDir opens an existing directory that its owner may not read, perhaps
// because an earlier copy gave it that mode.
func (s *Sink) openClosedDir(parent *dirHandle, leaf, target string) (*dirHandle, widened, error) {
	// O_PATH needs no right to the directory itself, and /proc is how the mode
	// of such a descriptor is set without ModesByDescriptor.
	fd, err := fsys.Openat(parent.FD, leaf, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, widened{}, fileset.OpErr("open directory", s.entryPath(target), err)
	}
	defer fsys.CloseQuietly(fd)
	chmod := func(mode uint32) error {
		return fsys.Uninterrupted(func() error { return unix.Chmod(fsys.DescriptorPath(fd), mode) })
	}
	var st unix.Stat_t
	err = fsys.Fstat(fd, &st)
	if err == nil {
		err = chmod(st.Mode&0o7777 | 0o700)
	}
	if err != nil {
		return nil, widened{}, fileset.OpErr("make writable", s.entryPath(target), err)
	}
	h, err := s.openDirAt(parent, leaf, target)
	if err != nil {
		return nil, widened{}, errors.Join(err, chmod(st.Mode&0o7777))
	}
	return h, widened{true, st.Mode & 0o7777}, nil
}

// addToSettle keeps the list in the order of SettleDirs. Entries come in about
// that order, so the place is nearly always at the end.
func (s *Sink) addToSettle(d dirToSettle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearchFunc(s.settle, d, func(a, b dirToSettle) int { return manifest.ComparePaths(a.entry, b.entry) })
	if found {
		if s.settle[at].was.is {
			d.was, d.stays = s.settle[at].was, false
		}
		s.settle[at] = d
		return
	}
	s.settle = slices.Insert(s.settle, at, d)
}

// TellUnsettled makes SettleDirs and FinishDirs pass the error of each directory that
// does not get its final state to told, instead of returning it. Call it only before
// Place.
func (s *Sink) TellUnsettled(told func(entry string, err error)) { s.unsettled = told }

// SettleDirs gives every directory whose contents all come before path in the tree's
// order its mode and time, deepest first. Call it when all entries before path have
// been published. The more often it is called, the less memory is held: only
// directories on the way to path are left. It returns the errors of all directories
// joined, unless TellUnsettled takes them. Each error names its directory.
func (s *Sink) SettleDirs(path string) error {
	if path == "." {
		return nil // nothing comes before it, though bytes like '#' are less
	}
	return s.settleWhere(func(dir string) bool {
		contents := dir + "/"
		return dir != "." && contents < path && !strings.HasPrefix(path, contents)
	})
}

// FinishDirs settles every directory that is left and, unless NoFsync, syncs the file
// systems in which names were made. It ends a successful copy.
func (s *Sink) FinishDirs() error {
	err := s.settleWhere(func(string) bool { return true })
	if s.opt.NoFsync {
		return err
	}
	s.timed(func() { err = errors.Join(err, s.syncAll()) })
	return err
}

func (s *Sink) settleWhere(due func(entry string) bool) error {
	s.mu.Lock()
	var now []dirToSettle
	kept := s.settle[:0]
	for _, d := range s.settle {
		if due(d.entry) {
			now = append(now, d)
		} else {
			kept = append(kept, d)
		}
	}
	clear(s.settle[len(kept):])
	s.settle = kept
	s.mu.Unlock()
	var errs []error
	for _, d := range slices.Backward(now) {
		if err := s.settleDir(d); err != nil && s.unsettled != nil {
			s.unsettled(d.entry, err)
		} else if err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// settleDir gives a directory as much of its final state as it can get. If attributes are
// required, it returns the first error, and a directory that does not get its owner does not
// get its mode either.
func (s *Sink) settleDir(d dirToSettle) error {
	if d.stays {
		return s.checkNamed(&d)
	}
	h, err := s.dir(d.target)
	if err != nil {
		return fileset.OpErr("settle directory", d.entry, err)
	}
	defer h.release()
	defer s.syncSettled(h)
	var st unix.Stat_t
	if err := fsys.Fstat(h.FD, &st); err != nil {
		return fileset.OpErr("stat", d.entry, err)
	}
	var timeErr error
	if s.opt.Keep.Times {
		// Before the mode, which may take away the right to look up ".".
		err := s.deviceOf(h).setMtime(manifest.Dir, h.FD, ".", &st, d.mtimeNs)
		timeErr = fileset.OpErr("set time of", d.entry, s.lacks(fileset.AttributeTime, d.entry, h, err))
	}
	err = d.owner.chown(&st, h.chown)
	if err = s.lacks(fileset.AttributeOwner, d.entry, h, err); err != nil && !isNotAllowed(err) { // of a denial see withhold
		if d.was.is {
			_ = fsys.Fchmod(h.FD, d.was.mode) // the error that is returned says enough
		}
		return fileset.OpErr(setOwner, d.entry, err)
	}
	err = s.giveRights(aclsOf{h.xattrs(), true}, d.owner, s.settledMode(&d, &st), &st, d.entry, h, func(mode uint32) error { return fsys.Fchmod(h.FD, mode) })
	if err != nil {
		return err
	}
	return cmp.Or(timeErr, s.checkNamed(&d))
}

// settledMode returns the final mode of a directory, given in st its present mode and
// its final owner and group.
func (s *Sink) settledMode(d *dirToSettle, st *unix.Stat_t) uint32 {
	switch {
	case s.opt.Keep.Modes:
		mode := d.owner.granted(d.mode, d.setID, st)
		if s.opt.Root == nil && d.owner.lent(unix.S_ISGID, st) != 0 {
			return mode
		}
		// Whether a directory inherits its parent's group (setgid) is up to the
		// destination, unless the directory has the source's group.
		return mode | st.Mode&unix.S_ISGID
	case d.private:
		return d.owner.granted(d.mode, 0, st) | st.Mode&unix.S_ISGID
	case d.made:
		// The umask has cut the present mode; remove only the bits that were added for
		// filling the directory.
		return st.Mode & (0o1777 | unix.S_ISGID) &^ (0o700 &^ d.mode)
	case d.was.is:
		return d.was.mode
	}
	return st.Mode & 0o7777
}

// widened says that the owner of an existing directory has more rights to it, until it
// is settled, than its mode gave.
type widened struct {
	is   bool
	mode uint32 // the former permission bits
}

// restore gives a directory back its former mode, as far as possible.
func (w widened) restore(fd int) {
	if w.is {
		_ = fsys.Fchmod(fd, w.mode)
	}
}
