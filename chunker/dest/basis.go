package dest

import (
	"errors"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
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
	stamp fileset.Stamp // when it was opened
	must  Content       // once it stays
	watch Watch
}

// origin is what a Temp began as. The zero value is an empty file.
type origin struct {
	cloned, copied bool        // a copy of what stands in its place; see Clone and Copy
	inPlace        bool        // that very file; see OpenInPlace
	dirty          atomic.Bool // something was written, or made a hole
	// narrowed is the file's stamp from when bits of its mode were taken away, until it gets
	// its final metadata; see giveModeBack.
	narrowed fileset.Stamp
	// standing is what stays in its place, whose descriptor the Temp has; see Stay.
	standing *Basis
}

// OpenBasis opens what stands in the place of a file's entry, of which the first bytes
// are to be compared. It follows no link. The error is ErrChanged where no regular file is
// there that has so many or, if that is all of the entry, exactly so many. Everything else
// that keeps the file from being read is an error, too: the file must then come anew. It
// waits as File.AgedStamp does; see Watch.
func (s *Sink) OpenBasis(e *manifest.Entry, a *Attributes, bytes int64) (*Basis, error) {
	t, err := s.newTemp(e, a)
	if err != nil {
		return nil, err
	}
	if s.writesInOrder(t.dir) {
		t.dir.release()
		return nil, fileset.OpErr("compare", t.place, fileset.ErrChanged) // a part of it could not be written
	}
	fd, err := fsys.Openat(t.dir.FD, t.leaf, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err == nil {
		t.fd = fd
		err = fsys.Fstat(fd, &t.made)
	}
	if err == nil && (t.made.Mode&unix.S_IFMT != unix.S_IFREG || t.made.Size < bytes || bytes == e.Size && t.made.Size != bytes) {
		err = fileset.ErrChanged
	}
	if err == nil {
		err = t.awaitAge()
	}
	b := &Basis{temp: t, entry: *e, stamp: fileset.StampOf(&t.made), watch: s.watch}
	if err != nil {
		b.Close()
		return nil, fileset.OpErr("compare", t.place, err)
	}
	t.ino = t.made.Ino
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL)
	return b, nil
}

// awaitAge waits until the stamp of the file that was opened tells of every write. A file
// that changes meanwhile is being written.
func (t *Temp) awaitAge() error {
	was := fileset.StampOf(&t.made)
	if was.FreshFor(time.Now()) == 0 || t.sink.settled.is(was) {
		return nil
	}
	if err := was.AwaitAge(t.sink.watch.Stop); err != nil {
		return err
	}
	now, err := fileset.StampNow(t.fd, "")
	if err != nil || now == was {
		return err
	}
	if now.Inode() != was.Inode() || now.Size != was.Size || !t.sink.settled.is(now) {
		return fileset.ErrChanged
	}
	return fsys.Fstat(t.fd, &t.made)
}

// settledMax bounds the memory of settledStamps.
const settledMax = 4096

// settledStamps are the stamps that files had after this copy gave them attributes. A file with
// other names meets its own at the next one.
type settledStamps struct {
	mu      sync.Mutex
	byInode map[manifest.Inode]fileset.Stamp
}

func (s *settledStamps) note(now fileset.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byInode == nil || len(s.byInode) >= settledMax {
		s.byInode = make(map[manifest.Inode]fileset.Stamp)
	}
	s.byInode[now.Inode()] = now
}

func (s *settledStamps) is(now fileset.Stamp) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	is, known := s.byInode[now.Inode()]
	return known && is == now
}

// Stamp is the file's stamp from when it was opened.
func (b *Basis) Stamp() fileset.Stamp { return b.stamp }

// ReadAt reads all of p from byte off on, blocking for the disk.
func (b *Basis) ReadAt(p []byte, off int64) (int, error) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.temp == nil {
		return 0, &fileset.OpError{Op: "read", Path: b.entry.Path, Err: os.ErrClosed}
	}
	n, err := fsys.FDReader(b.temp.fd).ReadAt(p, off)
	return n, fileset.OpErr("read", b.temp.place, err)
}

