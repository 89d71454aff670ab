package dest

import (
	"bytes"
	"os"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// holeBytes is the unit in which WriteSparse leaves holes: a page, and the
// block of most file systems.
const holeBytes = 4096

// tempIO is the rung by which a Temp is written.
type tempIO struct {
	choose sync.Once
	rung   atomic.Uint32 // Rung; IOAuto until it is chosen
	// direct is for IODirect. It stays when the file system refuses a later write.
	direct atomic.Pointer[directWriter]
	// reached is the furthest end that fallocate(2) was asked for, whether it got there or
	// not: the file may be as long. directWriter.mu guards it while the file is written.
	reached int64
	err     error // why the rung that was asked for is not there
	early   earlySync
	// turn is held during a write(2) where the file system allows one at a time.
	turn sync.Mutex
}

// WriteAt writes all of p at off, blocking for the disk. Many goroutines may write
// different ranges at once. A range beyond the entry's size is refused. ErrNoSpace: the
// disk or quota is full. ErrNoIOMode: see Options.
func (t *Temp) WriteAt(p []byte, off int64) (int, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.checkRange(len(p), off); err != nil {
		return 0, err
	}
	return t.write(p, off)
}

// WriteSparse writes p like WriteAt, but leaves 4 KiB blocks of the file that are all
// zero in p as holes. In a file that did not begin empty it makes them, of 16 KiB at least,
// where the file system has holes, and writes zeros elsewhere. Use it for other files only for
// ranges not written before: old data would show through the holes. The whole of p counts as
// written.
func (t *Temp) WriteSparse(p []byte, off int64) (int, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if err := t.checkRange(len(p), off); err != nil {
		return 0, err
	}
	if t.inOrder != nil {
		return t.write(p, off)
	}
	least := holeBytes
	if t.IsCopy() {
		least = punchedBytes
	}
	for at := 0; at < len(p); {
		data, hole := nextHole(p[at:], off+int64(at), least)
		n, err := t.write(p[at:at+data], off+int64(at))
		at += n
		if err != nil {
			return at, err
		}
		if hole > 0 && t.IsCopy() {
			made, err := t.punch(off+int64(at), int64(hole))
			if err != nil {
				return at, err
			}
			if !made {
				n, err := t.write(p[at:], off+int64(at))
				return at + n, err
			}
		}
		at += hole
	}
	return len(p), nil
}

// punchedBytes is the least hole that is made where data may stand: each one is a call, and
// may be an extent of its own.
const punchedBytes = 16 << 10

// nextHole returns how many bytes of p, which lies at off in its file, come before the first
// run of zero blocks that is no shorter than least, and how long that run is.
func nextHole(p []byte, off int64, least int) (data, hole int) {
	for data < len(p) {
		zeros := zeroBlocks(p[data:], off+int64(data), true)
		if zeros >= least {
			return data, zeros
		}
		data += zeros
		data += zeroBlocks(p[data:], off+int64(data), false)
	}
	return data, 0
}

// zeroBlocks returns how many bytes at the start of p, which lies at off in its file,
// are whole blocks of zeros or, with zero false, are no such blocks.
func zeroBlocks(p []byte, off int64, zero bool) int {
	n := 0
	for n < len(p) {
		block := min(holeBytes-int((off+int64(n))%holeBytes), len(p)-n)
		if isHole := block == holeBytes && isZero(p[n:n+block]); isHole != zero {
			break
		}
		n += block
	}
	return n
}

// isZero compares p with itself shifted by one byte, which the runtime does
// with vector instructions.
func isZero(p []byte) bool {
	return len(p) == 0 || p[0] == 0 && bytes.Equal(p[1:], p[:len(p)-1])
}

func (t *Temp) checkRange(n int, off int64) error {
	if t.state != tempOpen {
		return &fileset.OpError{Op: "write", Path: t.place, Err: os.ErrClosed}
	}
	if off < 0 || int64(n) > t.size || off > t.size-int64(n) {
		return fileset.OpErr("write beyond the end of", t.place, unix.EFBIG)
	}
	return nil
}

// ExpectHoles says that the file has holes, so that no space is allocated for them. Call
// it only before the first write. A file that did not begin with content gets its size now, so
// that no write makes it longer: XFS gives a file that grows more space than is written to it
// (xfs_iomap_prealloc_size in fs/xfs/xfs_iomap.c), which would stay where holes come to be, and
// direct writes behind the end are not carried out at once. Where that fails, writing or Finish
// tells why. A small file has neither, and a server would have to be asked for each: one that
// compresses shows most files so.
func (t *Temp) ExpectHoles() {
	t.sparse = true
	if !t.IsCopy() && t.inOrder == nil && t.size > fsys.LeastDirect {
		_ = fsys.Uninterrupted(func() error { return unix.Ftruncate(t.fd, t.size) })
	}
}

// WritesDirectly reports whether WriteAt of n bytes is likely to wait for the disk, past
// the page cache. Other writes of the file can be under way meanwhile.
func (t *Temp) WritesDirectly(n int) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.state == tempOpen && n >= fsys.LeastDirect && t.chosen() == fileset.IODirect
}

