package chunker

import (
	"errors"
	"fmt"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// Rung is how the bytes of a file get to the disk.
type Rung uint8

// The rungs, best first behind RungAuto.
const (
	// RungAuto takes for each file the best rung that its file system has.
	RungAuto Rung = iota
	// RungDirect goes past the page cache (O_DIRECT, open(2)), many requests of one file
	// at once, when writing into space that was allocated beforehand (fallocate(2)).
	RungDirect
	// RungDontCache goes through the page cache, which writes at once and keeps nothing
	// (RWF_DONTCACHE, pwritev2(2), Linux 6.14). RungAuto takes it from Linux 6.16 on, where a
	// file system of which it takes RungDirect refuses that.
	RungDontCache
	// RungBuffered leaves it to the page cache.
	RungBuffered
	// RungRegistered is what an RDMA device read from, or wrote to, the file itself, which lies
	// in memory; see File.Map and Temp.Map. RungAuto leaves it to the caller whether that is
	// worth it. What is asked for by this word and is not read or written so is buffered.
	RungRegistered
	rungs = iota
)

var rungNames = [rungs]string{"auto", "direct", "dontcache", "buffered", "registered"}

// String is the rung's word, as ParseRung takes it.
func (r Rung) String() string {
	if int(r) < len(rungNames) {
		return rungNames[r]
	}
	return fmt.Sprintf("rung %d", uint8(r))
}

// ParseRung is String's inverse. ok is false for a word that is no rung.
func ParseRung(word string) (r Rung, ok bool) {
	for i, name := range rungNames {
		if word == name {
			return Rung(i), true
		}
	}
	return RungAuto, false
}

// ErrNoRung says that a file system does not have the rung that was asked for.
var ErrNoRung = errors.New("the file system does not do this")

// noRung is the error of a file whose file system does not have a rung that was forced.
func noRung(op, path string, r Rung, why error) error {
	return &opError{op: op, path: path, kind: ErrNoRung, err: fmt.Errorf("%v I/O: %w", r, why)}
}

// errNoDisk is why a file system in memory has no rung past the page cache.
var errNoDisk = errors.New("it is in memory")

// errOnDisk is why files of a file system that is not in memory are not registered.
var errOnDisk = errors.New("it is not in memory")

// registers reports whether files that are read or written by a rung may be mapped, to be
// registered.
func (r Rung) registers() bool { return r == RungAuto || r == RungRegistered }

// isNoRung reports whether an error says that the file system does not have a rung: not
// that this file or this disk has a problem.
func isNoRung(err error) bool {
	return err == errNoDisk || err == errOnDisk || err == unix.EINVAL || err == unix.EOPNOTSUPP || err == unix.ENOSYS
}

// RungBytes counts bytes by the rung that they took. The zero value is ready for use.
type RungBytes struct{ bytes [rungs]atomic.Int64 }

func (b *RungBytes) add(r Rung, n int) { b.bytes[r].Add(int64(n)) }

// Of is how many bytes took a rung.
func (b *RungBytes) Of(r Rung) int64 { return b.bytes[r].Load() }

// Wrote counts what was written to files, by rung.
func (s *Sink) Wrote() *RungBytes { return &s.wrote }

// deviceRungs is what a file system of the sink is known to have.
type deviceRungs struct {
	fsType int64 // statfs(2)
	// noDirect and noDontCache: it has refused RungDirect, and RungDontCache.
	noDirect, noDontCache atomic.Bool
	// dropsBehind: the kernel is of a release that RungDontCache can be left to.
	dropsBehind bool
	// aheadBytes is how much space files have that is not written yet.
	aheadBytes atomic.Int64
}

// writesDirectly reports whether auto takes RungDirect on a file system of this type
// (statfs(2)). Ext4 and XFS carry out aligned writes inside a file's size at once, which
// other file systems with a disk of their own do not, or not with checksums of data (btrfs).
func writesDirectly(fsType int64) bool {
	return fsType == unix.EXT4_SUPER_MAGIC || fsType == unix.XFS_SUPER_MAGIC
}

// writesEarly reports whether a file system of this type has a disk to which buffered data
// can be written before it is synced (sync_file_range(2)).
func writesEarly(fsType int64) bool {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.F2FS_SUPER_MAGIC:
		return true
	}
	return false
}

// isMemory reports whether a file system of this type has no disk. Tmpfs takes O_DIRECT
// from Linux 6.6 on, and writes to the page cache all the same.
func isMemory(fsType int64) bool {
	return fsType == unix.TMPFS_MAGIC || fsType == unix.RAMFS_MAGIC
}
