package xfer

import (
	"testing"

	"gdrcp/xfer/internal/wire"
)

// A mark is of one directory, in one session, on one host.
func TestPlaceMark(t *testing.T) {
	host, other := hostMark("host"), hostMark("another")
	want := host.of(1, 2)
	if host.of(1, 2) != want {
		t.Error("another mark for the same directory")
	}
	for _, mark := range []wire.PlaceMark{host.of(1, 3), host.of(2, 2), host.of(2, 1), other.of(1, 2)} {
		if mark == want {
			t.Errorf("%x is the mark of something else", mark)
		}
	}
	a, b := markHost([16]byte{1}), markHost([16]byte{2})
	if a == nil {
		t.Skip("no boot id: mount proc(5)")
	}
	if a.of(1, 2) == b.of(1, 2) {
		t.Error("the same mark in two sessions")
	}
}
