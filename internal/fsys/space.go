package fsys

import (
	"math"
	"math/bits"
	"os"

	"golang.org/x/sys/unix"
)

// FreeBytes returns the free space of an open file's file system: the expected
// one, and the most that may fit. For root it includes the reserved blocks
// (f_bfree and f_bavail, statfs(2)).
func FreeBytes(fd int) (expected, most int64) {
	st := Statfs(fd)
	return spaceOf(&st, os.Geteuid() == 0)
}

func spaceOf(st *unix.Statfs_t, isRoot bool) (expected, most int64) {
	takesAll := takesEveryByte(st.Type)
	if st.Blocks == 0 || st.Bfree == 0 && !takesAll {
		return math.MaxInt64, math.MaxInt64 // for example a FUSE file system that reports no sizes
	}
	expected, most = blockBytes(st.Bavail, st.Frsize), math.MaxInt64
	if isRoot {
		expected = blockBytes(st.Bfree, st.Frsize)
	}
	if takesAll {
		most = blockBytes(st.Bfree, st.Frsize)
	}
	return expected, most
}

func blockBytes(blocks uint64, size int64) int64 {
	high, low := bits.Mul64(blocks, uint64(size))
	if high != 0 || low > math.MaxInt64 {
		return math.MaxInt64
	}
	return int64(low)
}

// takesEveryByte reports whether, by the type of its file system (statfs(2)), a
// file always takes at least as much space as it has bytes.
func takesEveryByte(fsType int64) bool {
	switch fsType {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.TMPFS_MAGIC, unix.MSDOS_SUPER_MAGIC:
		return true
	}
	return false
}
