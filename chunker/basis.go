package chunker

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// Basis is the regular file that stands in an entry's place, open to be compared with
// the entry piece by piece. Any number of goroutines may read it at once. Its owner ends
// it with Close, or hands it on with Stay.
type Basis struct {
	mu sync.RWMutex // read: reads; write: the end
	// temp is of the entry. Its descriptor is that of the standing file, which is only
	// read. It is nil after Close and Stay.
	temp  *Temp
	entry manifest.Entry
	stamp Stamp   // when it was opened
	must  Content // once it stays
	watch Watch
}

// origin is what a Temp began as. The zero value is an empty file.
type origin struct {
	cloned, copied bool        // a copy of what stands in its place; see Clone and Copy
	inPlace        bool        // that very file; see OpenInPlace
	dirty          atomic.Bool // something was written, or made a hole
	// standing is what stays in its place, whose descriptor the Temp has; see Stay.
	standing *Basis
}

// OpenBasis opens what stands in the place of a file's entry, of which the first bytes
// are to be compared. It follows no link. The error is ErrChanged where no regular file is
// there that has so many or, if that is all of the entry, exactly so many. Everything else
// that keeps the file from being read is an error, too: the file must then come anew.
func (s *Sink) OpenBasis(e *manifest.Entry, a *Attributes, bytes int64) (*Basis, error) {
	t, err := s.newTemp(e, a)
	if err != nil {
		return nil, err
	}
	fd, err := openat(t.dir.fd, t.leaf, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		t.fd = fd
		err = fstat(fd, &t.made)
	}
	if err == nil && (t.made.Mode&unix.S_IFMT != unix.S_IFREG || t.made.Size < bytes || bytes == e.Size && t.made.Size != bytes) {
		err = ErrChanged
	}
	b := &Basis{temp: t, entry: *e, stamp: stampOf(&t.made), watch: s.watch}
	if err != nil {
		b.Close()
		return nil, opErr("compare", e.Path, err)
	}
	t.ino = t.made.Ino
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL)
	return b, nil
}

// ReadAt reads all of p from byte off on, blocking for the disk.
func (b *Basis) ReadAt(p []byte, off int64) (int, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.temp == nil {
		return 0, &opError{op: "read", path: b.entry.Path, err: os.ErrClosed}
	}
	n, err := fdReader{b.temp.fd}.ReadAt(p, off)
	return n, opErr("read", b.temp.path, err)
}

// dataFrom returns where the next data of the file is, at off or behind it.
func (b *Basis) dataFrom(off int64) int64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.temp == nil {
		return off // reading tells why
	}
	return dataFrom(b.temp.fd, off, b.temp.size)
}

// Stands reports whether the file still stands in the entry's place, as it was when it
// was opened. Call it, Clone and Copy only before Close and Stay.
func (b *Basis) Stands() bool {
	now, err := b.temp.stampAtName()
	return err == nil && now == b.stamp
}

// Close closes the file, once. After Stay it does nothing.
func (b *Basis) Close() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.temp == nil {
		return
	}
	if b.temp.fd >= 0 {
		closeQuietly(b.temp.fd)
	}
	b.temp.dir.release()
	b.temp = nil
}

// Stay ends a Basis whose content is that of the entry. Publish then leaves the file in
// its place, and gives it the owner, group, extended attributes, mode and time of the
// entry, as Settle does; ErrChanged: the content has changed since it was opened, or
// another file stands there. Like any finished Temp it may be discarded, which changes
// nothing at the file. must is what the entry holds.
func (b *Basis) Stay(must Content) *Temp {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.temp
	b.temp, b.must = nil, must
	t.origin.standing, t.state = b, tempFinished
	return t
}

// stay is what Publish does in the place of a rename for a file that stays.
func (t *Temp) stay() error {
	if err := t.checkStands(); err != nil {
		return opErr("compare", t.path, err)
	}
	if t.dir.folds(t.leaf, t.ino) {
		if t.sink.claimedAt(t.dir, t.leaf) {
			return opErr("compare", t.path, ErrTaken)
		}
		t.sink.claimNew(t.dir, t.leaf, t.ino)
	}
	now, err := t.sink.Look(t.path)
	if err != nil {
		return err
	}
	return t.sink.Settle(&t.origin.standing.entry, t.attrs, now)
}