func (t *Temp) write(p []byte, off int64) (n int, err error) {
	if len(p) > 0 {
		t.origin.dirty.Store(true) // before the first byte: a write that fails may have changed a part
	}
	if len(p) >= fsys.LeastDirect {
		if t.chosen() == fileset.IODirect {
			n, err = t.writeDirect(p, off)
		}
	}
	if err == nil && n < len(p) {
		put := t.writeCached
		if t.inOrder != nil {
			put = func(p []byte, off int64) (int, error) { return t.inOrder.write(t, p, off) }
		}
		var m int
		m, err = put(p[n:], off+int64(n))
		n += m
	}
	t.io.direct.Load().spent(int64(n))
	if err != nil {
		return n, err
	}
	end := off + int64(n)
	for seen := t.written.Load(); n > 0 && end > seen && !t.written.CompareAndSwap(seen, end); {
		seen = t.written.Load()
	}
	return n, nil
}

// chosen is the rung by which the file is written. The first call chooses it.
func (t *Temp) chosen() fileset.IOMode {
	t.io.choose.Do(func() {
		r := t.sink.opt.IO
		dev := &t.sink.deviceOf(t.dir).rungs
		if r == fileset.IOAuto {
			r = t.bestRung(dev)
		}
		if r == fileset.IODirect {
			var d *directWriter
			d, t.io.err = t.beginDirect(dev)
			t.io.direct.Store(d)
		}
		switch refused := fileset.LacksIOMode(t.io.err); {
		case refused && t.sink.opt.IO == fileset.IOAuto:
			dev.noDirect.Store(true)
			r, t.io.err = t.bestRung(dev), nil
		case t.io.err != nil && !refused:
			// The page cache may do; if not, writing tells why.
			r, t.io.err = fileset.IOBuffered, nil
		}
		t.io.rung.Store(uint32(r))
	})
	return fileset.IOMode(t.io.rung.Load())
}

// bestRung is the rung that auto takes. What is not synced is left to the page cache, and
// small files. So is a file whose pages are also another's: others may have it mapped, and what
// is compared is in the page cache.
func (t *Temp) bestRung(dev *deviceRungs) fileset.IOMode {
	switch {
	case t.size < writeDirectFrom || t.sink.opt.NoFsync || t.sharesPages() || !fsys.WritesDirectly(dev.fsType):
		return fileset.IOBuffered
	case !dev.noDirect.Load():
		return fileset.IODirect
	case dev.dropsBehind && !dev.noDontCache.Load():
		return fileset.IODontCache
	}
	return fileset.IOBuffered
}

// writeDirect writes what can go past the page cache of p.
func (t *Temp) writeDirect(p []byte, off int64) (int, error) {
	d := t.io.direct.Load()
	err := t.io.err
	n := 0
	if err == nil {
		n, err = d.write(t, p, off)
		t.sink.wrote.Add(fileset.IODirect, n)
	}
	switch {
	case err == nil:
		return n, nil
	case fileset.LacksIOMode(err) && t.sink.opt.IO != fileset.IOAuto:
		return n, fileset.NoIOMode("write", t.place, fileset.IODirect, err)
	case fileset.LacksIOMode(err):
		d.dev.noDirect.Store(true)
		t.io.rung.Store(uint32(fileset.IOBuffered))
		return n, nil
	}
	return n, fileset.OpErr("write", t.place, err)
}

