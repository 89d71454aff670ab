package dest

import (
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// A user may say where partial files and their journals lie (Options.PartialDir), as
// with rsync's --partial-dir. A file is made beside its target and moved there before its
// first byte, and moved back before it gets its name: so it has what its own directory
// gives to new files, as a default ACL (acl(5)) or a group, and a directory on another
// file system is noticed before any data.

// errOtherMount says that a file cannot be renamed from a directory to the destination
// (rename(2), EXDEV).
var errOtherMount = errors.New("it is not on the file system of the destination, and no file could get its name from there")

// errShared says that other users could exchange partial files.
var errShared = errors.New("other users may write to it, or own it, and could exchange partial files")

// errInTree says that the directory for partial files is in the copy.
var errInTree = errors.New("it is in the tree that is copied: name a directory outside, or give a name alone, for a directory in each")

// partialPlace is where a sink keeps partial files. With the zero value that is beside
// their targets.
type partialPlace struct {
	name string // of a directory in each directory of the tree, or empty

	mu    sync.Mutex
	all   *dirHandle // the directory for all; nil until it exists
	above *dirHandle // the directory that it is made in
	leaf  string     // its name there
}

// placePartials looks at the directory that the user has named. It makes nothing.
func (s *Sink) placePartials() error {
	dir := s.opt.PartialDir
	if dir == "" {
		return nil
	}
	err := fileset.CheckPartialDir(dir)
	if err == nil && dir[0] != '/' {
		s.partials.name = dir
		return nil
	}
	path := strings.TrimRight(dir, "/")
	if err == nil && s.opt.Root != nil {
		if path, err = fileset.UnderRoot(path); err == nil && leadsThroughStage(path) {
			err = fileset.ErrReserved
		}
	}
	if err == nil {
		err = s.openPlace(path)
	}
	return fileset.OpErr("use for partial files", dir, err)
}

// openPlace opens the directory for all partial files or, where it is missing, the one
// that it is to be made in.
func (s *Sink) openPlace(path string) error {
	p := &s.partials
	fd, err := s.openGiven(path)
	missing := err == unix.ENOENT
	if missing {
		var above string
		above, p.leaf = fileset.CutLeaf(path)
		fd, err = s.openGiven(above)
	}
	if err != nil {
		return err
	}
	h, err := newDirHandle(fd, path)
	if err != nil {
		return err
	}
	if err := checkSameMount(h.FD, s.base.FD); err != nil {
		h.release()
		return err
	}
	if missing {
		p.above = h
		return nil
	}
	p.all = h
	return checkOnlyOurs(h.FD)
}

// checkSameMount returns errOtherMount unless both directories are of the same mount.
// Without MountRoots it compares the file systems alone.
func checkSameMount(one, other int) error {
	var at [2]unix.Statx_t
	for i, fd := range []int{one, other} {
		err := fsys.Uninterrupted(func() error {
			return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_TYPE|unix.STATX_MNT_ID, &at[i])
		})
		if err != nil {
			return err
		}
	}
	a, b := &at[0], &at[1]
	if a.Dev_major != b.Dev_major || a.Dev_minor != b.Dev_minor || a.Mask&b.Mask&unix.STATX_MNT_ID != 0 && a.Mnt_id != b.Mnt_id {
		return errOtherMount
	}
	return nil
}

// checkOnlyOurs returns errShared unless only this user, or root, can change what is in a
// directory.
func checkOnlyOurs(fd int) error {
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		return err
	}
	if uid := int(st.Uid); uid != os.Geteuid() && uid != 0 || st.Mode&0o022 != 0 {
		return errShared
	}
	return nil
}

// checkPartialsOutside refuses a directory for partial files that is in the tree which
// the copy makes or replaces: the copy could publish something over a partial file, or
// delete it. It goes up from the directory to the root.
func (s *Sink) checkPartialsOutside() error {
	p := &s.partials
	from := p.all
	if from == nil {
		from = p.above
	}
	if from == nil || s.single != "" || s.many {
		return nil // openDirAt refuses what leads there
	}
	tops := []manifest.Inode{s.base.Inode}
	if s.prefix != "" {
		tops = tops[:0]
		for _, name := range []string{s.prefix, s.leaf} {
			var st unix.Stat_t
			if name != "" && fsys.Fstatat(s.base.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
				tops = append(tops, fileset.InodeOf(&st))
			}
		}
	}
	in, err := liesIn(from, tops)
	if err == nil && in {
		err = errInTree
	}
	return fileset.OpErr("use for partial files", s.opt.PartialDir, err)
}

