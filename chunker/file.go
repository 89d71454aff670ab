package chunker

import (
	"io"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// File is a regular file open for reading. Many goroutines may read at once; call Close
// only when they are done.
type File struct {
	fd     int
	path   string
	opened fileset.Stamp
	tree   *Tree // whose rung it is read by
	taken  bool  // of the tree's budget
	direct directReader
}

// Opened returns the stamp that the file had when it was opened.
func (f *File) Opened() fileset.Stamp { return f.opened }

// Stamp returns the file's stamp as it is now. Where a server has the file, it is asked.
func (f *File) Stamp() (fileset.Stamp, error) {
	now, err := fileset.StampNow(f.fd, "")
	return now, fileset.OpErr("stat", f.path, err)
}

// IsFresh reports whether AgedStamp waits.
func (f *File) IsFresh() bool { return f.opened.FreshFor(time.Now()) > 0 }

// AgedStamp returns a stamp that tells of every write that begins after the call. It waits
// for at most 20 ms, or 2 s more if the file's times are whole seconds, and only if the file was
// changed less than that ago: of many new files a reader waits for the first ones, and the
// others are old by then. The error is context.Canceled if stop is closed first.
func (f *File) AgedStamp(stop <-chan struct{}) (fileset.Stamp, error) {
	if !f.IsFresh() {
		return f.opened, nil
	}
	if err := f.opened.AwaitAge(stop); err != nil {
		return fileset.Stamp{}, err
	}
	return f.Stamp()
}

// ReadAt reads all of p from byte off on, blocking for the disk. Where the file
// ends before p is full the error is io.ErrUnexpectedEOF: the file has shrunk.
func (f *File) ReadAt(p []byte, off int64) (int, error) {
	n, err := fsys.FDReader(f.fd).ReadAt(p, off)
	if err == io.EOF {
		return n, &fileset.OpError{Op: "read", Path: f.path, Err: io.ErrUnexpectedEOF}
	}
	return n, fileset.OpErr("read", f.path, err)
}

// ReadEnd is ReadAt for the last bytes of a file; p may be empty. It reports whether
// the file goes on behind them. That costs nothing unless p is empty: the same call
// asks for one byte more (preadv(2)).
func (f *File) ReadEnd(p []byte, off int64) (goesOn bool, err error) {
	var beyond [1]byte
	for n := 0; ; {
		m, err := unix.Preadv(f.fd, [][]byte{p[n:], beyond[:]}, off+int64(n))
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return false, fileset.OpErr("read", f.path, err)
		case m == 0 && n < len(p):
			return false, &fileset.OpError{Op: "read", Path: f.path, Err: io.ErrUnexpectedEOF}
		}
		if n += m; n >= len(p) {
			return n > len(p), nil
		}
	}
}

// DataFrom returns where the first data in [off, end) is; the bytes before it are a hole and
// read as zeros. It is end if only a hole is left. If the file system does not report holes
// (lseek(2), SEEK_DATA), all is data.
func (f *File) DataFrom(off, end int64) (int64, error) {
	if off >= end {
		return end, nil
	}
	start, err := f.seek(off, unix.SEEK_DATA)
	switch err {
	case nil:
		return min(start, end), nil
	case unix.ENXIO: // nothing but a hole up to the file's end
		return end, nil
	case unix.EINVAL, unix.EOPNOTSUPP, unix.ENOSYS:
		return off, nil
	}
	return 0, fileset.OpErr("seek data in", f.path, err)
}

// Data returns the first range [start, stop) of data in [off, end), as DataFrom does. How
// long it takes depends on how long the range is (see DataEnd), so ask once for each.
func (f *File) Data(off, end int64) (start, stop int64, err error) {
	start, err = f.DataFrom(off, end)
	if err != nil || start >= end {
		return start, start, err
	}
	stop, err = f.seek(start, unix.SEEK_HOLE)
	if err == unix.EINVAL || err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return start, end, nil
	}
	if err == unix.ENXIO || err == nil && stop <= start {
		// The file was cut short between the two calls. Reading it will show that.
		return start, end, nil
	}
	if err != nil {
		return 0, 0, fileset.OpErr("seek hole in", f.path, err)
	}
	return start, min(stop, end), nil
}

func (f *File) seek(off int64, whence int) (int64, error) {
	for {
		n, err := unix.Seek(f.fd, off, whence)
		if err != unix.EINTR {
			return n, err
		}
	}
}

// AdviseSequential tells the kernel to read far ahead (posix_fadvise(2)). It is advice:
// if the kernel refuses it, that is no error.
func (f *File) AdviseSequential() {
	_ = unix.Fadvise(f.fd, 0, 0, unix.FADV_SEQUENTIAL)
}

// Close closes the file, once.
func (f *File) Close() error {
	f.direct.close()
	fd := f.fd
	f.fd = -1
	if fd < 0 {
		return nil
	}
	err := fsys.CloseFD(fd)
	f.tree.files.end(f.taken)
	return fileset.OpErr("close", f.path, err)
}
