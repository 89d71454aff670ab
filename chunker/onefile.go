package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// NumbersMayChange reports whether the inode number of an entry may be another one later, or
// that of another file. It blocks to open the first entry of each device.
func (t *Tree) NumbersMayChange(path string, dev uint64) bool {
	if known, ok := t.fileSystems.types.Load(dev); ok {
		return fsys.NumbersMayChange(known.(uint32))
	}
	fd, now, err := t.hold(path)
	if err != nil {
		return true
	}
	defer fsys.CloseQuietly(fd)
	return now.Dev != dev || fsys.NumbersMayChange(t.fileSystems.typeOf(dev, fd))
}

// NumberMayChange reports whether the file may get another inode number when it is closed.
func (f *File) NumberMayChange() bool {
	return fsys.NumbersMayChange(f.tree.fileSystems.typeOf(f.opened.Dev, f.fd))
}

// AreOneFile reports whether two entries whose stamps have the same device and inode number are
// names of one file. If numbers may change, both are held open and compared: two files that are
// open have two numbers.
func (t *Tree) AreOneFile(first, second string, dev uint64) bool {
	if !t.NumbersMayChange(second, dev) {
		return true
	}
	fd, one, err := t.hold(first)
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	fd, other, err := t.hold(second)
	if err != nil {
		return false
	}
	defer fsys.CloseQuietly(fd)
	return one == other
}

// hold opens an entry, whatever it is, and neither reads nor changes it.
func (t *Tree) hold(path string) (fd int, now fileset.Stamp, err error) {
	parent, leaf, err := t.locate(path)
	if err != nil {
		return -1, fileset.Stamp{}, err
	}
	defer parent.Release()
	return fileset.StampHeld(t.openEntry(parent, leaf, path, unix.O_PATH))
}
