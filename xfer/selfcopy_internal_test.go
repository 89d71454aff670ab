package xfer

import (
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// A mark is of one directory, in one session, on one host.
func TestPlaceMark(t *testing.T) {
	host, other := hostMark("host"), hostMark("another")
	want := host.of(manifest.Inode{Dev: 1, Ino: 2})
	if host.of(manifest.Inode{Dev: 1, Ino: 2}) != want {
		t.Error("another mark for the same directory")
	}
	for _, mark := range []wire.PlaceMark{host.of(manifest.Inode{Dev: 1, Ino: 3}), host.of(manifest.Inode{Dev: 2, Ino: 2}), host.of(manifest.Inode{Dev: 2, Ino: 1}), other.of(manifest.Inode{Dev: 1, Ino: 2})} {
		if mark == want {
			t.Errorf("%x is the mark of something else", mark)
		}
	}
	a, b := markHost([16]byte{1}), markHost([16]byte{2})
	if a == nil {
		t.Skip("no boot id: mount proc(5)")
	}
	if a.of(manifest.Inode{Dev: 1, Ino: 2}) == b.of(manifest.Inode{Dev: 1, Ino: 2}) {
		t.Error("the same mark in two sessions")
	}
}
