package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
)

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
