package chunker

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// dirToSettle is a directory that gets its mode and time once all that goes
// into it is there: while it is filled its owner must be able to write, and
// every new name changes its time.
type dirToSettle struct {
	entry   string
	target  string
	made    bool   // by this sink
	private bool   // made for its owner only, until it is settled
	mode    uint32 // as it is to be in the end, permission bits
	setID   uint32 // and these, where it gets its owner and group
	mtimeNs int64
	attrs   *Attributes
	was     widened
}

// widened is that the owner of a directory that was there got more rights to it,
// until it is settled, than its mode gave.
type widened struct {
	is   bool
	mode uint32 // that it had, permission bits
}

// Mkdir makes a directory, or accepts one that exists. Its contents may follow
// at once; see SettleDirs for its mode, time and owner. Where its mode is kept, or
// whose it is, only its owner gets into a new one until then. ErrNotDir: a file or
// link is in its place.
// ErrTime: it is there, and will not have its time.
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
	parentPath, leaf := splitPath(target)
	parent, err := s.dir(parentPath)
	if err != nil {
		return withinErr("make directory", e.Path, err)
	}
	defer parent.release()
	d := s.settling(e, a, target)
	mode := d.mode | 0o700
	if s.opt.Keep.Modes {
		mode = 0o700
	}
	mkdir := func() error { return unix.Mkdirat(parent.fd, leaf, mode) }
	err = uninterrupted(mkdir)
	if err == unix.EEXIST && !s.keepsAll && s.makeRoomForDir(parent, leaf) {
		err = uninterrupted(mkdir)
	}
	if err != nil && err != unix.EEXIST {
		return opErr("make directory", e.Path, err)
	}
	made := err == nil
	var was widened
	h, err := s.openDirAt(parent, leaf, target)
	if !made && errors.Is(err, unix.EACCES) {
		h, was, err = s.openClosedDir(parent, leaf, target)
	}
	if s.keepsAll && errors.Is(err, ErrNotDir) {
		return kindErr("make directory", e.Path, ErrKept)
	}
	if err != nil {
		return err
	}
	if h.fresh = made; made {
		s.noteMade(target, h.inode)
	}
	h = s.dirs.add(h)
	defer h.release()
	if !made {
		if parent.folds(leaf, h.inode.Ino) && s.isClaimed(h.inode) {
			return kindErr("make directory", e.Path, ErrTaken)
		}
		s.claimNew(parent, leaf, h.inode.Ino)
		return s.adoptDir(e, a, h, target, was)
	}
	s.claimNew(parent, leaf, h.inode.Ino)
	s.markUnsynced(parent)
	d.made = true
	denied, err := s.withhold(h, &d)
	if err != nil {
		return opErr("make directory", e.Path, err)
	}
	if s.changesDirs(a) || d.mode&0o700 != 0o700 {
		s.addToSettle(d)
	}
	if err := s.applyDirXattrs(h, e.Path, a); err != nil {
		return err
	}
	return errNotGiven(e.Path, denied)
}

