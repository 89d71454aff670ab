package xfer

import (
	"bytes"
	"testing"
)

// An end that knows no regions takes three numbers, and refuses a message with more.
func TestDiskIOForAnOlderEnd(t *testing.T) {
	b := DiskIO{Direct: 1, Buffered: 3, Registered: 300}
	for knows, want := range map[bool]DiskIO{true: b, false: {Direct: 1, Buffered: 3}} {
		s := &session{knowsRegions: knows}
		if got := s.known(b); got != want || !knows && !bytes.Equal(got.Encode(), []byte{1, 0, 3}) {
			t.Errorf("knows regions: %v: %+v", knows, got)
		}
	}
}
