package dest

import (
	"encoding/binary"
	"errors"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/sorted"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Surplus finds the names in the directories of a copy that the source lacks. It gets
// the source's entries in order, and reads the same directories of the destination in
// step with them, so it holds only the names of the directories on the way. It writes
// what it finds to a temporary file, and removes it from the destination at the end.
// One goroutine may use it at a time.
type Surplus struct {
	sink   *Sink
	rules  *DeleteRules
	old    *oldTree // whose directories are compared, instead of the copy's, or nil
	names  *sorted.Stack
	levels []surplusLevel
	last   string
	begun  bool

	list   sorted.SpillFile
	out    *sorted.RunWriter // what was found, by path
	record []byte            // of it, space for one
}

// surplusLevel is a directory on the way.
type surplusLevel struct {
	path  string // of its entry; "" above the sources
	names sorted.Names
	id    manifest.Inode // of the directory that was read
	// topDev is the file system of the top above the directory, if the rules stay on
	// that.
	topDev uint64
	// watched: the directory holds something, and nothing has shown that it takes
	// different names for the same.
	watched bool
	// pending are directories in it whose contents are still to come, as in a
	// level of a walk.
	pending []string
}

// Surplus begins a comparison of this sink's directories with the source's. The caller
// closes the Surplus, before the sink. See AllowDelete.
func (s *Sink) Surplus() *Surplus {
	u := &Surplus{sink: s, rules: s.deletes, names: sorted.NewStack()}
	u.levels = []surplusLevel{{names: u.names.Begin()}}
	return u
}

// Has takes an entry of the source. Entries must come in the order of a walk, each
// after its directory; otherwise the error is ErrOrder. The directories of earlier
// entries must have been made. Has blocks for the disk. Other errors are of the
// temporary file.
func (u *Surplus) Has(path string, isDir bool) error {
	if err := fileset.CheckPath("compare", path); err != nil {
		return err
	}
	if u.begun && manifest.ComparePaths(path, u.last) <= 0 {
		return fileset.KindErr("compare", path, ErrOrder)
	}
	u.last, u.begun = path, true
	if err := u.advance(path, false); err != nil {
		return err
	}
	l := &u.levels[len(u.levels)-1]
	leaf := path
	if l.path != "" && l.path != "." {
		leaf = path[len(l.path)+1:]
	}
	if path == "." && len(u.levels) > 1 || strings.IndexByte(leaf, '/') >= 0 {
		return fileset.KindErr("compare", path, ErrOrder)
	}
	if err := u.take(l, leaf, isDir); err != nil {
		return err
	}
	if isDir {
		l.pending = append(l.pending, path)
	}
	return nil
}

// Gone takes an entry that the source had and has lost: whatever the destination has at
// that path stays. It also takes a directory that Has took before, if the directory's
// contents are due: they stay. Errors are those of Has.
func (u *Surplus) Gone(path string) error {
	if !u.begun || manifest.ComparePaths(path, u.last) > 0 {
		return u.Has(path, false)
	}
	if err := u.advance(path+"/", false); err != nil {
		return err
	}
	l := &u.levels[len(u.levels)-1]
	if l.path != path {
		return fileset.KindErr("compare", path, ErrOrder)
	}
	u.names.Drop(&l.names)
	l.names = u.names.Begin()
	return nil
}

// End says that the source has nothing more.
func (u *Surplus) End() error {
	err := u.advance("", true)
	if err == nil && u.old != nil {
		u.old.free = true
	}
	return err
}

// target is where a directory of the comparison is, below the sink's base.
func (u *Surplus) target(op, dir string) (string, error) {
	switch {
	case u.old == nil:
		return u.sink.target(op, dir)
	case dir == ".":
		return u.old.root(u.sink), nil
	}
	return u.old.root(u.sink) + "/" + dir, nil
}

// advance goes on to the directory that path is in; with end, it leaves all
// directories.
func (u *Surplus) advance(path string, end bool) error {
	for {
		l := &u.levels[len(u.levels)-1]
		if n := len(l.pending); n > 0 && (end || isPast(path, l.pending[n-1])) {
			dir := l.pending[n-1]
			l.pending = l.pending[:n-1]
			if err := u.enter(dir); err != nil {
				return err
			}
			continue
		}
		if l.path == "" || (!end && manifest.IsBelow(path, l.path)) {
			return nil
		}
		if err := u.take(l, "", false); err != nil {
			return err
		}
		u.names.Drop(&l.names)
		u.levels = u.levels[:len(u.levels)-1]
	}
}

// isPast reports whether a path, which comes after that of dir, is in dir or comes
// after all of its contents.
func isPast(path, dir string) bool {
	n := len(dir)
	return dir == "." || len(path) <= n || path[:n] != dir || path[n] >= '/'
}

// enter reads a directory of the destination. If it is missing, or is something else,
// its entry's result says so, and enter returns no error.
func (u *Surplus) enter(dir string) error {
	l := surplusLevel{path: dir, names: u.names.Begin()}
	if err := u.readDir(&l, dir); err != nil {
		var told *fileset.OpError
		if !errors.As(err, &told) || u.old != nil && len(u.levels) == 1 { // nothing is known of what would be lost
			return err
		}
		if !errors.Is(err, unix.ENOENT) && !errors.Is(err, fileset.ErrNotDir) {
			u.rules.Told(Removal{Path: dir, Dir: true, Err: err})
			if above := &u.levels[len(u.levels)-1]; u.old != nil && above.id != (manifest.Inode{}) {
				_, leaf := fileset.SplitPath(dir)
				if err := u.found(above, leaf); err != nil { // with all that nobody can list
					return err
				}
			}
		}
		u.names.Drop(&l.names)
		l.names = u.names.Begin()
	}
	u.levels = append(u.levels, l)
	return nil
}

// readDir reads a level's names. An OpError is about the directory, any other
// about the temporary file.
func (u *Surplus) readDir(l *surplusLevel, dir string) error {
	target, err := u.target("read", dir)
	if err != nil {
		return err
	}
	h, err := u.sink.dir(target)
	if err != nil {
		return fileset.OpErr("look for what to delete in", dir, err)
	}
	defer h.release()
	if above := &u.levels[len(u.levels)-1]; above.path == "" {
		l.topDev = h.Inode.Dev
	} else {
		l.topDev = above.topDev
	}
	if h.fresh || u.rules.StaysOn && h.Inode.Dev != l.topDev {
		return nil // nothing foreign is in it, or the rules keep out of it
	}
	fd, done, err := h.readable()
	if err == nil {
		h.Reading.Lock()
		err = u.names.ReadDir(&l.names, fd)
		h.Reading.Unlock()
		done()
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return fileset.OpErr("look for what to delete in", dir, err)
	}
	if err != nil {
		return err
	}
	if err := u.names.Finish(&l.names); err != nil {
		return err
	}
	l.id = h.Inode
	_, l.watched = u.names.Peek(&l.names)
	return nil
}

// take goes past a level's names up to leaf, which the source has, or to the end if
// leaf is empty. The names before leaf are surplus, except temporary files: those
// belong to a copy that is running, or a sweep removes them. In a staging directory
// nobody else has any: what this copy still uses has lost that name before Remove.
func (u *Surplus) take(l *surplusLevel, leaf string, isDir bool) error {
	listed := false
	for {
		name, more := u.names.Peek(&l.names)
		if !more || (leaf != "" && string(name) > leaf) {
			switch {
			case leaf == "":
			case u.old != nil && listed:
				return u.takeOld(l, leaf, isDir)
			case u.old == nil && !listed:
				u.lookForAlias(l, leaf)
			}
			return nil
		}
		u.rules.looked()
		if string(name) == leaf {
			listed = true
		} else if u.old == nil && u.sink.IsAdopted() || !fileset.IsReserved(name) && !u.sink.isPartialsName(name) {
			if err := u.found(l, string(name)); err != nil {
				return err
			}
		}
		if err := u.names.Advance(&l.names); err != nil {
			return err
		}
	}
}

// lookForAlias checks, before the copy makes a name, whether the directory has it
// although reading the directory did not show it. If so, the directory has it under
// another spelling (folded in case, in another form of Unicode, without a dot at its
// end), which would pass for surplus. Or somebody has made the name since the reading:
// lookForAlias cannot tell the two cases apart, so the directory is left alone in both.
func (u *Surplus) lookForAlias(l *surplusLevel, leaf string) {
	if !l.watched {
		return
	}
	target, err := u.sink.target("look at", fileset.JoinPath(l.path, leaf))
	if err != nil {
		return
	}
	dir, leaf := fileset.SplitPath(target)
	h, err := u.sink.dir(dir)
	if err == nil {
		defer h.release()
		var st unix.Stat_t
		if fsys.Fstatat(h.FD, leaf, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return
		}
		h.folding.Store(foldYes)
	}
	u.sink.foundFolding(l.id)
	l.watched = false
}

// foundAt is the length in bytes of what stands before a path in the list of surplus:
// the device and inode of its directory when it was read.
const foundAt = 16

func (u *Surplus) found(l *surplusLevel, name string) error {
	if u.old != nil && !u.old.free && l.path == "." {
		return fileset.KindErr("replace", fileset.JoinPath(u.sink.dest, name), ErrForeign)
	}
	if u.out == nil {
		list, err := u.list.Begin()
		if err != nil {
			return err
		}
		u.out = list.NewRun()
	}
	u.record = binary.NativeEndian.AppendUint64(u.record[:0], l.id.Dev)
	u.record = binary.NativeEndian.AppendUint64(u.record, l.id.Ino)
	return u.out.Add(append(u.record, fileset.JoinPath(l.path, name)...))
}

// Remove removes what was found. Call it after End and after everything that the copy
// makes. DeleteRules.Told gets every result, failures too; the error that Remove
// returns is of the temporary file. Directories from which something is removed keep
// their modes and, if the copy keeps times, their times.
func (u *Surplus) Remove() error {
	return u.eachFound(u.sink.newRemover())
}

// eachFound has a remover go through what was found, and closes it.
func (u *Surplus) eachFound(r *remover) error {
	defer r.close()
	if u.out == nil {
		return nil
	}
	if err := u.out.Flush(); err != nil {
		return err
	}
	c := clearing{surplus: u, remover: r}
	defer c.leave()
	list := sorted.Run{Next: u.out.Start, Stop: u.list.Size}
	for !r.stopped() {
		if err := list.Decode(u.list.File); err != nil || list.Ended {
			return err
		}
		at := manifest.Inode{Dev: binary.NativeEndian.Uint64(list.Name), Ino: binary.NativeEndian.Uint64(list.Name[8:])}
		c.remove(string(list.Name[foundAt:]), at)
	}
	return nil
}

// Close frees what the Surplus holds.
func (u *Surplus) Close() error { return errors.Join(u.list.Close(), u.names.Spill.Close()) }

// clearing is the directory from which something is being removed.
type clearing struct {
	surplus *Surplus
	remover *remover
	dir     string // path of its entry
	h       *dirHandle
	was     unix.Stat_t
}

// remove removes what is at a path, whose directory must be at.
func (c *clearing) remove(path string, at manifest.Inode) {
	dir, leaf := fileset.SplitPath(path)
	if c.h == nil || dir != c.dir {
		c.leave()
		if err := c.enter(dir, at); err != nil {
			c.remover.told(path, false, err)
			return
		}
	}
	if c.surplus.old == nil && c.surplus.sink.wasFoundFolding(c.h.Inode) {
		c.remover.told(path, false, ErrFolds)
		return
	}
	c.remover.remove(c.h.FD, leaf, path)
}

// enter goes to a directory. The directory that was read may have been moved elsewhere,
// and another put in its place: enter accepts only the directory that was read, and
// only at its path.
func (c *clearing) enter(dir string, want manifest.Inode) error {
	target, err := c.surplus.target("delete in", dir)
	if err != nil {
		return err
	}
	if err := c.surplus.sink.checkStillAt(target, want); err != nil {
		return err
	}
	h, err := c.surplus.sink.dir(target)
	if err != nil {
		return err
	}
	if err = fsys.Fstat(h.FD, &c.was); err == nil && h.Inode != want {
		err = fileset.ErrChanged
	}
	if err != nil {
		h.release()
		return err
	}
	c.dir, c.h = dir, h
	if c.remover.late != nil {
		c.remover.late.inTop, c.remover.late.above = dir == ".", c.was.Ctim
	}
	return nil
}

// leave gives the directory back its former time and mode.
func (c *clearing) leave() {
	h := c.h
	if h == nil {
		return
	}
	defer h.release()
	c.h = nil
	if c.remover.rules.DryRun {
		return
	}
	c.surplus.sink.markUnsynced(h)
	var now unix.Stat_t
	err := fsys.Fstat(h.FD, &now)
	if err == nil && c.surplus.sink.opt.Keep.Times && now.Mtim != c.was.Mtim {
		err = fsys.SetTimes(h.FD, ".", c.was.Atim, c.was.Mtim)
		err = fileset.OpErr("set time of", c.dir, c.surplus.sink.lacks(fileset.AttributeTime, c.dir, h, err))
	}
	if err == nil && now.Mode != c.was.Mode {
		err = fileset.OpErr("set mode of", c.dir, fsys.Fchmod(h.FD, c.was.Mode&0o7777))
	}
	if err != nil {
		c.remover.rules.Told(Removal{Path: c.dir, Dir: true, Err: err})
	}
}
