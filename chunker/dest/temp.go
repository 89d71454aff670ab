package dest

import (
	"errors"
	"io"
	"math"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// createTries bounds the attempts to make a file before a cleaner removes it.
const createTries = 16

type tempState uint8

const (
	tempOpen tempState = iota
	tempFinished
	tempClosed
)

// Temp is a file being written under a temporary name in its target's
// directory, locked while in use (flock(2)). Its owner ends it with Publish or
// Discard, which both wait for writes under way.
type Temp struct {
	sink    *Sink
	dir     *dirHandle
	name    string // temporary
	ino     uint64
	leaf    string // final
	path    string // of the entry
	place   string // as messages name it: see Sink.placeOf
	size    int64
	mtimeNs int64
	attrs   *Attributes
	have    uint32       // permission bits it was made with
	want    uint32       // those it is to have
	setID   uint32       // added if it gets its owner and group
	made    unix.Stat_t  // as it was made; owner and group are kept up to date
	written atomic.Int64 // end of the last byte written

	stays func(now Standing) bool // or nil; see KeepIf

	// private: only its owner may read and write it until it is finished.
	private bool
	// resumed: an earlier copy made the file.
	resumed bool
	// nameless: it has no name before its final one; see onlyAdds.
	nameless bool
	// unlocked: the file system has no locks, so nobody can tell whether the file is in
	// use.
	unlocked bool
	// wantsJournal: a later copy may go on with the file.
	wantsJournal bool
	inOrder      *inOrder // or nil
	journal      *journal // of a partial file; nil for others
	// partials is the directory with the journal, and while the file is away with the file,
	// or nil where both are beside the target.
	partials *dirHandle
	away     bool
	timed    bool     // it was given its time
	must     *Content // see ReadBack and MustHold
	fromDisk bool     // see ReadBack
	origin   origin   // what it began as
	// wroteOver, unless empty, says that what it has was written into the file at its name, and
	// why; silent: that is known. halfOver: a part of it was.
	wroteOver        string
	silent, halfOver bool
	sparse           bool // see ExpectHoles
	io               tempIO
	// lost is an error of writing that was told while the file was being written, and is not
	// told again.
	lost atomic.Pointer[error]

	mu    sync.RWMutex // read: writes; write: changes of state
	state tempState
	fd    int
}

// Create begins a file of e.Size bytes that gets the attributes a at the end. Until
// then only its owner may read it, unless owner and group are already the final ones.
// ErrIsDir: a directory has the name. ErrInTheWay: a device, fifo or socket has it.
func (s *Sink) Create(e *manifest.Entry, a *Attributes) (*Temp, error) {
	t, err := s.newTemp(e, a)
	if err != nil {
		return nil, err
	}
	if err := t.create(e.Mode); err != nil {
		t.dir.release()
		return nil, fileset.OpErr("create", t.place, err)
	}
	return t, nil
}

// newTemp returns a Temp without a file. It has a reference to its directory.
func (s *Sink) newTemp(e *manifest.Entry, a *Attributes) (*Temp, error) {
	if e.Size < 0 {
		return nil, fileset.OpErr("create", s.placeOf(e.Path), unix.EINVAL)
	}
	if err := s.checkTime(e); err != nil {
		return nil, err
	}
	dir, leaf, err := s.parentOf("create", e.Path)
	if err != nil {
		return nil, err
	}
	return &Temp{sink: s, dir: dir, leaf: leaf, path: e.Path, place: s.placeOf(e.Path), size: e.Size, mtimeNs: e.MtimeNs, attrs: a, fd: -1}, nil
}

func (t *Temp) create(sourceMode uint32) error {
	if t.size > holeBytes && t.sink.writesInOrder(t.dir) {
		t.inOrder = newInOrder()
	}
	mode, exact := sourceMode&0o777, false
	if t.sink.opt.Keep.Modes {
		mode, t.setID = t.sink.keptMode(sourceMode)
		exact = true
	}
	if !t.dir.fresh {
		t.sink.sweep(t.dir)
		var st unix.Stat_t
		err := t.sink.find(t.dir, t.leaf, &st)
		switch {
		case err == unix.ENOENT:
		case err != nil:
			return err
		case t.sink.keepsAll:
			// Publish would refuse to replace it.
		case t.dir.onlyAdds():
			return errOnlyAdds
		case t.sink.deletes != nil && st.Mode&unix.S_IFMT != unix.S_IFREG:
			// Publish removes it when the file gets its name.
		case st.Mode&unix.S_IFMT == unix.S_IFDIR:
			return unix.EISDIR
		case isSpecial(&st), t.sink.single != "" && t.leadsToSpecial(&st):
			return ErrInTheWay
		case st.Mode&unix.S_IFMT == unix.S_IFREG && !exact:
			if fsys.MayHideMask(st.Mode) {
				st.Mode = fsys.GroupMode(t.dir.FD, t.leaf, st.Mode, func() {})
			}
			mode, exact = st.Mode&0o1777, true
		}
	}
	// Others might open a file that is made with bits for them before the bits are gone.
	if !exact && (t.attrs.owns() || t.private || mode&0o022 != 0) {
		made, err := t.dir.tryMode(mode)
		if err != nil {
			return err
		}
		mode, exact = made, true
	}
	if exact {
		t.want = mode
		first := mode | 0o400
		if t.private {
			first = mode | 0o600 // a later copy may have to write it
		}
		first &= 0o755 // nobody else may write to what is being verified
		if t.private || t.attrs.owns() || t.sink.opt.Keep.ACLs {
			first &= 0o700 // its owner, group and ACL are not the final ones yet
		}
		made, err := t.openSome(first)
		t.have = made
		return err
	}
	made, err := t.openSome(mode | 0o400)
	t.have, t.want = made, made&^(0o400&^mode)
	return err
}

// tryMode returns the bits that a new file in the directory has if it is made with a mode:
// the umask, or the directory's default ACL, takes bits away. For each mode it makes one such
// file and removes it, because a file that somebody could open too early must never hold data.
func (h *dirHandle) tryMode(mode uint32) (uint32, error) {
	h.triedMu.Lock()
	defer h.triedMu.Unlock()
	if made, ok := h.tried[mode]; ok {
		return made, nil
	}
	try := &Temp{dir: h}
	made, err := try.openSome(mode | 0o400)
	if err != nil {
		return 0, err
	}
	made &^= 0o400 &^ mode
	if err := errors.Join(try.unlink(), fsys.CloseFD(try.fd)); err != nil {
		return 0, err
	}
	if h.tried == nil {
		h.tried = make(map[uint32]uint32)
	}
	h.tried[mode] = made
	return made, nil
}

// openSome calls open, and repeats it if a cleaner removes the file. A file that an
// earlier copy made is there already.
func (t *Temp) openSome(mode uint32) (made uint32, err error) {
	if t.resumed {
		return t.made.Mode & 0o7777, nil
	}
	if t.dir.onlyAdds() {
		made, err := t.openNameless(mode)
		return made & 0o7777, err
	}
	for range createTries {
		made, ok, err := t.open(mode)
		if ok || err != nil {
			return made & 0o7777, err
		}
	}
	return 0, unix.EAGAIN
}

// isSpecial reports whether st is of a device, fifo or socket: neither a regular file
// nor a directory nor a link.
func isSpecial(st *unix.Stat_t) bool {
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
		return false
	}
	return true
}

