package dest

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// leftoverLinkAge is the age from which on a link with a temporary name is a leftover.
// Links cannot be locked, but a copy that makes one renames it at once.
const leftoverLinkAge = time.Minute

// sweep removes from a directory the leftovers of earlier runs that were killed. It
// does so once for as long as the directory is open. It reports no errors: a leftover
// that cannot be removed harms nothing.
//
// It removes entries that are named like this package's temporary files: regular files
// that nobody has locked and no other host may be using, and links older than
// leftoverLinkAge. A partial file stays with its journal for leftoverPartialAge. What is
// removed belongs to the effective user. Root removes what any user has, because root
// gives files away before they get their names. Directories with such a name stay, except
// staging directories that no copy has gone on with for leftoverPartialAge, and empty ones.
func (s *Sink) sweep(h *dirHandle) {
	h.swept.Do(func() {
		here, away := sweepDir(s.hosts.in(h.FD), time.Now()), s.sweepPartials(h)
		h.journals.Store(here || away)
	})
}

// leftoverPartialAge is the age from which on a partial file is a leftover, if no copy
// has gone on with it. Its age is that of its journal.
const leftoverPartialAge = 7 * 24 * time.Hour

// sweepDir sweeps a directory, as it is to be done at a certain time. It reports whether
// there are partial files.
func sweepDir(in *hostsIn, now time.Time) (partials bool) {
	dirfd := in.dirfd
	found := reservedNames(dirfd)
	kept := make(map[string]bool)
	for _, name := range found.journals {
		if temp, keep := keepsPartial(dirfd, name, now); keep {
			kept[temp] = true
		} else {
			dropPartial(in, name)
		}
	}
	for _, name := range found.temps {
		if !kept[name] && !removeLeftover(in, name, false) {
			removeLeftoverLink(in, name, now)
		}
	}
	for _, name := range found.stages {
		removeLeftoverStage(in, name, leftoverPartialAge, now, nil, nil, nil)
	}
	return len(found.journals) > 0
}

// reserved are the names in a directory that this package could have made.
type reserved struct{ temps, journals, stages []string }

// reservedNames lists them, as far as the directory can be read.
func reservedNames(dirfd int) (r reserved) {
	_ = eachNameIn(dirfd, func(name []byte) {
		switch {
		case fileset.IsTemp(name):
			r.temps = append(r.temps, string(name))
		case fileset.IsJournal(name):
			r.journals = append(r.journals, string(name))
		case fileset.IsStage(name):
			r.stages = append(r.stages, string(name))
		}
	})
	return r
}

// keepsPartial reports whether a journal's partial file is to stay for a later copy, and
// returns its name. It may be another user's: root sweeps for all. The file's device does
// not matter, because it may have another number on another host.
func keepsPartial(dirfd int, journal string, now time.Time) (temp string, keep bool) {
	fd, head, _, err := openJournalFile(dirfd, journal, unix.O_RDONLY, false)
	if err != nil {
		return "", false
	}
	defer fsys.CloseQuietly(fd)
	var st, named unix.Stat_t
	if fsys.Fstat(fd, &st) != nil || now.UnixNano()-fsys.Nanoseconds(st.Mtim) >= int64(leftoverPartialAge) {
		return "", false
	}
	if fsys.Fstatat(dirfd, head.temp, &named, unix.AT_SYMLINK_NOFOLLOW) != nil || named.Ino != head.inode.Ino {
		return "", false
	}
	return head.temp, true
}

