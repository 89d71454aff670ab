package dest

import (
	"math"
	"sync"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

const (
	// writeDirectFrom is the size of a file from which auto writes past the page cache. It is
	// synced before it gets its name, so the disk has all of it to write in any case.
	writeDirectFrom = 4 << 20
	// leastAheadBytes and mostAheadBytes bound how much space is allocated at a time: three
	// times as much as the file has. What a file that is cut off by a kill holds in vain is no
	// more. Each fallocate(2) waits for all writes of the file that are under way, and lets
	// none begin meanwhile (inode_dio_wait in ext4 and XFS). At 5 GB/s there is such a wait every
	// 0.2 s with 1 GiB at a time, where 256 MiB would have one every 50 ms.
	leastAheadBytes = 64 << 20
	mostAheadBytes  = 1 << 30
)

// directWriter writes a file past the page cache. The Temp owns it.
type directWriter struct {
	fd    int
	align fsys.Alignment
	dev   *deviceRungs

	mu sync.Mutex
	// allocated is where the file's space ends, and ahead how much of that is not written.
	allocated, ahead int64
}

// beginDirect opens the file past the page cache.
func (t *Temp) beginDirect(dev *deviceRungs) (*directWriter, error) {
	if fsys.IsMemory(dev.fsType) {
		return nil, fileset.ErrInMemory
	}
	if t.inOrder != nil {
		return nil, fileset.ErrInOrder // it alone may write to the file
	}
	fd, align, err := t.openToWrite()
	if err != nil {
		return nil, err
	}
	// A file that is gone on with has its space up to its size. What was written since may be any
	// piece, as the last one, which is too short to be written directly.
	d := &directWriter{fd: fd, align: align, dev: dev, allocated: t.made.Size}
	switch {
	case t.sharesPages(), t.sparse:
		d.allocated = math.MaxInt64 // it has its space or shares it, or has its size
	default:
		err = d.allocate(t, min(t.size, d.allocated+fsys.LeastDirect))
		if fileset.LacksIOMode(err) && t.sink.opt.IO == fileset.IODirect {
			// The file system has no fallocate(2), as NFS before 4.2: each write gets its own space.
			d.allocated, err = math.MaxInt64, nil
		}
	}
	if err != nil {
		fsys.CloseQuietly(fd)
		return nil, err
	}
	return d, nil
}

// openToWrite opens the file past the page cache. The mode of a file that is made may keep
// even its owner from opening it again to write.
func (t *Temp) openToWrite() (int, fsys.Alignment, error) {
	fd, align, err := fsys.OpenDirect(t.fd, unix.O_WRONLY)
	if err != unix.EACCES || t.origin.inPlace || fsys.Fchmod(t.fd, t.have|0o200) != nil {
		return fd, align, err
	}
	fd, align, err = fsys.OpenDirect(t.fd, unix.O_WRONLY)
	if back := fsys.Fchmod(t.fd, t.have); back != nil && err == nil {
		fsys.CloseQuietly(fd)
		return -1, align, back
	}
	return fd, align, err
}

// allocate gives the file space up to end, and more ahead of that: no more than half of
// what is free, and where that is refused, what is needed: the disk or a quota may have no room
// for more, and a limit on the size of files (RLIMIT_FSIZE) is less than a stream's, whose end
// is not known.
func (d *directWriter) allocate(t *Temp, end int64) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if end <= d.allocated {
		return nil
	}
	ahead := min(max(3*d.allocated, leastAheadBytes), mostAheadBytes)
	free, _ := fsys.FreeBytes(t.fd)
	ahead = min(ahead, free/2/d.align.Bytes*d.align.Bytes)
	to := min(max(end, d.allocated+ahead), t.size)
	err := d.allocateTo(t, to)
	if err != nil && to > end {
		err = d.allocateTo(t, end)
	}
	return err
}

// allocateTo counts the space before it is there, so that FreeBytes at no time sees it
// neither free nor allocated. On ext4 a call that fails may have made the file longer all
// the same (fallocate(2) says nothing of that).
func (d *directWriter) allocateTo(t *Temp, to int64) error {
	more := to - d.allocated
	t.io.reached = max(t.io.reached, to)
	d.dev.aheadBytes.Add(more)
	if err := fsys.Uninterrupted(func() error { return unix.Fallocate(t.fd, 0, d.allocated, more) }); err != nil {
		d.dev.aheadBytes.Add(-more)
		return err
	}
	d.allocated, d.ahead = to, d.ahead+more
	return nil
}

// spent notes that bytes of the allocated space were written.
func (d *directWriter) spent(n int64) {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n = min(n, d.ahead)
	d.ahead -= n
	d.dev.aheadBytes.Add(-n)
}

// close ends the writing past the page cache. Only some file systems report errors here that
// fsync(2) does not tell (FUSE, NFS). The caller gives the space ahead back, and then calls
// spent for all of it.
func (d *directWriter) close() error {
	if d == nil || d.fd < 0 {
		return nil
	}
	fd := d.fd
	d.fd = -1
	return fsys.CloseFD(fd)
}

// write writes a part of p past the page cache, from its beginning on: all of it but its
// end, or nothing where that is not possible.
func (d *directWriter) write(t *Temp, p []byte, off int64) (int, error) {
	n := d.align.Fits(p, off)
	if n == 0 {
		return 0, nil
	}
	if err := d.allocate(t, off+int64(n)); err != nil {
		return 0, err
	}
	done := 0
	for done < n {
		m, err := unix.Pwrite(d.fd, p[done:n], off+int64(done))
		if err == unix.EINTR {
			continue
		}
		if err == nil && m == 0 {
			err = unix.EIO
		}
		if err != nil {
			return done, err
		}
		if done += m; int64(done)%d.align.Bytes != 0 {
			break // the page cache takes the rest
		}
	}
	return done, nil
}
