package fsys

import (
	"os"
	"reflect"

	"golang.org/x/sys/unix"
)

// LeastDirect is the least that is read or written past the page cache at once.
const LeastDirect = 64 << 10

// Alignment is what O_DIRECT asks for (statx(2), STATX_DIOALIGN).
type Alignment struct {
	memory uintptr // of addresses
	Bytes  int64   // of offsets and lengths
}

// alignmentOf asks for the alignment of an open file. Offsets and lengths are those of
// pages, too, so that nothing that is written past the page cache shares a page with what
// is not. Without DirectAlignment that is what most disks take.
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

// Fits returns how many bytes of p, which belong at off in a file, can go past the page
// cache. The rest, less than a page, cannot.
func (a Alignment) Fits(p []byte, off int64) int {
	if len(p) < LeastDirect || off%a.Bytes != 0 || reflect.ValueOf(p).Pointer()%a.memory != 0 {
		return 0
	}
	return int(int64(len(p)) / a.Bytes * a.Bytes)
}

// OpenDirect opens an open file a second time, past the page cache. It needs the rights
// on the file that flags ask for.
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
