package chunker

import (
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// DeleteRules say what a sink may remove: what is not at the source, and what
// is in the way of something of another kind.
type DeleteRules struct {
	// Protects tells of what is at an entry's path whether it stays; doomed says
	// that the directory that it is in is being removed. It may be called by
	// several at once. Nil: nothing is protected.
	Protects func(path string, isDir, doomed bool) bool
	// DryRun: nothing is removed, and all of it told.
	DryRun bool
	// Most is how many files and directories may be removed; negative for any
	// number. The rest is told with ErrTooMany.
	Most int64
	// Told takes everything that was removed, or that could not be. It may be
	// called by several at once.
	Told func(Removal)
	// Stop ends removing when it is closed.
	Stop <-chan struct{}
	// Unsure reports whether the source is not known whole: then nothing but an
	// empty directory is removed where a directory is in the way. It may be
	// called by several at once. Nil: the source is.
	Unsure func() bool
	// Looked, unless nil, is called for every name that is looked at, whatever
	// becomes of it: much may be looked at of which nothing is told. It may be
	// called by several at once.
	Looked func()
}

// Removal is a file or directory of the destination that was to go.
type Removal struct {
	Path string // as an entry of the copy would have it
	Dir  bool
	// Err is why it is still there, and nil where it is gone, or in a dry run
	// would be. ErrNotEmpty: something that stays is in the directory.
	Err error
}

// AllowDelete lets the sink remove things, by Surplus and where a directory is
// in the place of a file or link, or these or a special file in that of a
// directory. Before Place only.
func (s *Sink) AllowDelete(r DeleteRules) { s.deletes = &r }

func (r *DeleteRules) looked() {
	if r.Looked != nil {
		r.Looked()
	}
}

// remover removes files and trees. It follows no link: what it removes is a
// name in a directory that it has open, and a directory's contents are gone
// before its name. It keeps the names of the directories on its way in a
// nameStack, and no more than two of them open, whatever their depth.
type remover struct {
	sink  *Sink
	rules *DeleteRules
	names *nameStack
	way   []doomed
	// inTheWay: what is removed first is in the place of an entry, of whose name
	// the rules have allowed that it is copied. They hold for what is in it.
	inTheWay bool
	// onlyEmpty: directories stay that have something in them.
	onlyEmpty bool
}

// doomed is a directory on the remover's way.
type doomed struct {
	name, path string
	dev, ino   uint64
	names      nameList
	left       bool // something in it stays
}

func (s *Sink) newRemover() *remover {
	return &remover{sink: s, rules: s.deletes, names: newNameStack()}
}

func (r *remover) close() { _ = r.names.spill.close() }

// makeRoom removes what is at leaf in a directory, for something of another
// kind. It reports whether the place is free, or in a dry run would be.
func (s *Sink) makeRoom(h *dirHandle, leaf string) bool {
	r := s.newRemover()
	r.inTheWay, r.onlyEmpty = true, s.deletes.Unsure != nil && s.deletes.Unsure()
	defer r.close()
	return r.remove(h.fd, leaf, s.entryPath(joinPath(h.path, leaf)))
}

// makeRoomForDir removes what is in the place of a directory, and is none.
func (s *Sink) makeRoomForDir(h *dirHandle, leaf string) bool {
	var st unix.Stat_t
	if s.deletes == nil || fstatat(h.fd, leaf, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT == unix.S_IFDIR {
		return false
	}
	return s.makeRoom(h, leaf)
}

// tryRoom is makeRoom of a dry run.
func (s *Sink) tryRoom(path string) bool {
	h, leaf, err := s.parentOf("make", path)
	if err != nil {
		return false
	}
	defer h.release()
	return s.makeRoom(h, leaf)
}

// remove removes what is at name in a directory, all of it where it is a
// directory, and reports whether nothing is there any more.
func (r *remover) remove(dirfd int, name, path string) (gone bool) {
	isDir, there, stays := r.look(dirfd, name, path)
	switch {
	case !there:
		return true
	case stays:
		return false
	case !isDir:
		return r.unlink(dirfd, name, path)
	}
	fd, ok := r.enter(dirfd, name, path)
	if !ok {
		return false
	}
	for len(r.way) > 0 {
		if next, more := r.next(); more {
			fd = r.step(fd, next)
		} else {
			fd, gone = r.leave(fd, dirfd)
		}
	}
	return gone
}

// look finds out what is at a name, and whether it stays.
func (r *remover) look(dirfd int, name, path string) (isDir, there, stays bool) {
	r.rules.looked()
	var st unix.Stat_t
	err := fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return false, false, false
	}
	if err != nil {
		r.told(path, false, err)
		return false, true, true
	}
	isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	// What this sink has made may have another name too, where names fold.
	stays = r.stopped() || r.sink.isClaimed(inode{st.Dev, st.Ino}) || r.protects(path, isDir)
	return isDir, true, stays
}

func (r *remover) protects(path string, isDir bool) bool {
	doomed := len(r.way) > 0
	return r.rules.Protects != nil && (doomed || !r.inTheWay) && r.rules.Protects(path, isDir, doomed)
}

func (r *remover) stopped() bool {
	select {
	case <-r.rules.Stop:
		return true
	default:
		return false
	}
}

// next is the next name in the directory that the remover is in.
func (r *remover) next() (name string, more bool) {
	d := &r.way[len(r.way)-1]
	if r.stopped() {
		d.left = true
		return "", false
	}
	next, more := r.names.peek(&d.names)
	if !more {
		return "", false
	}
	if r.onlyEmpty {
		d.left = true
		return "", false
	}
	name = string(next)
	if err := r.names.advance(&d.names); err != nil {
		r.told(d.path, true, err)
		d.left = true
		return "", false
	}
	return name, true
}

// step removes what is at name in the directory fd, or enters it. It returns
// the directory that the remover is in then.
func (r *remover) step(fd int, name string) int {
	at := len(r.way) - 1
	path := joinPath(r.way[at].path, name)
	isDir, there, stays := r.look(fd, name, path)
	switch {
	case !there:
	case stays:
		r.way[at].left = true
	case isDir:
		if inside, ok := r.enter(fd, name, path); ok {
			closeQuietly(fd)
			return inside
		}
		r.way[at].left = true
	case !r.unlink(fd, name, path):
		r.way[at].left = true
	}
	return fd
}

// enter opens a directory, reads its names and puts it on the way.
func (r *remover) enter(dirfd int, name, path string) (fd int, ok bool) {
	fd, err := r.open(dirfd, name)
	if err != nil {
		r.told(path, true, err)
		return -1, false
	}
	d := doomed{name: name, path: path, names: r.names.begin()}
	var st unix.Stat_t
	if err = fstat(fd, &st); err == nil {
		err = r.names.readDir(&d.names, fd)
	}
	if err == nil {
		err = r.names.finish(&d.names)
	}
	if err != nil {
		r.names.drop(&d.names)
		closeQuietly(fd)
		r.told(path, true, err)
		return -1, false
	}
	d.dev, d.ino = st.Dev, st.Ino
	r.way = append(r.way, d)
	return fd, true
}

// open opens a directory that is going to be removed, also one that its owner
// may not read.
func (r *remover) open(dirfd int, name string) (int, error) {
	fd, err := openat(dirfd, name, dirFlags, 0)
	if err != unix.EACCES || r.rules.DryRun {
		return fd, err
	}
	// As openClosedDir has it.
	closed, err := openat(dirfd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer closeQuietly(closed)
	if uninterrupted(func() error { return unix.Chmod("/proc/self/fd/"+strconv.Itoa(closed), 0o700) }) != nil {
		return -1, unix.EACCES
	}
	return openat(dirfd, name, dirFlags, 0)
}

// leave removes the directory fd that the remover is in, unless something is
// left in it, and returns the one above, which for the last one is top.
func (r *remover) leave(fd, top int) (above int, gone bool) {
	d := r.way[len(r.way)-1]
	r.names.drop(&d.names)
	r.way = r.way[:len(r.way)-1]
	above = top
	if n := len(r.way); n > 0 {
		var err error
		if above, err = r.climb(fd, &r.way[n-1]); err != nil {
			r.told(d.path, true, err)
			r.giveUp()
			closeQuietly(fd)
			return -1, false
		}
	}
	closeQuietly(fd)
	if d.left {
		r.told(d.path, true, ErrNotEmpty)
	} else {
		gone = r.rmdir(above, d.name, d.path)
	}
	if n := len(r.way); n > 0 && !gone {
		r.way[n-1].left = true
	}
	return above, gone
}

// climb opens the directory above fd, which must be d.
func (r *remover) climb(fd int, d *doomed) (int, error) {
	above, err := openat(fd, "..", dirFlags, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = fstat(above, &st); err == nil && (st.Dev != d.dev || st.Ino != d.ino) {
		err = ErrChanged
	}
	if err != nil {
		closeQuietly(above)
		return -1, err
	}
	return above, nil
}

// giveUp leaves everything on the way as it is.
func (r *remover) giveUp() {
	for len(r.way) > 0 {
		r.names.drop(&r.way[len(r.way)-1].names)
		r.way = r.way[:len(r.way)-1]
	}
}

// unlink removes what is no directory. Of files with the names that this program
// gives to its own, it leaves those that somebody has locked.
func (r *remover) unlink(dirfd int, name, path string) (gone bool) {
	if strings.HasPrefix(name, tempPrefix) && isRegular(dirfd, name) {
		lock, unused := lockUnused(dirfd, name, false)
		if !unused {
			return false
		}
		defer closeQuietly(lock)
	}
	return r.take(dirfd, name, path, false)
}

func isRegular(dirfd int, name string) bool {
	var st unix.Stat_t
	return fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

func (r *remover) rmdir(dirfd int, name, path string) (gone bool) {
	return r.take(dirfd, name, path, true)
}

// take removes a name and tells it. A directory whose owner may not write to it
// gets that right first.
func (r *remover) take(dirfd int, name, path string, isDir bool) (gone bool) {
	if most := r.rules.Most; most >= 0 && r.sink.removed.Add(1) > most {
		r.told(path, isDir, ErrTooMany)
		return false
	}
	if r.rules.DryRun {
		r.told(path, isDir, nil)
		return true
	}
	flags := 0
	if isDir {
		flags = unix.AT_REMOVEDIR
	}
	unlink := func() error { return unix.Unlinkat(dirfd, name, flags) }
	err := uninterrupted(unlink)
	if err == unix.EACCES && openToOwner(dirfd) {
		err = uninterrupted(unlink)
	}
	switch err {
	case unix.ENOENT:
		return true
	case unix.ENOTEMPTY, unix.EEXIST:
		err = ErrNotEmpty
	}
	r.told(path, isDir, err)
	return err == nil
}

// openToOwner gives a directory's owner all rights to it. It reports whether
// anything was changed.
func openToOwner(fd int) bool {
	var st unix.Stat_t
	return fstat(fd, &st) == nil && st.Mode&0o700 != 0o700 && fchmod(fd, st.Mode&0o7777|0o700) == nil
}

func (r *remover) told(path string, isDir bool, err error) {
	if err != nil && err != ErrNotEmpty && err != ErrTooMany {
		err = opErr("delete", path, err)
	}
	r.rules.Told(Removal{Path: path, Dir: isDir, Err: err})
}