// MakeTop makes the top of the tree where it is missing, for entries of which it
// is none: nothing of the source's is given to it.
func (s *Sink) MakeTop() error {
	if s.prefix == "" {
		return nil
	}
	err := uninterrupted(func() error { return unix.Mkdirat(s.base.fd, s.prefix, 0o777) })
	if err == unix.EEXIST {
		return nil
	}
	var st unix.Stat_t
	if err == nil {
		s.markUnsynced(s.base)
		err = fstatat(s.base.fd, s.prefix, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if err == nil {
		s.noteMade(s.prefix, inodeOf(&st))
	}
	return opErr("make directory", s.dest, err)
}

// settling is what a directory is to be in the end.
func (s *Sink) settling(e *manifest.Entry, a *Attributes, target string) dirToSettle {
	d := dirToSettle{entry: e.Path, target: target, mode: e.Mode & 0o777, mtimeNs: e.MtimeNs, attrs: a}
	if s.opt.Keep.Modes {
		d.mode, d.setID = s.keptMode(e.Mode)
	}
	return d
}

// changesDirs reports whether directories that exist get anything of the source's.
func (s *Sink) changesDirs(a *Attributes) bool {
	return s.opt.Keep != (Keep{}) || a.owns()
}

// adoptDir takes an existing directory. Only what is to be kept is changed of it;
// as rsync has it, it is made writable for its owner until it is settled where
// else nothing could be put into it. That it may be settled at all is found out
// now, while the entry can still fail.
func (s *Sink) adoptDir(e *manifest.Entry, a *Attributes, h *dirHandle, target string, was widened) error {
	d := s.settling(e, a, target)
	var st unix.Stat_t
	if err := fstat(h.fd, &st); err != nil {
		return opErr("stat", e.Path, err)
	}
	keep := s.opt.Keep
	if d.was = was; st.Mode&0o700 != 0o700 && (keep.Modes || !mayFill(h)) {
		switch err := fchmod(h.fd, st.Mode&0o7777|0o700); {
		case err == nil:
			d.was = widened{true, st.Mode & 0o7777}
		case keep.Modes:
			return opErr("make writable", e.Path, err)
		}
		// Else it is somebody else's, and what goes into it will say so.
	}
	if !s.changesDirs(a) && !d.was.is {
		return nil
	}
	switch {
	case d.was.is:
	case keep.Times:
		if err := setTimespec(h.fd, ".", st.Mtim); err != nil {
			return opErr("set time of", e.Path, err)
		}
	case keep.Modes && st.Mode&0o1777 != d.mode:
		if err := fchmod(h.fd, st.Mode&0o7777); err != nil {
			return opErr("set mode of", e.Path, err)
		}
	}
	s.addToSettle(d)
	return s.applyDirXattrs(h, e.Path, a)
}

// mayFill reports whether this process may put things into a directory.
func mayFill(h *dirHandle) bool {
	return uninterrupted(func() error { return unix.Faccessat(h.fd, ".", unix.R_OK|unix.W_OK|unix.X_OK, unix.AT_EACCESS) }) == nil
}

// narrow gives directories that will not be settled the modes back that they
// had, the deepest first.
func (s *Sink) narrow(dirs []dirToSettle) error {
	var errs []error
	for _, d := range slices.Backward(dirs) {
		if !d.was.is {
			continue
		}
		h, err := s.dir(d.target)
		if err == nil {
			err = fchmod(h.fd, d.was.mode)
			h.release()
		}
		errs = append(errs, opErr("set mode of", d.entry, err))
	}
	return errors.Join(errs...)
}

// openClosedDir opens an existing directory that its owner may not read: an
// earlier copy may have made it so.
func (s *Sink) openClosedDir(parent *dirHandle, leaf, target string) (*dirHandle, widened, error) {
	// O_PATH needs no right to the directory itself, and /proc is how the mode
	// of such a descriptor is set before Linux 6.6 (fchmodat2).
	fd, err := openat(parent.fd, leaf, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, widened{}, opErr("open directory", s.entryPath(target), err)
	}
	defer closeQuietly(fd)
	chmod := func(mode uint32) error {
		return uninterrupted(func() error { return unix.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode) })
	}
	var st unix.Stat_t
	err = fstat(fd, &st)
	if err == nil {
		err = chmod(st.Mode&0o7777 | 0o700)
	}
	if err != nil {
		return nil, widened{}, opErr("make writable", s.entryPath(target), err)
	}
	h, err := s.openDirAt(parent, leaf, target)
	if err != nil {
		return nil, widened{}, errors.Join(err, chmod(st.Mode&0o7777))
	}
	return h, widened{true, st.Mode & 0o7777}, nil
}

// Symlink makes a symbolic link, in place of a file or link that may be there.
// What it points to is not looked at: nothing is ever written through a link.
// ErrIsDir: a directory is in its place; ErrInTheWay: what no copy replaces.
func (s *Sink) Symlink(e *manifest.Entry, a *Attributes) error {
	if err := s.checkTime(e); err != nil {
		return err
	}
	parent, leaf, err := s.parentOf("make link", e.Path)
	if err != nil {
		return err
	}
	defer parent.release()
	denied, err := s.symlinkAt(e, a, parent, leaf)
	switch err {
	case nil:
		s.claimNew(parent, leaf, 0)
	case unix.EEXIST:
		denied, err = s.replaceBySymlink(e, a, parent, leaf)
	}
	if err != nil {
		return opErr("make link", e.Path, err)
	}
	s.markUnsynced(parent)
	return errNotGiven(e.Path, denied)
}

// symlinkAt makes the link under a name that must be free. denied is as of chown.
func (s *Sink) symlinkAt(e *manifest.Entry, a *Attributes, parent *dirHandle, name string) (denied, err error) {
	if err := uninterrupted(func() error { return unix.Symlinkat(e.Target, parent.fd, name) }); err != nil {
		return nil, err
	}
	denied, err = s.applyToLink(a, parent.fd, name)
	if err == nil && s.opt.Keep.Times {
		err = setMtime(parent.fd, name, e.MtimeNs)
	}
	if err != nil {
		_ = unlinkat(parent.fd, name)
	}
	return denied, err
}

func (s *Sink) replaceBySymlink(e *manifest.Entry, a *Attributes, parent *dirHandle, leaf string) (denied, err error) {
	if s.keepsAll {
		return nil, ErrKept
	}
	var st unix.Stat_t
	if err := fstatat(parent.fd, leaf, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, err
	}
	if st.Mode&unix.S_IFMT == unix.S_IFDIR && s.deletes == nil {
		return nil, unix.EISDIR
	}
	if isSpecial(&st) && s.deletes == nil {
		return nil, ErrInTheWay
	}
	name := tempName()
	denied, err = s.symlinkAt(e, a, parent, name)
	if err == nil {
		err = s.moveInto(parent, name, leaf, 0)
	}
	if err != nil && err != unix.EEXIST {
		_ = unlinkat(parent.fd, name)
	}
	return denied, err
}

// addToSettle keeps the list in the order of SettleDirs. Entries come in about
// that order, so the place is nearly always at the end.
func (s *Sink) addToSettle(d dirToSettle) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, found := slices.BinarySearchFunc(s.settle, d, func(a, b dirToSettle) int { return manifest.ComparePaths(a.entry, b.entry) })
	if found {
		if s.settle[at].was.is {
			d.was = s.settle[at].was
		}
		s.settle[at] = d
		return
	}
	s.settle = slices.Insert(s.settle, at, d)
}

