package dest

import (
	"errors"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// takeName gives the finished file its name. Some file systems refuse to rename a file that is
// open (gcsfuse, and others that are servers' of Windows): then it is closed first. A name that
// is a mount point, as that of a single file in a container, cannot be replaced: then the file
// there is written itself. So is a new one on a file system that renames nothing.
func (t *Temp) takeName() error {
	if t.nameless {
		return t.linkName()
	}
	err := t.moveToName()
	switch {
	case err == unix.EBUSY && t.nameIsMount():
		return t.writeOver(false)
	case !refusesOpen(err):
		return err
	}
	if err := t.closeEarly(); err != nil {
		return err
	}
	err = t.moveToName()
	// FUSE's daemon learns of a close(2) only after it has returned.
	for wait := time.Millisecond; refusesOpen(err) && err != unix.ENOSYS && wait < releaseWait && !t.sink.deviceOf(t.dir).refuses.renames.Load(); wait *= 2 {
		time.Sleep(wait)
		err = t.moveToName()
	}
	if !refusesOpen(err) {
		return err
	}
	return t.writeAnew(err)
}

// releaseWait bounds the last wait for a file system to release a closed file.
const releaseWait = 100 * time.Millisecond

func (t *Temp) moveToName() error {
	if err := t.bringBack(); err != nil {
		return err
	}
	return t.sink.moveInto(t.dir, t.name, t.leaf)
}

// refusesOpen reports whether an error of rename(2) may be because the file is open, or because
// the file system renames nothing.
func refusesOpen(err error) bool {
	switch err {
	case unix.EOPNOTSUPP, unix.EBUSY, unix.ETXTBSY, unix.EPERM, unix.EACCES, unix.ENOSYS:
		return true
	}
	return false
}

// closeEarly closes the file, which is on the disk and read back, before it has its name.
func (t *Temp) closeEarly() error {
	if t.journal != nil {
		t.journal.closeFile()
	}
	fd := t.fd
	t.fd = -1
	return fsys.CloseFD(fd)
}

// nameIsMount reports whether something is mounted on the name that the file is to get.
func (t *Temp) nameIsMount() bool {
	var st unix.Stat_t
	return fsys.Fstatat(t.dir.FD, t.leaf, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && fsys.IsMount(t.dir.FD, t.leaf, &st, t.dir.Inode.Dev)
}

// writeAnew writes what the file has, which is whole and verified, into a new file at its name,
// after rename(2) was refused. If something is there, it may be refused for what that is.
func (t *Temp) writeAnew(refused error) error {
	var st unix.Stat_t
	fd, err := fsys.Openat(t.at().FD, t.name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	if t.fd = fd; fsys.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size != t.size {
		return fileset.ErrChanged
	}
	fd, err = fsys.Openat(t.dir.FD, t.leaf, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return refused
	}
	if err = fsys.CloseFD(fd); err == nil {
		err = t.writeOver(true)
	}
	if err != nil && t.wroteOver == "" && fsys.Unlinkat(t.dir.FD, t.leaf) == nil {
		t.halfOver = false
	}
	return err
}

// writeOver writes what the file has into the file that is at its name, as OpenInPlace does,
// and removes the file. anew: the one at its name was made for that.
func (t *Temp) writeOver(anew bool) error {
	if t.sink.keepsAll && !anew {
		return unix.EBUSY
	}
	e := &manifest.Entry{Type: manifest.File, Path: t.path, Size: t.size, Mode: t.want | t.setID, MtimeNs: t.mtimeNs}
	over, err := t.sink.openInPlace(e, t.attrs)
	if err != nil {
		return err
	}
	if over == nil {
		return unix.EBUSY
	}
	over.must, over.fromDisk = t.must, t.fromDisk
	if t.inOrder != nil {
		over.inOrder = newInOrder() // of the same file system
	}
	err = t.copyTo(over)
	if err == nil {
		err = over.Finish()
	}
	if err == nil && anew && !t.sink.opt.Keep.Modes {
		_ = fsys.Fchmod(over.fd, t.want)
	}
	if err == nil {
		err = t.sink.syncFile(over)
	}
	if err == nil {
		err = over.readBack()
	}
	if err == nil {
		err = over.finishInPlace()
	}
	t.halfOver = err != nil && over.IsHalfWritten()
	if err != nil {
		return errors.Join(err, over.Discard())
	}
	t.made = over.made
	if t.wroteOver = fmt.Sprintf("%q is a mount point, so it was written in place and not replaced", t.place); anew {
		t.wroteOver = fmt.Sprintf("the file system of %q renames no files, so each one is written again under its final name", t.place)
		t.silent = t.sink.deviceOf(t.dir).refuses.renames.Swap(true)
	}
	return errors.Join(over.close(), t.unlink())
}

// overBytes is how many bytes are copied at a time.
const overBytes = 1 << 20

func (t *Temp) copyTo(over *Temp) error {
	buf := make([]byte, min(overBytes, max(t.size, 1)))
	for off := int64(0); off < t.size; {
		n, err := fsys.FDReader(t.fd).ReadAt(buf[:min(int64(len(buf)), t.size-off)], off)
		if n == 0 {
			if err == io.EOF {
				err = fileset.ErrChanged
			}
			return err
		}
		if _, err := over.WriteAt(buf[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}

// WroteOver returns a warning if the file was written into the one at its name, or "": once for
// each mount point, and for each file system that renames nothing.
func (t *Temp) WroteOver() string {
	if t.silent {
		return ""
	}
	return t.wroteOver
}
