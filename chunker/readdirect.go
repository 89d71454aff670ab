package chunker

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Read counts what was read of files, by rung.
func (t *Tree) Read() *RungBytes { return &t.read }

// ReadBy sets the rung by which files are read; without it that is RungAuto. RungDirect is
// taken where the file system has it, and RungDontCache reads as RungBuffered. Call it
// before Open.
func (t *Tree) ReadBy(r Rung) { t.io = r }

// directReader reads a file past the page cache. The File owns it.
type directReader struct {
	choose sync.Once
	fd     int // -1 where the file has no such rung
	align  alignment
	gone   atomic.Bool // a later read was refused
}

// chosenDirect reports whether the file can be read past the page cache. The first call
// opens it so.
func (f *File) chosenDirect() bool {
	f.direct.choose.Do(func() {
		var fs unix.Statfs_t
		if err := uninterrupted(func() error { return unix.Fstatfs(f.fd, &fs) }); err != nil || !f.tree.readsDirectly(fs.Type, f.opened.Size) {
			return
		}
		if fd, align, err := openDirect(f.fd, unix.O_RDONLY); err == nil {
			f.direct.fd, f.direct.align = fd, align
		}
	})
	return f.direct.fd >= 0 && !f.direct.gone.Load()
}

// readsDirectly reports whether a file of that size is read past the page cache, on a file
// system of this type (statfs(2)), as far as it is not cached.
func (t *Tree) readsDirectly(fsType, size int64) bool {
	switch t.io {
	case RungDirect:
		return !isMemory(fsType)
	case RungAuto:
		return size >= directFrom && writesDirectly(fsType)
	}
	return false
}

// Uncached reports whether ReadPart of p from byte off on is to go past the page cache, and
// so waits for the disk. Other reads of the file can be under way meanwhile.
func (f *File) Uncached(p []byte, off int64) bool {
	if len(p) < leastDirect || !f.chosenDirect() || f.direct.align.fits(p, off) == 0 {
		return false
	}
	return f.tree.io == RungDirect || mostlyUncached(f.fd, off, int64(len(p)))
}

// mostlyUncached reports whether the page cache has less than half of a range. It reports
// false where the kernel does not tell: that is before Linux 6.5, and of files that the
// user may only read (cachestat(2)). What reading ahead has brought of a range is to not
// send the next read to the cache, too, and so on to the file's end.
func mostlyUncached(fd int, off, n int64) bool {
	var has unix.Cachestat_t // in pages
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &has, 0)
	return err == nil && has.Cache*uint64(unix.Getpagesize()) < uint64(n)/2
}

// readDirect reads from the beginning of p on past the page cache: all of it but its end,
// less where the file ends, or nothing where that is not possible.
func (f *File) readDirect(p []byte, off int64) (int, error) {
	n := f.direct.align.fits(p, off)
	done := 0
	for done < n {
		m, err := unix.Pread(f.direct.fd, p[done:n], off+int64(done))
		switch {
		case err == unix.EINTR:
			continue
		case isNoRung(err):
			f.direct.gone.Store(true)
			return done, nil
		case err != nil:
			return done, opErr("read", f.path, err)
		}
		f.tree.read.add(RungDirect, m)
		if done += m; m == 0 || int64(done)%f.direct.align.bytes != 0 {
			break // the rest is told by the page cache
		}
	}
	return done, nil
}

// close ends the reading past the page cache.
func (d *directReader) close() {
	if d.fd >= 0 {
		closeQuietly(d.fd) // nothing was written
		d.fd = -1
	}
}
