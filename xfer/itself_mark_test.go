package xfer

import (
	"errors"
	"strings"
	"testing"
)

// A mark is of one directory, in one session, on one host.
func TestPlaceMark(t *testing.T) {
	host, other := hostMark("host"), hostMark("another")
	want := host.of(1, 2)
	if host.of(1, 2) != want {
		t.Error("another mark for the same directory")
	}
	for _, mark := range []placeMark{host.of(1, 3), host.of(2, 2), host.of(2, 1), other.of(1, 2)} {
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

func TestDecodeInto(t *testing.T) {
	mark := strings.Repeat("m", len(placeMark{}))
	for _, leaf := range []string{"", "name", "..."} {
		p, err := decodeInto([]byte(mark + leaf))
		if err != nil || p.leaf != leaf || string(p.mark[:]) != mark {
			t.Errorf("%q: %+v, %v", leaf, p, err)
		}
	}
	for _, bad := range []string{"", mark[1:], mark + ".", mark + "..", mark + "a/b", mark + "/a", mark + "a/", mark + "\x00", mark + strings.Repeat("n", 256)} {
		if p, err := decodeInto([]byte(bad)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %+v, %v", bad, p, err)
		}
	}
}