// checkStands checks that the entry's name leads to the file that was compared, and that
// the file has the same content. Only where its stamp has changed, as by chmod(2) or a new
// hard link, its content has to be read again.
func (t *Temp) checkStands() error {
	b := t.origin.standing
	now, err := t.stampAtName()
	if err != nil || now == b.stamp {
		return err
	}
	if now.Inode() != b.stamp.Inode() || now.Size != b.stamp.Size {
		return ErrChanged
	}
	if err := t.holds(&b.must, newCacheReader, ErrChanged); err != nil {
		return err
	}
	if again, err := t.stampAtName(); err != nil || again != now {
		return errors.Join(err, ErrChanged)
	}
	return nil
}

// stampAtName is the stamp of what has the entry's name.
func (t *Temp) stampAtName() (Stamp, error) {
	var st unix.Stat_t
	err := fstatat(t.dir.fd, t.leaf, &st, unix.AT_SYMLINK_NOFOLLOW)
	return stampOf(&st), err
}

// Clone makes a file that begins as a copy of the basis and shares its blocks
// (ioctl_ficlone(2)). It is like one of CreatePartial, or with a nil p like one of
// Create that only its owner may read until it is finished. Its reads (ReadAt) do not
// change with the basis. It is nil where the file system cannot do that.
func (b *Basis) Clone(p *Partial) (*Temp, error) {
	d := b.temp.sink.deviceOf(b.temp.dir)
	if d.noClones.Load() {
		return nil, nil
	}
	t, err := b.create(p)
	if err != nil {
		return nil, nil // Create meets the same error, if anything has to be written at all
	}
	err = uninterrupted(func() error { return unix.IoctlFileClone(t.fd, b.temp.fd) })
	if err == nil {
		t.origin.cloned = true
		err = fstat(t.fd, &t.made)
		t.written.Store(t.made.Size) // where that is not the entry's, Finish mends it
	}
	if err == nil {
		return t, nil
	}
	if err == unix.EOPNOTSUPP || err == unix.ENOTTY || err == unix.ENOSYS {
		d.noClones.Store(true)
	}
	if err := t.Discard(); err != nil {
		return nil, err
	}
	if err = opErr("clone", t.path, err); errors.Is(err, ErrNoSpace) {
		return nil, err
	}
	return nil, nil
}

// Copy makes a file like that of Clone, whose blocks are its own: copy_file_range(2)
// where possible. It has no journal. What is written behind it goes into it. Publish
// compares the whole of it with what it must hold (MustHold), because the basis may have
// changed after a piece was compared and before it was copied. Copy blocks for the disk;
// see Watch. Bytes that cannot be read are left out.
func (b *Basis) Copy() (*Temp, error) {
	t, err := b.create(nil)
	if err != nil {
		return nil, err
	}
	t.origin.copied = true
	if err = b.fits(); err == nil {
		err = b.copyInto(t)
	}
	if err != nil {
		return nil, errors.Join(opErr("copy", t.path, err), t.Discard())
	}
	return t, nil
}

// create makes the file. Nobody else may read it before it is finished, because the old
// content may be for other eyes than the new one.
func (b *Basis) create(p *Partial) (*Temp, error) {
	s := b.temp.sink
	if p != nil {
		return s.CreatePartial(&b.entry, b.temp.attrs, p)
	}
	t, err := s.newTemp(&b.entry, b.temp.attrs)
	if err != nil {
		return nil, err
	}
	t.private, t.wantsJournal = true, true
	if err := t.create(b.entry.Mode); err != nil {
		t.dir.release()
		return nil, opErr("create", t.path, err)
	}
	return t, nil
}

// fits checks that the disk has room for a copy, before most of the copy is made.
func (b *Basis) fits() error {
	var st unix.Statfs_t
	if err := uninterrupted(func() error { return unix.Fstatfs(b.temp.fd, &st) }); err != nil {
		return err
	}
	if need := b.temp.made.Blocks * 512; st.Blocks > 0 && need > int64(st.Bavail)*st.Bsize {
		return unix.ENOSPC
	}
	return nil
}

// copyStepBytes is how much Copy copies between two looks at whether it is to end.
const copyStepBytes = 8 << 20

// copyInto copies all data of the basis. Holes stay holes.
func (b *Basis) copyInto(t *Temp) error {
	c := rangeCopier{from: b.temp.fd, to: t.fd}
	for off := b.dataFrom(0); off < t.size; off = b.dataFrom(off) {
		if err := t.step(); err != nil {
			return err
		}
		n, err := c.copy(off, int(min(copyStepBytes, holeFrom(b.temp.fd, off, t.size)-off)))
		if err == errNotRead {
			// A piece with such a part is never the same, so it is written anew. No piece
			// is smaller than this.
			n = int(manifest.MinPieceBytes - off%manifest.MinPieceBytes)
		} else if err != nil {
			return err
		}
		off += int64(n)
	}
	t.written.Store(t.size)
	return uninterrupted(func() error { return unix.Ftruncate(t.fd, t.size) }) // the end may be a hole
}

