package dest

import (
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/disktest"
)

// A copy of a file that certainly does not fit is not begun (Basis).
func TestRoomForACopy(t *testing.T) {
	dir := disktest.Mount(t, "16M", "mkfs.ext4", "-q", "-F")
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	_, most := s.FileSystemOf("f").FreeBytes()
	b := &Basis{temp: &Temp{fd: s.base.FD}}
	for blocks, want := range map[int64]error{most / 512: nil, most/512 + 8: unix.ENOSPC} {
		b.temp.made.Blocks = blocks
		if err := b.fits(); err != want {
			t.Errorf("%d blocks of 512 bytes: %v, want %v", blocks, err, want)
		}
	}
}
