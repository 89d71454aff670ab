package chunker

import (
	"io"
	"strconv"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// diskReader reads a file from its disk, not from the page cache: what was written may
// have been lost on the way there.
type diskReader struct {
	fd     int // the file, of which somebody else is the owner
	direct int // the same past the page cache (O_DIRECT, open(2)), or -1
	buf    []byte
}

// newDiskReader brings a file to the disk and drops it from the page cache. bytes is the
// most that is read at once, a multiple of a page.
func newDiskReader(fd, bytes int) (*diskReader, error) {
	if err := uninterrupted(func() error { return unix.Fsync(fd) }); err != nil {
		return nil, err
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	r, err := newCacheReader(fd, bytes)
	if err != nil {
		return nil, err
	}
	if direct, err := openat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0); err == nil {
		r.direct = direct
	}
	return r, nil
}

// newCacheReader makes a diskReader that reads what the page cache has from there.
func newCacheReader(fd, bytes int) (*diskReader, error) {
	// O_DIRECT wants memory of whole pages.
	buf, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	return &diskReader{fd: fd, direct: -1, buf: buf}, nil
}

// read returns n bytes at off, valid until the next call. What lies behind the end of the
// file reads as zeros.
func (r *diskReader) read(off int64, n int) ([]byte, error) {
	got := 0
	if r.direct >= 0 {
		if m, err := unix.Pread(r.direct, r.buf, off); err == nil {
			got = min(m, n)
		}
	}
	// Where the file system cannot read past the page cache, the cache was dropped.
	m, err := fdReader{r.fd}.ReadAt(r.buf[got:n], off+int64(got))
	if err != nil && err != io.EOF {
		return nil, err
	}
	clear(r.buf[got+m : n])
	return r.buf[:n], nil
}

// dataFrom returns where the next data of the file is, at off or behind it, and size if
// there is only a hole (lseek(2)). If the file system does not report holes, all is data.
func (r *diskReader) dataFrom(off, size int64) int64 { return dataFrom(r.fd, off, size) }

func dataFrom(fd int, off, size int64) int64 {
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

// holeFrom returns where the data at off ends.
func holeFrom(fd int, off, size int64) int64 {
	if at, err := unix.Seek(fd, off, unix.SEEK_HOLE); err == nil && at > off {
		return min(at, size)
	}
	return size
}

func (r *diskReader) close() {
	if r.direct >= 0 {
		closeQuietly(r.direct)
	}
	_ = unix.Munmap(r.buf)
}

// Content is what a file must hold.
type Content struct {
	Hash       manifest.Algorithm
	PieceBytes int64
	Root       manifest.Digest
}

// ReadBack has Publish read the file back from the disk, and refuse it a name where it
// does not hold what it must: then the error is ErrLost. Call it only before Finish.
func (t *Temp) ReadBack(must Content) { t.must, t.fromDisk = &must, true }

// MustHold has Publish read a file that Copy made, and refuse it a name where it does not
// hold what it must: then the error is ErrChanged. Other files hold what was written. Call
// it only before Finish.
func (t *Temp) MustHold(must Content) {
	if t.origin.copied {
		t.must = &must
	}
}

// readBack reads a synced file.
func (t *Temp) readBack() error {
	switch {
	case t.must == nil:
		return nil
	case t.fromDisk:
		return t.holds(t.must, newDiskReader, ErrLost)
	}
	return t.holds(t.must, newCacheReader, ErrChanged)
}

// holds reads a file through the reader that begin makes, and compares it with what it
// must hold. The error is bad where it holds something else.
func (t *Temp) holds(c *Content, begin func(fd, bytes int) (*diskReader, error), bad error) error {
	r, err := begin(t.fd, int(c.PieceBytes))
	if err != nil {
		return opErr("read back", t.path, err)
	}
	defer r.close()
	tree, single := manifest.NewTree(c.Hash), t.size <= c.PieceBytes
	for off, i := int64(0), uint64(0); off < t.size || i == 0; off, i = off+c.PieceBytes, i+1 {
		if err := t.sink.watch.step(); err != nil {
			return err
		}
		if full := (r.dataFrom(off, t.size) - off) / c.PieceBytes; full > 0 && c.Hash != manifest.BLAKE3 {
			// Whole pieces of a hole, which have the same digest.
			tree.PushRun(c.Hash.ZeroPiece(int(c.PieceBytes), i, c.PieceBytes, single), uint64(full))
			off, i = off+(full-1)*c.PieceBytes, i+uint64(full)-1
			continue
		}
		n := int(min(c.PieceBytes, t.size-off))
		b, err := r.read(off, n)
		if err != nil {
			return opErr("read back", t.path, err)
		}
		tree.Push(c.Hash.Piece(b, i, c.PieceBytes, single))
	}
	if tree.Root() != c.Root {
		return kindErr("read back", t.path, bad)
	}
	return nil
}