// leadsToSpecial reports whether a link at the name leads to a device, fifo or socket. In a
// served root nobody looks where links lead.
func (t *Temp) leadsToSpecial(st *unix.Stat_t) bool {
	var to unix.Stat_t
	return st.Mode&unix.S_IFMT == unix.S_IFLNK && t.sink.opt.Root == nil && fsys.Fstatat(t.dir.FD, t.leaf, &to, 0) == nil && isSpecial(&to)
}

// open makes the file and locks it. The owner may read the file, so that a later run
// can lock and remove it. A cleaner may get the lock first and remove the file: then ok
// is false, and the caller makes another file. Waiting for the lock would let anybody
// who may read the file stop the copy.
func (t *Temp) open(mode uint32) (made uint32, ok bool, err error) {
	name := fileset.TempName()
	fd, err := fsys.Openat(t.dir.FD, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, mode)
	if err == unix.EEXIST {
		return 0, false, nil
	}
	if err != nil {
		return 0, false, err
	}
	err = fsys.TryLock(fd)
	locked := err == nil
	if err == unix.EOPNOTSUPP || err == unix.ENOLCK || err == unix.ENOSYS {
		// The file system has no locks. Then no cleaner removes the file, because it
		// needs the lock.
		err, locked, t.unlocked = nil, true, true
	}
	var st unix.Stat_t
	if err == nil {
		err = fsys.Fstat(fd, &st)
	}
	if err == nil && locked && st.Nlink > 0 {
		t.fd, t.name, t.ino, t.made = fd, name, st.Ino, st
		return st.Mode, true, nil
	}
	_ = fsys.Unlinkat(t.dir.FD, name)
	fsys.CloseQuietly(fd)
	if err == unix.EWOULDBLOCK {
		err = nil
	}
	return 0, false, err
}

// Path is the entry's path.
func (t *Temp) Path() string { return t.path }

// KeepIf sets a function that decides, right before the file gets its name, whether
// what has the name by then stays. If it stays, Publish returns ErrKept. Call KeepIf
// only before Finish.
func (t *Temp) KeepIf(stays func(now Standing) bool) { t.stays = stays }

// SetSize sets the size of a file whose size was unknown when it was created. Bytes
// that were written behind that are cut off. Call it only before Finish.
func (t *Temp) SetSize(n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.size = n
}

