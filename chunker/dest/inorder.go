package dest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// Some file systems by way of FUSE, as those that show a store of objects, take only what is
// written in order, from a file's beginning to its end (goofys, mount-s3). There, what comes out of
// order waits in a temporary file elsewhere until what is before it was written. Pieces come nearly
// in order, so that file holds as much as is under way, and more only of a file with holes. Nothing
// there is resumed, compared or written in place, which needs other writes.

// inOrder writes a file in order.
type inOrder struct {
	mu    sync.Mutex
	next  int64           // where the file ends
	ahead map[int64]int64 // runs of bytes that wait: their lengths by where they begin
	ends  map[int64]int64 // and their beginnings by where they end
	spill *os.File        // holds them, each at its own offset; nil until needed
	// holes is how many bytes more may be holes: see AllowHoles.
	holes int64
}

func newInOrder() *inOrder {
	return &inOrder{ahead: make(map[int64]int64), ends: make(map[int64]int64)}
}

// writesInOrder reports whether the file system of a directory takes writes in order only. The
// first call for it finds that out, by a file of its own, or a later one if the first cannot tell,
// as where it may make no file or a server is away: then the caller's own writes tell why.
func (s *Sink) writesInOrder(h *dirHandle) bool {
	d := s.deviceOf(h)
	if d.rungs.fsType != unix.FUSE_SUPER_MAGIC || s.opt.OnlyLooks {
		return false
	}
	seeks := &d.refuses.seeks
	seeks.mu.Lock()
	defer seeks.mu.Unlock()
	if !seeks.known {
		seeks.is, seeks.known = h.refusesSeeks()
	}
	return seeks.is
}

// refusesSeeks writes a file out of order. It is not sure after an error that may be of this
// directory or this moment alone.
func (h *dirHandle) refusesSeeks() (is, sure bool) {
	try := &Temp{dir: h}
	if _, err := try.openSome(0o600); err != nil {
		return false, false
	}
	var err error
	for _, off := range []int64{holeBytes, 0} {
		if err == nil {
			err = fsys.Uninterrupted(func() error {
				_, err := unix.Pwrite(try.fd, []byte{1}, off)
				return err
			})
		}
	}
	if err == nil {
		err = fsys.Flush(try.fd)
	}
	fsys.CloseQuietly(try.fd)
	_ = try.unlink()
	for _, refusal := range []error{unix.EINVAL, unix.EOPNOTSUPP, unix.ESPIPE, unix.ENOSYS, unix.EPERM} {
		if errors.Is(err, refusal) {
			return true, true
		}
	}
	return false, err == nil
}

// write writes p, or keeps it until its turn comes.
func (o *inOrder) write(t *Temp, p []byte, off int64) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case off < o.next:
		return 0, fileset.OpErr("write", t.place, fmt.Errorf("its file system takes no byte a second time: %w", unix.ESPIPE))
	case off > o.next:
		return len(p), fileset.OpErr("write", t.place, o.keep(p, off))
	}
	n, err := t.writeCached(p, off)
	if o.next += int64(n); err != nil {
		return n, err
	}
	return n, o.drain(t)
}

func (o *inOrder) keep(p []byte, off int64) error {
	if o.spill == nil {
		file, err := fsys.OpenUnlinked(os.TempDir())
		if err != nil {
			return fmt.Errorf("make temporary file for what came out of order: %w", err)
		}
		o.spill = file
	}
	if _, err := o.spill.WriteAt(p, off); err != nil {
		return fmt.Errorf("keep what came out of order in %s: %w", os.TempDir(), err)
	}
	o.add(off, int64(len(p)))
	return nil
}

// add notes a run that waits.
func (o *inOrder) add(off, n int64) {
	if from, ok := o.ends[off]; ok {
		delete(o.ends, off)
		off, n = from, off+n-from
	}
	if more, ok := o.ahead[off+n]; ok {
		delete(o.ahead, off+n)
		n += more
	}
	o.ahead[off], o.ends[off+n] = n, off
}

// Hole says that so many bytes of the file are a hole. Without it what comes behind may have to wait
// for the file's end, and Finish takes them for one only as far as AllowHoles says.
func (t *Temp) Hole(off, n int64) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.inOrder == nil || t.state != tempOpen {
		return nil
	}
	o := t.inOrder
	o.mu.Lock()
	defer o.mu.Unlock()
	if off >= o.next {
		o.add(off, n)
		o.holes -= n
	}
	return o.drain(t)
}

// AllowHoles says, right before Finish, that n bytes of the file are holes, whether Hole was called
// for them or not. Where writes wait for their turn, Finish fails if more than that did not come:
// there would be zeros.
func (t *Temp) AllowHoles(n int64) {
	if o := t.inOrder; o != nil {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.holes += n
	}
}

// drain writes what waits and has its turn.
func (o *inOrder) drain(t *Temp) error {
	for n, ok := o.ahead[o.next]; ok; n, ok = o.ahead[o.next] {
		off := o.next
		if err := o.copy(t, n); err != nil {
			return err
		}
		delete(o.ahead, off)
		delete(o.ends, off+n)
		if o.spill == nil {
			continue
		}
		_ = unix.Fallocate(int(o.spill.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
	}
	return nil
}

// copy writes the next n bytes as the temporary file has them: zeros where nothing was kept.
func (o *inOrder) copy(t *Temp, n int64) error {
	buf := make([]byte, min(n, overBytes))
	for end := o.next + n; o.next < end; {
		p := buf[:min(int64(len(buf)), end-o.next)]
		clear(p)
		if o.spill != nil {
			if got, err := o.spill.ReadAt(p, o.next); err != nil && got < len(p) && err != io.EOF {
				return fileset.OpErr("write", t.place, err)
			}
		}
		m, err := t.writeCached(p, o.next)
		if o.next += int64(m); err != nil {
			return err
		}
	}
	return nil
}

// missing is how many bytes up to a file's end came neither as data nor as a hole.
func (o *inOrder) missing(size int64) int64 {
	n := max(0, size-o.next)
	for off, run := range o.ahead {
		n -= max(0, min(off+run, size)-off)
	}
	return n
}

// finish writes all that waits, and zeros in holes.
func (o *inOrder) finish(t *Temp) error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var err error
	if n := o.missing(t.size); n > o.holes {
		err = fileset.OpErr("write", t.place, fmt.Errorf("%d bytes that are not in a hole did not come", n-o.holes))
	} else {
		err = o.copy(t, max(0, t.size-o.next))
		t.written.Store(o.next)
	}
	return errors.Join(err, o.closeLocked())
}

func (o *inOrder) close() error {
	if o == nil {
		return nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.closeLocked()
}

func (o *inOrder) closeLocked() error {
	if o.spill == nil {
		return nil
	}
	err := o.spill.Close()
	o.spill = nil
	return err
}
