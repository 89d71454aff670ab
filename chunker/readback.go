package chunker

import (
	"io"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// diskReader reads a file from its disk, not from the page cache: what was written may
// have been lost on the way there. Many goroutines may read.
type diskReader struct {
	fd     int // the file, of which somebody else is the owner
	direct int // the same past the page cache (O_DIRECT, open(2)), or -1
}

// newDiskReader brings a file to the disk and drops it from the page cache.
func newDiskReader(fd int) (*diskReader, error) {
	if err := fsys.Uninterrupted(func() error { return unix.Fsync(fd) }); err != nil {
		return nil, err
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	r := &diskReader{fd: fd, direct: -1}
	if direct, err := fsys.Reopen(fd, unix.O_RDONLY|unix.O_DIRECT); err == nil {
		r.direct = direct
	}
	return r, nil
}

// newCacheReader makes a diskReader that reads what the page cache has from there.
func newCacheReader(fd int) (*diskReader, error) { return &diskReader{fd: fd, direct: -1}, nil }

// read returns n bytes at off, in buf, which has n bytes or more, whole pages. What lies
// behind the end of the file reads as zeros.
func (r *diskReader) read(buf []byte, off int64, n int) ([]byte, error) {
	got := 0
	if r.direct >= 0 {
		if m, err := unix.Pread(r.direct, buf, off); err == nil {
			got = min(m, n)
		}
	}
	// Where the file system cannot read past the page cache, the cache was dropped.
	m, err := fsys.FDReader(r.fd).ReadAt(buf[got:n], off+int64(got))
	if err != nil && err != io.EOF {
		return nil, err
	}
	clear(buf[got+m : n])
	return buf[:n], nil
}

// dataFrom returns where the next data of the file is, at off or behind it.
func (r *diskReader) dataFrom(off, size int64) int64 { return fsys.DataFrom(r.fd, off, size) }

func (r *diskReader) close() {
	if r.direct >= 0 {
		fsys.CloseQuietly(r.direct)
	}
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
	return t.holds(t.must, t.ownReader(), ErrChanged)
}

// ownReader makes what reads the file once more: past the page cache where it was written so.
func (t *Temp) ownReader() func(fd int) (*diskReader, error) {
	if t.goesPastCache() {
		return newDiskReader
	}
	return newCacheReader
}

// holds reads a file through the reader that begin makes, and compares it with what it
// must hold. The error is bad where it holds something else.
func (t *Temp) holds(c *Content, begin func(fd int) (*diskReader, error), bad error) error {
	r, err := begin(t.fd)
	if err != nil {
		return opErr("read back", t.place, err)
	}
	defer r.close()
	tree := manifest.NewTree(c.Hash)
	ahead := startDigests(pieceFile{r, c.Hash, c.PieceBytes, t.size}, t.sink.places, func(add func(first, pieces uint64, hole bool) bool) {
		for piece, all := uint64(0), max(1, manifest.PieceCount(t.size, c.PieceBytes)); piece < all; {
			run, hole := uint64(1), false
			off := int64(piece) * c.PieceBytes
			if full := (r.dataFrom(off, t.size) - off) / c.PieceBytes; full > 0 && c.Hash != manifest.BLAKE3 {
				run, hole = uint64(full), true // whole pieces, which have the same digest
			}
			if !add(piece, run, hole) {
				return
			}
			piece += run
		}
	})
	defer ahead.close()
	for p := ahead.next(); p != nil; p = ahead.next() {
		if err := t.sink.watch.step(); err != nil {
			return err
		}
		if p.err != nil {
			return opErr("read back", t.place, p.err)
		}
		tree.PushRun(p.digest, p.pieces)
	}
	if tree.Root() != c.Root {
		return kindErr("read back", t.place, bad)
	}
	return nil
}