// liesIn reports whether a directory is one of tops, or below one.
func liesIn(dir *dirHandle, tops []manifest.Inode) (bool, error) {
	fd, err := fsys.Openat(dir.FD, ".", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	for last := (manifest.Inode{}); err == nil; {
		var st unix.Stat_t
		if err = fsys.Fstat(fd, &st); err != nil {
			break
		}
		at := fileset.InodeOf(&st)
		if at == last || slices.Contains(tops, at) {
			fsys.CloseQuietly(fd)
			return at != last, nil
		}
		last = at
		up, upErr := fsys.Openat(fd, "..", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		fsys.CloseQuietly(fd)
		fd, err = up, upErr
	}
	if fd >= 0 {
		fsys.CloseQuietly(fd)
	}
	return false, err
}

// leadsThroughPartials reports whether a path has the name of directories for partial
// files in it.
func (s *Sink) leadsThroughPartials(path string) bool {
	name := s.partials.name
	return name != "" && strings.Contains(path, name) && slices.Contains(strings.Split(path, "/"), name)
}

// isPartialsName reports whether a name is that of directories for partial files. A tree
// that appears whole is not to have any left: there the name is like any other.
func (s *Sink) isPartialsName(name []byte) bool {
	return s.partials.name != "" && string(name) == s.partials.name && s.stage == nil
}

// isForPartials reports whether a directory is the one for all partial files.
func (s *Sink) isForPartials(id manifest.Inode) bool {
	p := &s.partials
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.all != nil && p.all.Inode == id
}

// openPartials returns, with a reference, the directory for partial files of files in
// dir, and makes it if that is wanted. It is nil where those lie beside their targets:
// where nothing else was asked for, and where the directory cannot be used.
func (s *Sink) openPartials(dir *dirHandle, mayMake bool) *dirHandle {
	p := &s.partials
	if p.name != "" {
		h, err := openPartialsAt(dir, p.name, mayMake)
		if err != nil {
			return nil
		}
		return h
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil && p.above != nil {
		if h, err := openPartialsAt(p.above, p.leaf, mayMake); err == nil {
			p.all = h
		}
	}
	if p.all == nil {
		return nil
	}
	s.sweep(p.all)
	return p.all.retain()
}

func openPartialsAt(dir *dirHandle, name string, mayMake bool) (*dirHandle, error) {
	if mayMake {
		err := fsys.Uninterrupted(func() error { return unix.Mkdirat(dir.FD, name, 0o700) })
		if err != nil && err != unix.EEXIST {
			return nil, err
		}
	}
	fd, err := fsys.Openat(dir.FD, name, fsys.DirFlags, 0)
	if err != nil {
		return nil, err
	}
	h, err := newDirHandle(fd, name)
	if err != nil {
		return nil, err
	}
	if err := checkOnlyOurs(h.FD); err != nil {
		h.release()
		return nil, err
	}
	return h, nil
}

// leavePartials gives back what openPartials has returned for dir. Of directories in each
// directory, one that is empty goes.
func (s *Sink) leavePartials(dir, partials *dirHandle) {
	if partials == nil {
		return
	}
	partials.release()
	if s.partials.name != "" {
		_ = fsys.Uninterrupted(func() error { return unix.Unlinkat(dir.FD, s.partials.name, unix.AT_REMOVEDIR) })
	}
}

// closePartials ends the sink's use of the directory for all.
func (s *Sink) closePartials() {
	s.partials.all.release()
	s.partials.above.release()
}

// sweepPartials sweeps the directory for partial files in dir, if there is one, and
// reports whether it has some.
func (s *Sink) sweepPartials(dir *dirHandle) bool {
	if s.partials.name == "" {
		return false
	}
	h := s.openPartials(dir, false)
	if h == nil {
		return false
	}
	defer s.leavePartials(dir, h)
	return sweepDir(s.hosts.in(h.FD), time.Now())
}

// journalAt returns where the journal of a file named leaf in dir is, if partials is the
// directory for its partial file, or nil where that lies beside its target. In the
// directory for all, the inode of dir tells apart files of the same name: all are on one
// file system, and a directory that is renamed keeps it.
func journalAt(dir, partials *dirHandle, leaf string) (dirfd int, name string) {
	if partials == nil {
		return dir.FD, fileset.JournalName(leaf)
	}
	return partials.FD, fileset.JournalName(string(binary.LittleEndian.AppendUint64(nil, dir.Inode.Ino)) + leaf)
}

// dropPartialsOf removes what earlier copies left of a file, wherever it may lie, unless
// a copy is using it.
func (s *Sink) dropPartialsOf(dir *dirHandle, leaf string) {
	dropPartial(s.hosts.in(dir.FD), fileset.JournalName(leaf))
	if partials := s.openPartials(dir, false); partials != nil {
		fd, name := journalAt(dir, partials, leaf)
		dropPartial(s.hosts.in(fd), name)
		s.leavePartials(dir, partials)
	}
}

// putAway moves a file that has just been made to where partial files lie. Where that is
// not possible it stays beside its target.
func (t *Temp) putAway() {
	for range createTries {
		partials := t.sink.openPartials(t.dir, true)
		if partials == nil {
			return
		}
		err := fsys.Uninterrupted(func() error { return unix.Renameat(t.dir.FD, t.name, partials.FD, t.name) })
		if err == nil {
			t.partials, t.away = partials, true
			return
		}
		t.sink.leavePartials(t.dir, partials)
		if err != unix.ENOENT { // another file has left the directory empty, and it has gone
			return
		}
	}
}

// bringBack moves a file that is to get its name beside its target.
func (t *Temp) bringBack() error {
	if !t.away {
		return nil
	}
	err := fsys.Uninterrupted(func() error { return unix.Renameat(t.partials.FD, t.name, t.dir.FD, t.name) })
	t.away = err != nil
	return err
}

// at is the directory that the file is in.
func (t *Temp) at() *dirHandle {
	if t.away {
		return t.partials
	}
	return t.dir
}

// leaveDirs gives back the directories that the file has used.
func (t *Temp) leaveDirs() {
	t.sink.leavePartials(t.dir, t.partials)
	t.partials, t.away = nil, false
	t.dir.release()
}