// TellUnsettled has told hear of each directory that does not get what it was to
// have in the end, instead of SettleDirs and FinishDirs, whose caller it is.
// Before Place only.
func (s *Sink) TellUnsettled(told func(entry string, err error)) { s.unsettled = told }

// SettleDirs gives every directory whose contents all come before path in the
// tree's order its mode and time, deepest first. Call it when all entries
// before path have been published, the more often the less memory is kept: what
// is left is then only what lies on the way to path. The errors of all
// directories come joined, unless TellUnsettled takes them; each names its
// directory.
func (s *Sink) SettleDirs(path string) error {
	if path == "." {
		return nil // nothing comes before it, though bytes like '#' are less
	}
	return s.settleWhere(func(dir string) bool {
		contents := dir + "/"
		return dir != "." && contents < path && !strings.HasPrefix(path, contents)
	})
}

// FinishDirs settles every directory that is left and, unless NoFsync, syncs the
// file systems in which names were made. It ends a copy that went well.
func (s *Sink) FinishDirs() error {
	err := s.settleWhere(func(string) bool { return true })
	if s.opt.NoFsync {
		return err
	}
	return errors.Join(err, s.syncAll())
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

// settleDir gives a directory as much as it can get of what it is to have, and
// returns the first error. Without its owner it does not get the mode either,
// which would let others in than it is for.
func (s *Sink) settleDir(d dirToSettle) error {
	h, err := s.dir(d.target)
	if err != nil {
		return opErr("settle directory", d.entry, err)
	}
	defer h.release()
	defer s.syncSettled(h)
	var timeErr error
	if s.opt.Keep.Times && !IsBeyond(d.mtimeNs) {
		// Before the mode, which may take away the right to look up ".".
		timeErr = opErr("set time of", d.entry, setMtime(h.fd, ".", d.mtimeNs))
	}
	var st unix.Stat_t
	if err := fstat(h.fd, &st); err != nil {
		return opErr("stat", d.entry, err)
	}
	// What is denied here cannot be told any more: see withhold.
	if _, err := d.attrs.chown(&st, func(uid, gid int) error { return unix.Fchown(h.fd, uid, gid) }); err != nil {
		if d.was.is {
			_ = fchmod(h.fd, d.was.mode) // the error that is told says enough
		}
		return opErr(setOwner, d.entry, err)
	}
	if mode := s.settledMode(&d, &st); st.Mode&0o7777 != mode {
		if err := fchmod(h.fd, mode); err != nil {
			return opErr("set mode of", d.entry, err)
		}
	}
	return timeErr
}

// settledMode is the mode that a directory is to have in the end, as far as it
// now is: st has its owner and group already.
func (s *Sink) settledMode(d *dirToSettle, st *unix.Stat_t) uint32 {
	switch {
	case s.opt.Keep.Modes:
		mode := d.mode | d.attrs.lent(d.setID, st)
		if s.opt.Root == nil && d.attrs.lent(unix.S_ISGID, st) != 0 {
			return mode
		}
		// A group that a directory inherits from its parent (setgid) is a matter
		// of the place, unless it has the source's group.
		return mode | st.Mode&unix.S_ISGID
	case d.private:
		return d.mode | st.Mode&unix.S_ISGID
	case d.made:
		// What is there has been through the umask; only what was added for
		// filling it goes.
		return st.Mode & (0o1777 | unix.S_ISGID) &^ (0o700 &^ d.mode)
	case d.was.is:
		return d.was.mode
	}
	return st.Mode & 0o7777
}