// errNotRead says that a part of a file cannot be read.
var errNotRead = errors.New("cannot be read")

// rangeCopier copies ranges of one file to the same place in another.
type rangeCopier struct {
	from, to int
	buf      []byte // used where copy_file_range(2) does not work
}

// copy copies up to most bytes at off, and returns how many. errNotRead: none of them can
// be read.
func (c *rangeCopier) copy(off int64, most int) (int, error) {
	if c.buf == nil {
		in, out := off, off
		n, err := unix.CopyFileRange(c.from, &in, c.to, &out, most, 0)
		switch {
		case err == unix.EINTR:
			return 0, nil
		case err == nil && n > 0:
			return n, nil
		case err == unix.ENOSPC || err == unix.EDQUOT:
			return 0, err
		}
		c.buf = make([]byte, 1<<20)
	}
	n, _ := fdReader{c.from}.ReadAt(c.buf[:min(most, len(c.buf))], off) // an error is met again
	if n == 0 {
		return 0, errNotRead
	}
	for done := 0; done < n; {
		m, err := unix.Pwrite(c.to, c.buf[done:n], off+int64(done))
		if err != nil && err != unix.EINTR {
			return 0, err
		}
		done += max(m, 0)
	}
	return n, nil
}

// IsZero reports whether a range of the file reads as zeros. It does not read holes. It
// reads through buf, and blocks for the disk; see Watch.
func (b *Basis) IsZero(off, n int64, buf []byte) (bool, error) {
	return isZeroIn(b, off, off+n, buf)
}

// IsZero is Basis.IsZero for a file that is being written.
func (t *Temp) IsZero(off, n int64, buf []byte) (bool, error) {
	return isZeroIn(t, off, off+n, buf)
}

// holed is a file that can be read, and whose holes can be passed over.
type holed interface {
	ReadAt(p []byte, off int64) (int, error)
	dataFrom(off int64) int64
	step() error // see Watch
}

func isZeroIn(f holed, off, end int64, buf []byte) (bool, error) {
	for off = f.dataFrom(off); off < end; off = f.dataFrom(off) {
		if err := f.step(); err != nil {
			return false, err
		}
		part := buf[:min(int64(len(buf)), end-off)]
		if _, err := f.ReadAt(part, off); err != nil || !isZero(part) {
			return false, err
		}
		off += int64(len(part))
	}
	return true, nil
}

func (b *Basis) step() error { return b.watch.step() }
func (t *Temp) step() error  { return t.sink.watch.step() }

// ReadAt reads all of p, of a file that did not begin empty.
func (t *Temp) ReadAt(p []byte, off int64) (int, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state != tempOpen {
		return 0, &opError{op: "read", path: t.path, err: os.ErrClosed}
	}
	n, err := fdReader{t.fd}.ReadAt(p, off)
	return n, opErr("read", t.path, err)
}

func (t *Temp) dataFrom(off int64) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state != tempOpen {
		return t.size
	}
	return dataFrom(t.fd, off, t.size)
}

// IsClone reports whether Clone made the file.
func (t *Temp) IsClone() bool { return t.origin.cloned }

// IsCopy reports whether the file began as what stands in its place, as a copy or as that
// file itself: what is the same need not be written, and holes have to be made (MakeHole).
func (t *Temp) IsCopy() bool { return t.origin.cloned || t.origin.copied || t.origin.inPlace }

// MakeHole makes a range of a file that did not begin empty read as zeros:
// by a hole where the file system has holes (fallocate(2)), else by writing zeros. The
// errors are those of WriteAt.
func (t *Temp) MakeHole(off, n int64) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state != tempOpen || off < 0 || n < 0 || off > t.size-n {
		return opErr("write beyond the end of", t.path, unix.EFBIG)
	}
	t.origin.dirty.Store(true)
	err := uninterrupted(func() error {
		return unix.Fallocate(t.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if err == nil || err != unix.EOPNOTSUPP && err != unix.ENOSYS {
		return opErr("write", t.path, err)
	}
	zeros := make([]byte, min(n, 1<<20))
	for end := off + n; off < end; {
		if err := t.sink.watch.step(); err != nil {
			return err
		}
		m, err := t.write(zeros[:min(int64(len(zeros)), end-off)], off)
		if err != nil {
			return err
		}
		off += int64(m)
	}
	return nil
}
