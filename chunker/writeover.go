package chunker

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// takeName gives the finished file its name. Some file systems refuse to rename a file that is
// open (gcsfuse, and others that are servers' of Windows): then it is closed first. A name that
// is a mount point, as that of a single file in a container, cannot be replaced: then the file
// there is written itself.
func (t *Temp) takeName() error {
	err := t.moveToName()
	switch {
	case err == unix.EBUSY && t.nameIsMount():
		return t.writeOver()
	case !refusesOpen(err):
		return err
	}
	if err := t.closeEarly(); err != nil {
		return err
	}
	return t.moveToName()
}

func (t *Temp) moveToName() error {
	if err := t.bringBack(); err != nil {
		return err
	}
	return t.sink.moveInto(t.dir, t.name, t.leaf)
}

// refusesOpen reports whether an error of rename(2) may be because the file is open.
func refusesOpen(err error) bool {
	switch err {
	case unix.EOPNOTSUPP, unix.EBUSY, unix.ETXTBSY, unix.EPERM, unix.EACCES:
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
	return fsys.Fstatat(t.dir.fd, t.leaf, &st, unix.AT_SYMLINK_NOFOLLOW) == nil && fsys.IsMount(t.dir.fd, t.leaf, &st, t.dir.inode.Dev)
}

// writeOver writes what the file has into the file that is at its name, as OpenInPlace does,
// and removes the file.
func (t *Temp) writeOver() error {
	e := &manifest.Entry{Type: manifest.File, Path: t.path, Size: t.size, Mode: t.want | t.setID, MtimeNs: t.mtimeNs}
	over, err := t.sink.OpenInPlace(e, t.attrs)
	if err != nil {
		return err
	}
	if over == nil {
		return unix.EBUSY
	}
	over.must, over.fromDisk = t.must, t.fromDisk
	err = t.copyTo(over)
	if err == nil {
		err = over.Finish()
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
	t.made, t.wroteOver = over.made, true
	return errors.Join(over.close(), fsys.Unlinkat(t.dir.fd, t.name))
}

// overBytes is how many bytes are copied at a time.
const overBytes = 1 << 20

func (t *Temp) copyTo(over *Temp) error {
	buf := make([]byte, min(overBytes, max(t.size, 1)))
	for off := int64(0); off < t.size; {
		n, err := fsys.FDReader(t.fd).ReadAt(buf[:min(int64(len(buf)), t.size-off)], off)
		if n == 0 {
			if err == io.EOF {
				err = ErrChanged
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

// WroteOver returns the name of the file if it was written into the one at its name, because
// that is a mount point, or "".
func (t *Temp) WroteOver() string {
	if !t.wroteOver {
		return ""
	}
	return t.place
}
