package chunker

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// Read counts what was read of files, by rung.
func (t *Tree) Read() *fileset.IOBytes { return &t.read }

// ReadBy sets the rung by which files are read; without it that is IOAuto. IODirect is
// taken where the file system has it, and IODontCache reads as IOBuffered. Call it
// before Open.
func (t *Tree) ReadBy(r fileset.IOMode) { t.io = r }

// directReader reads a file past the page cache. The File owns it.
type directReader struct {
	choose sync.Once
	fd     int // -1 where the file has no such rung
	align  fsys.Alignment
	gone   atomic.Bool // a later read was refused

	probing sync.Once
	probe   int // another descriptor of the file, or -1: see isUncachedAt
}

// chosenDirect reports whether the file can be read past the page cache. The first call
// opens it so.
func (f *File) chosenDirect() bool {
	f.direct.choose.Do(func() {
		if !f.tree.readsDirectly(fsys.Statfs(f.fd).Type, f.opened.Size) {
			return
		}
		if fd, align, err := fsys.OpenDirect(f.fd, unix.O_RDONLY); err == nil {
			f.direct.fd, f.direct.align = fd, align
		}
	})
	return f.direct.fd >= 0 && !f.direct.gone.Load()
}

// readsDirectly reports whether a file of that size is read past the page cache, on a file
// system of this type (statfs(2)), as far as it is not cached.
func (t *Tree) readsDirectly(fsType, size int64) bool {
	switch t.io {
	case fileset.IODirect:
		return !fsys.IsMemory(fsType)
	case fileset.IOAuto:
		return size >= readDirectFrom && fsys.WritesDirectly(fsType)
	}
	return false
}

// Uncached reports whether ReadPart of p from byte off on is to go past the page cache, and
// so waits for the disk. Other reads of the file can be under way meanwhile.
func (f *File) Uncached(p []byte, off int64) bool {
	if len(p) < fsys.LeastDirect || !f.chosenDirect() || f.direct.align.Fits(p, off) == 0 {
		return false
	}
	return f.tree.io == fileset.IODirect || f.mostlyUncached(off, int64(len(p)))
}

// mostlyUncached reports whether the page cache has less than half of a range. What reading
// ahead has brought of a range is to not send the next read to the cache, too, and so on to
// the file's end.
func (f *File) mostlyUncached(off, n int64) bool {
	cached, err := f.tree.cachedBytes(f.fd, off, n)
	if err == nil {
		return cached < n/2
	}
	// At two places at random: asking, by this copy or another, leaves a page in the cache.
	for range 2 {
		if f.direct.isUncachedAt(f.fd, off+rand.Int64N(n)) {
			return true
		}
	}
	return false
}

// isUncachedAt finds out what the kernel does not tell, by a read that does not wait for the
// disk (RWF_NOWAIT, preadv2(2)). The kernel begins to read what is not there. By a descriptor
// of its own, for which reads at random are announced (posix_fadvise(2)), that is one page.
func (d *directReader) isUncachedAt(fd int, off int64) bool {
	d.probing.Do(func() {
		probe, err := fsys.Reopen(fd, unix.O_RDONLY)
		if err != nil {
			return
		}
		if err := unix.Fadvise(probe, 0, 0, unix.FADV_RANDOM); err != nil {
			fsys.CloseQuietly(probe)
			return
		}
		d.probe = probe
	})
	if d.probe < 0 {
		return false
	}
	_, err := unix.Preadv2(d.probe, [][]byte{make([]byte, 1)}, off, unix.RWF_NOWAIT)
	return err == unix.EAGAIN
}

// readDirect reads from the beginning of p on past the page cache: all of it but its end,
// less where the file ends, or nothing where that is not possible.
func (f *File) readDirect(p []byte, off int64) (int, error) {
	n := f.direct.align.Fits(p, off)
	done := 0
	for done < n {
		m, err := unix.Pread(f.direct.fd, p[done:n], off+int64(done))
		switch {
		case err == unix.EINTR:
			continue
		case fileset.LacksIOMode(err):
			f.direct.gone.Store(true)
			return done, nil
		case err != nil:
			return done, fileset.OpErr("read", f.path, err)
		}
		f.tree.read.Add(fileset.IODirect, m)
		if done += m; m == 0 || int64(done)%f.direct.align.Bytes != 0 {
			break // the rest is told by the page cache
		}
	}
	return done, nil
}

// close ends the reading past the page cache.
func (d *directReader) close() {
	for _, fd := range []*int{&d.fd, &d.probe} {
		if *fd >= 0 {
			fsys.CloseQuietly(*fd) // nothing was written
			*fd = -1
		}
	}
}

// readDirectFrom is the size of a file from which auto reads past the page cache. What
// is smaller gains less by that, and a server whose tree many nodes fetch keeps it cached.
const readDirectFrom = 64 << 20

// ErrMisstated: a file holds more or less than its size says, and has not changed.
// ErrHoldsMore and ErrHoldsLess wrap it. Files of /proc have the size 0, files of /sys
// have the size of a page (proc(5), sysfs(5)), and some network file systems report
// sizes late. Only reading such a file to its end shows how much it holds.
var (
	ErrMisstated = errors.New("its length differs from its size")
	ErrHoldsMore = fmt.Errorf("%w: it holds more, as files of /proc do; copy it as a stream (SRC -)", ErrMisstated)
	ErrHoldsLess = fmt.Errorf("%w: it holds less, as files of /sys do; copy it as a stream (SRC -)", ErrMisstated)
)

// ReadPart fills buf from byte off on with a part of a file that should hold size
// bytes, blocking for the disk: past the page cache where direct says so, which only
// Uncached may have said. If the part ends at size, ReadPart checks that the file
// ends there too. If the file has changed, it returns io.ErrUnexpectedEOF or the error
// of unchanged; if not, ErrHoldsMore or ErrHoldsLess.
func (f *File) ReadPart(buf []byte, off, size int64, direct bool, unchanged func() error) (err error) {
	n, goesOn := 0, false
	if direct {
		if n, err = f.readDirect(buf, off); err != nil {
			return err
		}
	}
	isEnd := off+int64(len(buf)) == size
	buf, off = buf[n:], off+int64(n)
	if isEnd {
		goesOn, err = f.ReadEnd(buf, off)
	} else {
		_, err = f.ReadAt(buf, off)
	}
	if err == nil {
		f.tree.read.Add(fileset.IOBuffered, len(buf))
	}
	isShort := errors.Is(err, io.ErrUnexpectedEOF)
	if err == nil && !goesOn || err != nil && !isShort {
		return err
	}
	changed := unchanged()
	switch {
	case changed != nil && isShort:
		return err
	case changed != nil:
		return changed
	case isShort:
		return ErrHoldsLess
	}
	return ErrHoldsMore
}
