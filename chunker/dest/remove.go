package dest

import (
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/sorted"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// DeleteRules say what a sink may remove: entries that the source lacks, and entries in
// the place of an entry of another kind.
type DeleteRules struct {
	// Protects reports whether what is at an entry's path stays; doomed says that the
	// directory above it is being removed. Several goroutines may call Protects at
	// once. Nil: nothing is protected.
	Protects func(path string, isDir, doomed bool) bool
	// StaysOn: nothing is removed that lies on another file system than the top above
	// it, and no directory on which a file system is mounted, as in rsync(1) with
	// --one-file-system.
	StaysOn bool
	// DryRun: nothing is removed, and Told gets everything that a real run would
	// remove.
	DryRun bool
	// Most is how many files and directories may be removed; if negative, any number.
	// Told gets the rest with ErrTooMany.
	Most int64
	// Told gets everything that was removed, or that could not be. Several goroutines
	// may call it at once.
	Told func(Removal)
	// Stop ends removing when it is closed.
	Stop <-chan struct{}
	// Unsure reports whether some of the source is unknown: then a directory in the way
	// is removed only if it is empty. Several goroutines may call Unsure at once. Nil:
	// all of the source is known.
	Unsure func() bool
	// Looked, unless nil, is called for every name that is looked at, whatever becomes
	// of it: Told may get nothing for many of them. Several goroutines may call it at
	// once.
	Looked func()
}

// Removal is a file or directory of the destination that was to be removed.
type Removal struct {
	Path string // in the form of an entry's path
	Dir  bool
	// Bytes is what a file, and no directory, held that had no other name.
	Bytes int64
	// Err is why it is still there. Nil: it is gone, or in a dry run would be.
	// ErrNotEmpty: the directory holds something that stays.
	Err error
}

// AllowDelete lets the sink remove entries: those that Surplus finds, a directory in
// the place of a file or link, and a file, link or special file in the place of a
// directory. Call it only before Place.
func (s *Sink) AllowDelete(r DeleteRules) { s.deletes = &r }

func (r *DeleteRules) looked() {
	if r.Looked != nil {
		r.Looked()
	}
}

// remover removes files and trees. It follows no link: it removes a name in a directory
// that it has open, and a directory's contents before its name. It keeps the names of
// the directories on its way in a Stack, and at most two directories open, whatever
// the depth.
type remover struct {
	sink  *Sink
	rules *DeleteRules
	names *sorted.Stack
	way   []doomed
	path  []byte // of the directory on the way that is deepest
	// inTheWay: the first name to remove is in the place of an entry. The rules have
	// allowed the copying of that name, so they are asked only about what is in it.
	inTheWay bool
	// only, unless it is zero, is the one directory whose name is removed.
	only manifest.Inode
	// onlyEmpty: only empty directories are removed.
	onlyEmpty bool
	late      *lateNames // or nil
	dev       uint64     // of the directory that holds the name to remove
	bytes     int64      // of the file that was looked at last, if it has no other name
}

// doomed is a directory on the remover's way.
type doomed struct {
	name      string
	pathBytes int // length of the remover's path up to and including this directory
	inode     manifest.Inode
	names     sorted.Names
	left      bool // something in it stays
	was       widened
	changed   unix.Timespec // when it was entered
}

func (s *Sink) newRemover() *remover {
	return &remover{sink: s, rules: s.deletes, names: sorted.NewStack()}
}

func (r *remover) close() { _ = r.names.Spill.Close() }

// remove removes what is at name in a directory, with all its contents if that is a
// directory too. It reports whether the name is free afterwards.
func (r *remover) remove(dirfd int, name, path string) (gone bool) {
	if r.rules.StaysOn {
		var st unix.Stat_t
		if err := fsys.Fstat(dirfd, &st); err != nil {
			r.told(path, false, err)
			return false
		}
		r.dev = st.Dev
	}
	isDir, there, stays := r.look(dirfd, name, path)
	switch {
	case !there:
		return true
	case stays, !isDir && r.only != manifest.Inode{}:
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

// look returns what is at a name, and whether that stays.
func (r *remover) look(dirfd int, name, path string) (isDir, there, stays bool) {
	r.rules.looked()
	var st unix.Stat_t
	err := fsys.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return false, false, false
	}
	if err != nil {
		r.told(path, false, err)
		return false, true, true
	}
	isDir = st.Mode&unix.S_IFMT == unix.S_IFDIR
	if r.bytes = 0; st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink == 1 {
		r.bytes = st.Size
	}
	stays = r.stopped() || r.late.keeps(r.way, &st, path, isDir) || r.rules.StaysOn && isDir && fsys.IsMount(dirfd, name, &st, r.dev) ||
		isDir && r.sink.isForPartials(fileset.InodeOf(&st)) || r.protects(path, isDir)
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

// next returns the next name in the directory that the remover is in.
func (r *remover) next() (name string, more bool) {
	d := &r.way[len(r.way)-1]
	if r.stopped() {
		d.left = true
		return "", false
	}
	next, more := r.names.Peek(&d.names)
	if !more {
		return "", false
	}
	if r.onlyEmpty {
		d.left = true
		return "", false
	}
	name = string(next)
	if err := r.names.Advance(&d.names); err != nil {
		r.told(string(r.path), true, err)
		d.left = true
		return "", false
	}
	return name, true
}

// step removes what is at name in the directory fd, or enters it if it is a directory.
// It returns the directory that the remover is in afterwards.
func (r *remover) step(fd int, name string) int {
	at := len(r.way) - 1
	path := string(r.path) + "/" + name
	isDir, there, stays := r.look(fd, name, path)
	switch {
	case !there:
	case stays:
		r.way[at].left = true
	case isDir:
		if inside, ok := r.enter(fd, name, path); ok {
			fsys.CloseQuietly(fd)
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
	fd, was, err := r.open(dirfd, name)
	if err != nil {
		r.told(path, true, err)
		return -1, false
	}
	d := doomed{name: name, pathBytes: len(path), names: r.names.Begin(), was: was}
	var st unix.Stat_t
	if err = fsys.Fstat(fd, &st); err == nil && len(r.way) == 0 && r.only != (manifest.Inode{}) && fileset.InodeOf(&st) != r.only {
		err = fileset.ErrChanged
	}
	if err == nil {
		err = r.names.ReadDir(&d.names, fd)
	}
	if err == nil {
		err = r.names.Finish(&d.names)
	}
	if err != nil {
		r.names.Drop(&d.names)
		d.was.restore(fd)
		fsys.CloseQuietly(fd)
		r.told(path, true, err)
		return -1, false
	}
	d.inode, d.changed = fileset.InodeOf(&st), st.Ctim
	r.way = append(r.way, d)
	r.path = append(r.path[:0], path...)
	return fd, true
}

// open opens a directory that is to be removed. If the owner may not read it, open
// gives the owner that right, and was is the mode before.
func (r *remover) open(dirfd int, name string) (fd int, was widened, err error) {
	fd, err = fsys.Openat(dirfd, name, fsys.DirFlags, 0)
	if err != unix.EACCES || r.rules.DryRun {
		return fd, was, err
	}
	if r.isUsedUp() {
		return -1, was, ErrTooMany
	}
	// As in openClosedDir.
	closed, err := fsys.Openat(dirfd, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, was, err
	}
	defer fsys.CloseQuietly(closed)
	chmod := func(mode uint32) error {
		return fsys.Uninterrupted(func() error { return unix.Chmod(fsys.DescriptorPath(closed), mode) })
	}
	var st unix.Stat_t
	if fsys.Fstat(closed, &st) != nil || st.Mode&0o700 == 0o700 || chmod(st.Mode&0o7777|0o700) != nil {
		return -1, was, unix.EACCES
	}
	if fd, err = fsys.Openat(closed, ".", fsys.DirFlags, 0); err != nil {
		_ = chmod(st.Mode & 0o7777)
		return -1, was, err
	}
	return fd, widened{true, st.Mode & 0o7777}, nil
}

// isUsedUp reports that nothing more may be removed.
func (r *remover) isUsedUp() bool { return r.rules.Most >= 0 && r.sink.removed.Load() >= r.rules.Most }

// leave removes the directory fd that the remover is in, unless something is left in
// it. It returns the directory above, which for the last directory is top.
func (r *remover) leave(fd, top int) (above int, gone bool) {
	d, path := r.way[len(r.way)-1], string(r.path)
	above = top
	if n := len(r.way) - 1; n > 0 {
		var err error
		if above, err = r.climb(fd, &r.way[n-1]); err != nil {
			r.told(path, true, err)
			d.was.restore(fd)
			fsys.CloseQuietly(fd)
			r.giveUp(top)
			return -1, false
		}
	}
	r.pop()
	// Removing the directory needs no right to it, and it may stay.
	d.was.restore(fd)
	fsys.CloseQuietly(fd)
	if d.left {
		r.told(path, true, ErrNotEmpty)
	} else {
		gone = r.rmdir(above, d.name, path)
	}
	if n := len(r.way); n > 0 && !gone {
		r.way[n-1].left = true
	}
	return above, gone
}

// pop takes the deepest directory off the way.
func (r *remover) pop() {
	n := len(r.way) - 1
	r.names.Drop(&r.way[n].names)
	r.way = r.way[:n]
	r.path = r.path[:0]
	if n > 0 {
		r.path = r.path[:r.way[n-1].pathBytes]
	}
}

// climb opens the directory above fd, which must be d.
func (r *remover) climb(fd int, d *doomed) (int, error) {
	return d.openIn(fd, "..")
}

// openIn opens what is at a name in the directory fd, which must be d.
func (d *doomed) openIn(fd int, name string) (int, error) {
	found, err := fsys.Openat(fd, name, fsys.DirFlags, 0)
	if err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = fsys.Fstat(found, &st); err == nil && fileset.InodeOf(&st) != d.inode {
		err = fileset.ErrChanged
	}
	if err != nil {
		fsys.CloseQuietly(found)
		return -1, err
	}
	return found, nil
}

// giveUp leaves everything on the way in place, and restores the modes of the
// directories that are still found below top.
func (r *remover) giveUp(top int) {
	fd, was := top, widened{}
	for i := range r.way {
		next, err := r.way[i].openIn(fd, r.way[i].name)
		was.restore(fd)
		if fd != top {
			fsys.CloseQuietly(fd)
		}
		if fd, was = next, r.way[i].was; err != nil {
			break
		}
	}
	if fd >= 0 && fd != top {
		was.restore(fd)
		fsys.CloseQuietly(fd)
	}
	for len(r.way) > 0 {
		r.pop()
	}
}

// unlink removes anything but a directory. It leaves a temporary file of this program
// that another process has locked, or that another host may be using. Nobody else uses
// what is in a staging directory.
func (r *remover) unlink(dirfd int, name, path string) (gone bool) {
	if strings.HasPrefix(name, fileset.TempPrefix) && isRegular(dirfd, name) {
		lock, unused := lockUnused(dirfd, name, false)
		if !unused {
			return false
		}
		defer fsys.CloseQuietly(lock)
		in := r.sink.hosts.in(dirfd)
		in.onlyLooks = r.rules.DryRun
		if r.sink.stage == nil && in.mayUseFD(lock) {
			return false
		}
	}
	return r.take(dirfd, name, path, false)
}

func (r *remover) rmdir(dirfd int, name, path string) (gone bool) {
	return r.take(dirfd, name, path, true)
}

// take removes a name and reports that to Told. If the owner may not write to the
// directory above, take gives the owner that right meanwhile, except in a directory
// that the copy itself writes to.
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
	err := fsys.Uninterrupted(unlink)
	if err == unix.EACCES && r.openToOwner(dirfd) {
		err = fsys.Uninterrupted(unlink)
	}
	switch err {
	case unix.ENOENT:
		return true
	case unix.ENOTEMPTY, unix.EEXIST:
		err = ErrNotEmpty
	case unix.EISDIR:
		if r.inTheWay {
			return false // a directory is there by now; if that is a failure, it is reported with the entry
		}
	}
	r.told(path, isDir, err)
	return err == nil
}

// openToOwner gives the owner of a directory from which something is removed all rights
// to it, until the remover leaves it. It reports whether the mode was changed.
func (r *remover) openToOwner(fd int) bool {
	n := len(r.way)
	var st unix.Stat_t
	if n == 0 && r.inTheWay || fsys.Fstat(fd, &st) != nil || st.Mode&0o700 == 0o700 || fsys.Fchmod(fd, st.Mode&0o7777|0o700) != nil {
		return false
	}
	if n > 0 && !r.way[n-1].was.is {
		r.way[n-1].was = widened{true, st.Mode & 0o7777}
	}
	return true
}

func (r *remover) told(path string, isDir bool, err error) {
	if err != nil && err != ErrNotEmpty && err != ErrTooMany {
		err = fileset.OpErr("delete", path, err)
	}
	r.rules.Told(Removal{Path: path, Dir: isDir, Bytes: r.bytes, Err: err})
}