// writeCached writes all of p through the page cache.
func (t *Temp) writeCached(p []byte, off int64) (int, error) {
	n := 0
	for n < len(p) {
		m, err := t.pwrite(p[n:], off+int64(n))
		if err == unix.EINTR {
			continue
		}
		if err == nil && m == 0 {
			err = unix.EIO
		}
		if err != nil {
			return n, fileset.OpErr("write", t.place, err)
		}
		n += m
	}
	t.writeBack(off, int64(n))
	return n, nil
}

func (t *Temp) pwrite(p []byte, off int64) (int, error) {
	if t.sink.oneByOne {
		t.io.turn.Lock()
		defer t.io.turn.Unlock()
	}
	if fileset.IOMode(t.io.rung.Load()) == fileset.IODontCache {
		n, err := unix.Pwritev2(t.fd, [][]byte{p}, off, unix.RWF_DONTCACHE)
		switch {
		case err == nil:
			t.sink.wrote.Add(fileset.IODontCache, n)
			return n, nil
		case !fileset.LacksIOMode(err):
			return n, err
		case t.sink.opt.IO != fileset.IOAuto:
			return n, fileset.NoIOMode("write", t.place, fileset.IODontCache, err)
		}
		t.sink.deviceOf(t.dir).rungs.noDontCache.Store(true)
		t.io.rung.Store(uint32(fileset.IOBuffered))
	}
	n, err := unix.Pwrite(t.fd, p, off)
	if err == nil {
		t.sink.wrote.Add(fileset.IOBuffered, n)
	}
	return n, err
}

// earlyBytes is how much of a file is written through the page cache before the kernel is
// asked to write it to the disk.
const earlyBytes = 8 << 20

// earlySync is what was written through the page cache and is left there: bytes between two
// offsets.
type earlySync struct {
	mu       sync.Mutex
	from, to int64
	bytes    int64
}

// add notes a write. It returns a range that is worth writing to the disk, or nothing.
func (e *earlySync) add(off, n int64) (from, bytes int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.bytes == 0 {
		e.from, e.to = off, off
	}
	e.from, e.to, e.bytes = min(e.from, off), max(e.to, off+n), e.bytes+n
	if e.bytes < earlyBytes {
		return 0, 0
	}
	e.bytes = 0
	return e.from, e.to - e.from
}

// writeBack has the kernel begin to write a large file to the disk while more of it comes,
// so that the sync at its end does not wait for all of it. It asks for no result: an error
// of writing is told by fsync(2), and only once.
func (t *Temp) writeBack(off, n int64) {
	if t.size < 2*earlyBytes || t.sink.opt.NoFsync || n < fsys.LeastDirect || t.chosen() == fileset.IODontCache || !fsys.WritesEarly(t.sink.deviceOf(t.dir).rungs.fsType) {
		return
	}
	if from, bytes := t.io.early.add(off, n); bytes > 0 {
		_ = unix.SyncFileRange(t.fd, from, bytes, unix.SYNC_FILE_RANGE_WRITE)
	}
}

// Wrote counts what was written to files, by rung.
func (s *Sink) Wrote() *fileset.IOBytes { return &s.wrote }

// deviceRungs is what a file system of the sink is known to have.
type deviceRungs struct {
	fsType int64 // statfs(2)
	// noDirect and noDontCache: it has refused IODirect, and IODontCache.
	noDirect, noDontCache atomic.Bool
	// dropsBehind: the kernel is of a release that IODontCache can be left to.
	dropsBehind bool
	// aheadBytes is how much space files have that is not written yet.
	aheadBytes atomic.Int64
}

// AsksServer reports whether entries are made on a file system whose calls may wait for a
// server.
func (s *Sink) AsksServer() bool {
	d := s.deviceOf(s.base)
	return d != nil && fsys.AsksServer(uint32(d.rungs.fsType))
}