// dropPartial removes a journal and its partial file, unless a copy is using them, or may
// be on another host, or they are another user's. It reports whether the journal is gone.
func dropPartial(in *hostsIn, journal string) bool {
	dirfd := in.dirfd
	var st unix.Stat_t
	err := fsys.Fstatat(dirfd, journal, &st, unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.ENOENT {
		return true
	}
	if err != nil || !mayBeOurs(&st) {
		return false
	}
	fd, head, seed, err := openJournalFile(dirfd, journal, unix.O_RDONLY, false)
	switch {
	case err == nil:
		inUse := in.mayUsePartial(fd, &head, seed)
		fsys.CloseQuietly(fd)
		if inUse || fsys.Fstatat(dirfd, head.temp, &st, unix.AT_SYMLINK_NOFOLLOW) != unix.ENOENT && !removeLeftover(in, head.temp, true) {
			return false
		}
	case errors.Is(err, errJournal), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		// It was torn when it was begun, or is being begun: then its file is not lost,
		// but cannot be gone on with.
		if in.mayUse(&st) {
			return false
		}
	default:
		return false
	}
	return in.unlink(journal)
}

// removeLeftover removes a file that nobody uses, while it holds the file's lock. A
// process that has just created a file and not locked it yet will then see that the
// file has no name left. With locked, the lock alone says whether the file is in use.
func removeLeftover(in *hostsIn, name string, locked bool) bool {
	fd, ok := lockUnused(in.dirfd, name, true)
	if !ok && !in.blind() {
		if giveBack := openToUser(in.dirfd, name); giveBack != nil {
			fd, ok = lockUnused(in.dirfd, name, true)
			giveBack(!ok)
		}
	}
	if !ok {
		return false
	}
	defer fsys.CloseQuietly(fd)
	return (locked || !in.mayUseFD(fd)) && in.unlink(name)
}

// openToUser lets this user open a file of its own whose final mode lets not even its owner read
// it: a run that was killed right before the file got its name left it so. The caller calls
// giveBack, unless it is nil, which sets the mode again if that is wanted.
func openToUser(dirfd int, name string) (giveBack func(wanted bool)) {
	fd, err := fsys.Openat(dirfd, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		fsys.CloseQuietly(fd)
	}
	if err != unix.EACCES {
		return nil
	}
	fd, err = fsys.Openat(dirfd, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	var st unix.Stat_t
	chmod := func(mode uint32) error {
		return fsys.Uninterrupted(func() error { return unix.Chmod(fsys.DescriptorPath(fd), mode) })
	}
	if fsys.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || !mayBeOurs(&st) || st.Mode&0o400 != 0 || chmod(0o600) != nil {
		fsys.CloseQuietly(fd)
		return nil
	}
	return func(wanted bool) {
		if wanted {
			_ = chmod(st.Mode & 0o7777)
		}
		fsys.CloseQuietly(fd)
	}
}

// lockUnused locks a regular file that nobody else has locked; with ours, only a file
// that this user may have made. The caller owns the descriptor that it returns, which
// holds the lock.
func lockUnused(dirfd int, name string, ours bool) (fd int, ok bool) {
	const flags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	// On NFS an exclusive lock needs a file that is open for writing (flock(2)).
	file, err := fsys.Openat(dirfd, name, unix.O_RDWR|flags, 0)
	if err != nil {
		file, err = fsys.Openat(dirfd, name, unix.O_RDONLY|flags, 0)
	}
	if err != nil {
		return -1, false
	}
	defer func() {
		if !ok {
			fsys.CloseQuietly(file)
		}
	}()
	var st, named unix.Stat_t
	if fsys.Fstat(file, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || (ours && !mayBeOurs(&st)) {
		return -1, false
	}
	if fsys.TryLock(file) != nil {
		return -1, false
	}
	if fsys.Fstatat(dirfd, name, &named, unix.AT_SYMLINK_NOFOLLOW) != nil || fileset.InodeOf(&named) != fileset.InodeOf(&st) {
		return -1, false // published meanwhile
	}
	return file, true
}

func isRegular(dirfd int, name string) bool {
	var st unix.Stat_t
	return fsys.Fstatat(dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG
}

// removeLeftoverLink removes a link that a killed run made and did not rename.
func removeLeftoverLink(in *hostsIn, name string, now time.Time) bool {
	var st unix.Stat_t
	if fsys.Fstatat(in.dirfd, name, &st, unix.AT_SYMLINK_NOFOLLOW) != nil || st.Mode&unix.S_IFMT != unix.S_IFLNK ||
		!mayBeOurs(&st) || now.UnixNano()-fsys.Nanoseconds(st.Ctim) < int64(leftoverLinkAge) {
		return false
	}
	return in.unlink(name)
}

// mayBeOurs reports whether this user, or root for another user, may have made a file.
func mayBeOurs(st *unix.Stat_t) bool { return mayBeOf(os.Geteuid(), st) }

func mayBeOf(euid int, st *unix.Stat_t) bool { return euid == 0 || int(st.Uid) == euid }

// Clean removes from a directory, and from those below it, the temporary files that no
// copy is using, and partial files and staging directories of any age, except what another
// host may be using. removed is called with the path of each below dir, and how many files
// it was and what they held; a staging directory's path ends in a slash. A directory that
// cannot be read does not keep Clean from the others. Links are not followed. The end of ctx
// ends Clean, with its cause.
func Clean(ctx context.Context, dir string, removed func(path string, files, bytes int64)) error {
	root, err := fsys.OpenDirectory(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	tree, err := chunker.OpenRooted(root, []chunker.Source{{Path: ".", Name: "."}}, false)
	if err != nil {
		return err
	}
	defer tree.Close()
	w := tree.Walk(true)
	w.EndWith(ctx)
	defer w.Close()
	var errs []error
	hosts := newOtherHosts()
	for {
		f, err := w.Next()
		if err == io.EOF {
			return errors.Join(errs...)
		}
		if err != nil {
			return errors.Join(append(errs, err)...)
		}
		if f.Problem != nil && !f.Skip {
			errs = append(errs, f.Problem)
		} else if f.Entry.Type == manifest.Dir {
			errs = append(errs, cleanDir(tree, f.Entry.Path, hosts, ctx.Done(), removed))
		}
	}
}

// cleanDir cleans one directory. The error is the first one of what nobody uses and could
// not be removed.
func cleanDir(tree *chunker.Tree, path string, hosts *otherHosts, stop <-chan struct{}, removed func(path string, files, bytes int64)) error {
	fd, done, err := tree.Dir(path)
	if err != nil {
		return err
	}
	defer done()
	gone := func(name string, remove func() bool) {
		var st unix.Stat_t
		if fsys.Fstatat(fd, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && remove() {
			removed(fileset.JoinPath(path, name), 1, st.Size)
		}
	}
	in, found := hosts.in(fd), reservedNames(fd)
	for _, name := range found.temps {
		gone(name, func() bool { return removeLeftover(in, name, false) || removeLeftoverLink(in, name, time.Now()) })
	}
	for _, name := range found.journals {
		gone(name, func() bool { return dropPartial(in, name) })
	}
	for _, name := range found.stages {
		var files, bytes int64
		count := func(r Removal) {
			if !r.Dir && r.Err == nil {
				files++
				bytes += r.Bytes
			}
		}
		if removeLeftoverStage(in, name, 0, time.Now(), nil, count, stop) {
			removed(fileset.JoinPath(path, name)+"/", files, bytes)
		}
	}
	return fileset.OpErr("remove", fileset.JoinPath(path, in.failedName), in.failed)
}
