package fsys

import (
	"math"
	"testing"

	"golang.org/x/sys/unix"
)

// Free space is counted in the unit in which it is reported, which may differ
// from that of reads and writes (f_frsize and f_bsize, statfs(2)). For root it
// includes reserved blocks. A file system that may need less space than a
// file's bytes, or that reports nothing, gives no upper bound.
func TestSpaceOf(t *testing.T) {
	const none, mib = math.MaxInt64, 1 << 20
	for _, c := range []struct {
		name           string
		st             unix.Statfs_t
		user, root     int64
		mostIfItCounts int64
	}{
		{"ext4 with reserved blocks", unix.Statfs_t{Type: unix.EXT4_SUPER_MAGIC, Blocks: 100, Bfree: 50, Bavail: 45, Frsize: mib}, 45 * mib, 50 * mib, 50 * mib},
		{"a full disk", unix.Statfs_t{Type: unix.XFS_SUPER_MAGIC, Blocks: 100, Frsize: mib}, 0, 0, 0},
		{"large reads and writes", unix.Statfs_t{Type: unix.TMPFS_MAGIC, Blocks: 100, Bfree: 100, Bavail: 100, Bsize: mib, Frsize: 4096}, 400 << 10, 400 << 10, 400 << 10},
		{"more than can be counted", unix.Statfs_t{Type: unix.EXT4_SUPER_MAGIC, Blocks: 1 << 60, Bfree: 1 << 60, Bavail: 1 << 60, Frsize: 4096}, none, none, none},
		{"memory without a bound", unix.Statfs_t{Type: unix.TMPFS_MAGIC, Frsize: 4096}, none, none, none},
		{"btrfs", unix.Statfs_t{Type: unix.BTRFS_SUPER_MAGIC, Blocks: 100, Bfree: 50, Bavail: 40, Frsize: mib}, 40 * mib, 50 * mib, none},
		{"FUSE that knows a size", unix.Statfs_t{Type: unix.FUSE_SUPER_MAGIC, Blocks: 100, Bfree: 50, Bavail: 50, Frsize: mib}, 50 * mib, 50 * mib, none},
		{"FUSE that says that nothing is free", unix.Statfs_t{Type: unix.FUSE_SUPER_MAGIC, Blocks: 100, Frsize: mib}, none, none, none},
		{"no answer", unix.Statfs_t{}, none, none, none},
	} {
		for isRoot, want := range map[bool]int64{false: c.user, true: c.root} {
			expected, most := spaceOf(&c.st, isRoot)
			if expected != want || most != c.mostIfItCounts {
				t.Errorf("%s, for root %t: %d bytes, at most %d, want %d and %d", c.name, isRoot, expected, most, want, c.mostIfItCounts)
			}
		}
	}
}
