package fsys

import "golang.org/x/sys/unix"

// CachedBytes returns how much of a range is in the page cache. The kernel reports it if
// it has CachedPages, but not for files that the user may only read (cachestat(2)).
func CachedBytes(fd int, off, n int64) (int64, error) {
	var has unix.Cachestat_t // in pages
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(off), Len: uint64(n)}, &has, 0)
	return int64(has.Cache) * int64(unix.Getpagesize()), err
}
