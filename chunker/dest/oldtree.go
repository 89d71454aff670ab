package dest

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/sorted"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// oldTree is the directory that stands at the final name of a tree that is to appear whole.
type oldTree struct {
	id manifest.Inode
	// free: it is replaced. always: whatever the source has, and whatever is put into it.
	free, always bool
	// looked is a time before the tree is listed, see awaitTick, and listed is that time once it
	// is about to be.
	looked, listed unix.Timespec
	// changed is when the names at its top changed last, before they were compared.
	changed unix.Timespec
}

// lookAtOld notes what stands at the final name, given that it is a directory.
func (s *Sink) lookAtOld() error {
	fd, err := fsys.Openat(s.base.FD, s.leaf, fsys.DirFlags, 0)
	if err != nil {
		return err
	}
	defer fsys.CloseQuietly(fd)
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		return err
	}
	marked, _ := hasTreeMark(fd, markStaging, markWhole, markReplaced)
	always := marked || s.opt.Whole.Force
	s.old = &oldTree{id: fileset.InodeOf(&st), free: always, always: always, changed: st.Mtim}
	return nil
}

// openOld opens what is at the final name, if the tree may replace that: what lookAtOld found,
// once it is free and unless it has got other names at its top since, or a tree that another
// copy has given the name since.
func (s *Sink) openOld() (fd int, err error) {
	if fd, err = fsys.Openat(s.base.FD, s.leaf, fsys.DirFlags, 0); err != nil {
		return -1, err
	}
	var st unix.Stat_t
	if err = fsys.Fstat(fd, &st); err == nil && !s.mayReplace(fd, &st) {
		err = fileset.ErrChanged
	}
	if err != nil {
		fsys.CloseQuietly(fd)
		return -1, err
	}
	return fd, nil
}

func (s *Sink) mayReplace(fd int, st *unix.Stat_t) bool {
	if o := s.old; o != nil && o.id == fileset.InodeOf(st) {
		return o.always || o.free && o.changed == st.Mtim
	}
	marked, _ := hasTreeMark(fd, markStaging, markWhole, markReplaced)
	return marked || s.opt.Whole.Force
}

// Replaced begins a comparison of the directory that the tree will replace with the source, or
// returns nil if none is there. Has and End fail with ErrForeign if the directory has another name
// at its top than the source, or one of another type, unless a copy made it or Whole.Force is
// set. List then reports what is lost with it. Nothing is removed. Of the rules, Looked and
// Stop count.
func (s *Sink) Replaced(looked func(), stop <-chan struct{}) *Surplus {
	if s.old == nil {
		return nil
	}
	s.old.listed = s.old.looked
	u := s.Surplus()
	u.old = s.old
	u.rules = &DeleteRules{DryRun: true, StaysOn: true, Most: -1, Told: func(Removal) {}, Looked: looked, Stop: stop}
	return u
}

// List calls told for everything that the replaced directory has and the source does not. Call it
// after End; it can be called again.
func (u *Surplus) List(told func(Removal)) error {
	rules := *u.rules
	rules.Told = told
	return u.eachFound(&remover{sink: &Sink{}, names: sorted.NewStack(), rules: &rules, late: u.sink.lateNames(0)})
}

// root is where the replaced directory is now, below the sink's base.
func (*oldTree) root(s *Sink) string {
	if s.stage != nil && s.stage.replaced {
		return s.stage.name
	}
	return s.leaf
}

// listingOfOld is the listing of the tree that is replaced, or none if it is another one than was
// listed.
func (s *Sink) listingOfOld(st *unix.Stat_t) oldListing {
	if s.old == nil || s.old.id != fileset.InodeOf(st) || s.old.listed == (unix.Timespec{}) {
		return oldListing{}
	}
	return oldListing{s.old.listed, st.Mtim}
}

// lateNames is nil before the tree is replaced. topped is as in lateNames.
func (s *Sink) lateNames(topped int) *lateNames {
	if s.stage == nil || !s.stage.replaced {
		return nil
	}
	return &lateNames{oldListing: s.stage.listing, newTree: s.stage.fd, topped: topped}
}

// takeOld goes past a name that the source has, too. What is at the name is lost if one of both
// is a directory and the other is not.
func (u *Surplus) takeOld(l *surplusLevel, leaf string, isDir bool) error {
	dir, name := fileset.SplitPath(u.old.root(u.sink) + "/" + fileset.JoinPath(l.path, leaf))
	h, err := u.sink.dir(dir)
	if err != nil {
		return nil // changed meanwhile: what is lost then is not known
	}
	defer h.release()
	var st unix.Stat_t
	if fsys.Fstatat(h.FD, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
		return nil
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		if isDir {
			return nil
		}
	case unix.S_IFREG, unix.S_IFLNK:
		if !isDir {
			return nil
		}
	}
	return u.found(l, leaf)
}

// RemoveReplaced removes the tree that Commit has replaced, with all that is in it except
// what is mounted there, and what was replaced there before by copies that were killed then.
// looked is called for each name, and stop ends it. An error says that something of the tree
// is left, under its reserved name.
func (s *Sink) RemoveReplaced(looked func(), stop <-chan struct{}) error {
	defer s.removeReplacedBefore(looked, stop)
	if s.stage == nil || !s.stage.replaced || s.stage.others && !s.exists(s.stage.name) {
		return nil
	}
	late := s.lateNames(len(s.stage.name) + 1)
	if !s.stage.others && removeTree(s.base.FD, s.stage.name, s.stage.replacedAt, late, looked, func(Removal) {}, stop) {
		return nil
	}
	if late.kept > 0 {
		return fileset.OpErr("remove what was at", s.dest, late.keepLate(s.base.FD, s.stage.name, s.stage.replacedFD))
	}
	return fileset.OpErr("remove what was at", s.dest, errNotAllGone)
}

// removeReplacedBefore removes the trees that earlier copies have replaced and not removed, as
// far as it can: those copies have reported what they had to leave.
func (s *Sink) removeReplacedBefore(looked func(), stop <-chan struct{}) {
	if s.stage == nil {
		return
	}
	names, err := s.otherStages(replacedStem(s.stage.leaf))
	if err != nil {
		return
	}
	in := s.hosts.in(s.base.FD)
	for _, name := range names {
		removeLeftoverStage(in, name, 0, time.Now(), looked, nil, stop)
	}
}

var errNotAllGone = errors.New("not all of it could be removed; gdrcp clean tries again")

// removeTree removes a directory and all in it, but nothing that is mounted there. It
// follows no link, and leaves alone what else may have got the name. It reports each entry, and
// reports whether the name is free. What late keeps stays.
func removeTree(dirfd int, name string, only manifest.Inode, late *lateNames, looked func(), told func(Removal), stop <-chan struct{}) bool {
	r := &remover{sink: &Sink{}, names: sorted.NewStack(), only: only, late: late, rules: &DeleteRules{
		StaysOn: true, Most: -1, Told: told, Looked: looked, Stop: stop,
	}}
	defer r.close()
	return r.remove(dirfd, name, name)
}
