package fsys

import "golang.org/x/sys/unix"

// DataFrom returns the offset of the next data of a file at or after off, or size if only
// a hole follows (lseek(2)). If the file system does not report holes, everything is data.
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

// DataEnd finds the ends of the data ranges of a file that is read from front
// to back. It queries each range once: tmpfs looks at every page up to the end
// of the range (mapping_seek_hole_data in mm/filemap.c), and other file systems
// at every extent, so that a query at each step would take quadratic time.
type DataEnd struct {
	Seek func(off int64, whence int) (int64, error) // lseek(2)
	stop int64                                      // end of the last range found
}

// Behind returns the end of the data at off, at most size.
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