// dataFrom returns where the next data of the file is, at off or behind it.
func (b *Basis) dataFrom(off int64) int64 {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.temp == nil {
		return off // reading tells why
	}
	return fsys.DataFrom(b.temp.fd, off, b.temp.size)
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
		fsys.CloseQuietly(b.temp.fd)
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
		return fileset.OpErr("compare", t.place, err)
	}
	if err := t.sink.checkSpelling(t.dir, t.leaf); err != nil {
		return fileset.OpErr("compare", t.place, err)
	}
	now, err := t.sink.Look(t.path)
	if err != nil {
		return err
	}
	if err := t.sink.Settle(&t.origin.standing.entry, t.attrs, now); err != nil {
		return err
	}
	if now.HasOtherNames {
		if settled, err := t.stampAtName(); err == nil {
			t.sink.settled.note(settled)
		}
	}
	return nil
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
		return fileset.ErrChanged
	}
	// What Settle has changed by another name of the file needs no wait.
	if !t.sink.settled.is(now) {
		if err := now.AwaitAge(t.sink.watch.Stop); err != nil {
			return err
		}
	}
	if err := t.holds(&b.must, newCacheReader, fileset.ErrChanged); err != nil {
		return err
	}
	if again, err := t.stampAtName(); err != nil || again != now {
		return errors.Join(err, fileset.ErrChanged)
	}
	return nil
}

// stampAtName is the stamp of what has the entry's name, as it is now.
func (t *Temp) stampAtName() (fileset.Stamp, error) { return fileset.StampNow(t.dir.FD, t.leaf) }

// copyStepBytes is how much Copy copies between two looks at whether it is to end.
const copyStepBytes = 8 << 20

// errNotRead says that a part of a file cannot be read.
var errNotRead = errors.New("cannot be read")

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
		return 0, &fileset.OpError{Op: "read", Path: t.place, Err: os.ErrClosed}
	}
	n, err := fsys.FDReader(t.fd).ReadAt(p, off)
	return n, fileset.OpErr("read", t.place, err)
}

func (t *Temp) dataFrom(off int64) int64 {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state != tempOpen {
		return t.size
	}
	return fsys.DataFrom(t.fd, off, t.size)
}

// MakeHole makes a range of a file that did not begin empty read as zeros:
// by a hole where the file system has holes (fallocate(2)), else by writing zeros. The
// errors are those of WriteAt.
func (t *Temp) MakeHole(off, n int64) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state != tempOpen || off < 0 || n < 0 || off > t.size-n {
		return fileset.OpErr("write beyond the end of", t.place, unix.EFBIG)
	}
	if made, err := t.punch(off, n); made || err != nil {
		return err
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

// punch makes a hole. made is false where the file system has none.
func (t *Temp) punch(off, n int64) (made bool, err error) {
	if n == 0 {
		return true, nil // fallocate(2) refuses that
	}
	t.origin.dirty.Store(true)
	err = fsys.Uninterrupted(func() error {
		return unix.Fallocate(t.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	})
	if err == unix.EOPNOTSUPP || err == unix.ENOSYS {
		return false, nil
	}
	return err == nil, fileset.OpErr("write", t.place, err)
}

// Uncached reports whether a read of a range is to be expected to wait, for the disk or a server:
// whether the kernel has less than half of it in memory. It is false of a short range, of a
// closed file, and where the kernel does not tell (without CachedPages, and to a user who may only
// read the file).
func (b *Basis) Uncached(off, n int64) bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.temp != nil && b.temp.uncached(off, n)
}

// Uncached is Basis.Uncached, of a file that did not begin empty.
func (t *Temp) Uncached(off, n int64) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.state == tempOpen && t.uncached(off, n)
}

// uncached is Uncached with the lock held that keeps the file open.
func (t *Temp) uncached(off, n int64) bool {
	if n < fsys.LeastDirect {
		return false
	}
	if on := t.sink.deviceOf(t.dir); on == nil || fsys.IsMemory(on.rungs.fsType) {
		return false
	}
	cached, err := fsys.CachedBytes(t.fd, off, n)
	return err == nil && cached < n/2
}

// Fetch has the kernel begin to read all of a range: read(2) asks for a part, and for the next
// one only when that has come. It is advice, and so tells of no error.
func (b *Basis) Fetch(off, n int64) {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.temp != nil {
		_ = unix.Fadvise(b.temp.fd, off, n, unix.FADV_WILLNEED)
	}
}

// Fetch is Basis.Fetch, of a file that did not begin empty.
func (t *Temp) Fetch(off, n int64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.state == tempOpen {
		_ = unix.Fadvise(t.fd, off, n, unix.FADV_WILLNEED)
	}
}
