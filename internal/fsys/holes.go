package fsys

import "golang.org/x/sys/unix"

// DataFrom returns where the next data of a file is, at off or behind it, and size if there
// is only a hole (lseek(2)). If the file system does not report holes, all is data.
func DataFrom(fd int, off, size int64) int64 {
	for {
		at, err := unix.Seek(fd, off, unix.SEEK_DATA)
		switch err {
		case unix.EINTR:
			continue
		case nil:
			return min(at, size)
		case unix.ENXIO:
			return size
		}
		return off
	}
}

// DataEnd finds where the data of a file ends, for one that goes through the file from
// front to back. It asks once for each range of data: tmpfs looks at every page up to the
// end of the range (mapping_seek_hole_data in mm/filemap.c), and other file systems at every
// extent, so that a question at each step takes time by the square of the range.
type DataEnd struct {
	Seek func(off int64, whence int) (int64, error) // lseek(2)
	stop int64                                      // of the range that was found last
}

// Behind returns where the data at off ends, size at most.
func (d *DataEnd) Behind(off, size int64) int64 {
	if off < d.stop {
		return d.stop
	}
	d.stop = size
	if at, err := d.Seek(off, unix.SEEK_HOLE); err == nil && at > off {
		d.stop = min(at, size)
	}
	return d.stop
}
