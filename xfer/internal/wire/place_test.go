package wire

import (
	"errors"
	"strings"
	"testing"
)

func TestDecodeInto(t *testing.T) {
	mark := strings.Repeat("m", len(PlaceMark{}))
	for _, leaf := range []string{"", "name", "..."} {
		p, err := DecodeInto([]byte(mark + leaf))
		if err != nil || p.Leaf != leaf || string(p.Mark[:]) != mark {
			t.Errorf("%q: %+v, %v", leaf, p, err)
		}
	}
	for _, bad := range []string{"", mark[1:], mark + ".", mark + "..", mark + "a/b", mark + "/a", mark + "a/", mark + "\x00", mark + strings.Repeat("n", 256)} {
		if p, err := DecodeInto([]byte(bad)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %+v, %v", bad, p, err)
		}
	}
}
