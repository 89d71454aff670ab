package fsys

import (
	"os"
	"reflect"

	"golang.org/x/sys/unix"
)

// LeastDirect is the minimum size of a read or write that bypasses the page cache.
const LeastDirect = 64 << 10

// Alignment is the alignment that O_DIRECT requires (statx(2), STATX_DIOALIGN).
type Alignment struct {
	memory uintptr // of addresses
	Bytes  int64   // of offsets and lengths
}

// alignmentOf queries the alignment of an open file. Offsets and lengths are also aligned
// to pages, so that data that bypasses the page cache never shares a page with data that
// does not. If DirectAlignment is missing, the result is what most disks accept.
func alignmentOf(fd int) (Alignment, error) {
	page := int64(os.Getpagesize())
	a := Alignment{memory: uintptr(page), Bytes: page}
	var st unix.Statx_t
	err := Uninterrupted(func() error { return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) })
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 {
		return a, nil
	}
	if st.Dio_offset_align == 0 || st.Dio_mem_align == 0 {
		return a, unix.EOPNOTSUPP
	}
	a.memory = uintptr(st.Dio_mem_align)
	if int64(st.Dio_offset_align)%page == 0 {
		a.Bytes = int64(st.Dio_offset_align)
	}
	return a, nil
}

// Fits returns how many bytes of p, to be written at off in a file, can bypass
// the page cache. The rest, less than a page, cannot.
func (a Alignment) Fits(p []byte, off int64) int {
	if len(p) < LeastDirect || off%a.Bytes != 0 || reflect.ValueOf(p).Pointer()%a.memory != 0 {
		return 0
	}
	return int(int64(len(p)) / a.Bytes * a.Bytes)
}

// OpenDirect opens an open file a second time, with O_DIRECT. It needs the
// permissions on the file that flags require.
func OpenDirect(fd, flags int) (int, Alignment, error) {
	direct, err := Reopen(fd, flags|unix.O_DIRECT)
	if err != nil {
		return -1, Alignment{}, err
	}
	a, err := alignmentOf(direct)
	if err != nil {
		CloseQuietly(direct)
		return -1, a, err
	}
	return direct, a, nil
}