// Finish ends the writing: the file gets its full size, owner, extended attributes, mode
// and time. The order matters: a change of the owner takes set-ID bits and capabilities
// away (chown(2)), and the mode must not let the wrong group read the file. Only Publish
// or Discard may follow.
func (t *Temp) Finish() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.state != tempOpen {
		return &fileset.OpError{Op: "finish", Path: t.place, Err: os.ErrClosed}
	}
	if err := errors.Join(t.io.direct.Load().close(), t.inOrder.finish(t)); err != nil {
		return t.loses(fileset.OpErr("close", t.place, err))
	}
	if t.written.Load() != t.size || t.io.reached > t.size {
		if err := fsys.Uninterrupted(func() error { return unix.Ftruncate(t.fd, t.size) }); err != nil {
			return fileset.OpErr("set size of", t.place, err)
		}
	}
	t.io.direct.Load().spent(math.MaxInt64)
	t.origin.narrowed = fileset.Stamp{}
	err := t.attrs.chown(&t.made, func(uid, gid int) error { return unix.Fchown(t.fd, uid, gid) })
	if err := t.sink.lacks(fileset.AttributeOwner, t.path, t.dir, err); err != nil {
		return fileset.OpErr(setOwner, t.place, err)
	}
	if err := t.applyXattrs(); err != nil {
		return fileset.OpErr("set extended attributes of", t.place, err)
	}
	if t.origin.inPlace && !t.sink.opt.Keep.Modes {
		t.want = t.modeInPlace()
	} else {
		t.want = t.attrs.granted(t.want, t.setID, &t.made)
	}
	mode := t.want
	t.want = t.sink.withoutACL(t.attrs, mode, &t.made)
	if err := t.applyMode(); err != nil {
		return fileset.OpErr("set mode of", t.place, err)
	}
	if err := t.sink.setACLs(aclsOf{c: fsys.XattrsOfFD(t.fd)}, t.attrs, mode, &t.made, t.path, t.dir); err != nil {
		return err
	}
	if !t.origin.inPlace {
		if err := t.applyTime(); err != nil {
			return err
		}
	}
	if t.journal != nil {
		t.journal.restate(stateOf(t.fd))
		t.journal.closeFile() // many files may wait for their names
	}
	t.state = tempFinished
	return nil
}

// applyTime gives the file the entry's time, where times are kept.
func (t *Temp) applyTime() error {
	if !t.sink.opt.Keep.Times {
		return nil
	}
	d := t.sink.deviceOf(t.dir)
	err := d.setMtime(manifest.File, t.fd, "", &t.made, t.mtimeNs)
	if err == unix.EINVAL || err == unix.ENOENT { // a kernel without TimesByDescriptor
		err = d.setMtime(manifest.File, t.at().FD, t.name, &t.made, t.mtimeNs)
	}
	t.timed = err == nil
	return fileset.OpErr("set time of", t.place, t.sink.lacks(fileset.AttributeTime, t.path, t.dir, err))
}

// keepTime sets the time of a file again if it has lost it, as on file systems by way of FUSE
// that write a file when it is flushed. It looks at files until one kept its time.
func (t *Temp) keepTime() error {
	d := t.sink.deviceOf(t.dir)
	if !t.timed || d.tells || d.flushKeepsTimes.Load() {
		return nil
	}
	var st unix.Stat_t
	if err := fsys.Fstat(t.fd, &st); err != nil {
		return fileset.OpErr("stat", t.place, err)
	}
	if !isNear(fsys.Nanoseconds(st.Mtim), t.mtimeNs) {
		return t.applyTime()
	}
	d.flushKeepsTimes.Store(true)
	return nil
}

// Discard removes the file, whatever its state; after Publish it does nothing.
func (t *Temp) Discard() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.discard()
}

func (t *Temp) discard() error {
	if t.state == tempClosed {
		return nil
	}
	var err error
	switch {
	case t.origin.inPlace:
		err = t.giveModeBack()
	case t.origin.standing == nil:
		err = t.unlink()
	}
	if err == unix.ENOENT {
		err = nil // somebody has removed it, perhaps with its directory
	}
	t.dropJournal()
	_ = t.close() // its error is about data that no longer matters
	return fileset.OpErr("discard", t.place, err)
}

// close closes the file, which gives up the lock.
func (t *Temp) close() error {
	t.state = tempClosed
	err := errors.Join(t.io.direct.Load().close(), t.inOrder.close())
	if t.fd >= 0 { // it may be closed early
		err = errors.Join(err, fsys.CloseFD(t.fd))
	}
	t.io.direct.Load().spent(math.MaxInt64)
	t.fd = -1
	if t.journal != nil {
		t.journal.closeFile()
	}
	t.leaveDirs()
	return fileset.OpErr("close", t.place, err)
}

// ScratchName returns a name for a file that its maker will remove. If the maker is killed,
// the next copy to the file's directory and Clean remove the file, and no copy takes it. The
// maker must hold its lock meanwhile: see HoldLock.
func ScratchName() string { return fileset.TempName() }

// HoldLock makes the lock of a file that is being written last until the lock is closed,
// also when the file has its name by then.
func (t *Temp) HoldLock() (lock io.Closer, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state == tempClosed {
		return nil, &fileset.OpError{Op: "lock", Path: t.place, Err: os.ErrClosed}
	}
	// A lock is of the open file, and two descriptors of it share the lock (flock(2)).
	fd, err := unix.FcntlInt(uintptr(t.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, fileset.OpErr("lock", t.place, err)
	}
	return os.NewFile(uintptr(fd), t.place), nil
}
