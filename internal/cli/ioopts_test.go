package cli

import (
	"testing"

	"gdrcp/chunker"
	"gdrcp/xfer"
)

func TestDiskIOText(t *testing.T) {
	for want, s := range map[string]*xfer.Summary{
		"":                     {},
		"read by buffered 5 B": {Read: xfer.DiskIO{Buffered: 5}},
		"read by registered 5 B; written by buffered 7 B, registered 9 B": {
			Read: xfer.DiskIO{Registered: 5}, Written: xfer.DiskIO{Buffered: 7, Registered: 9},
		},
	} {
		if got := diskIOText(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRegisteredCannotBeAskedFor(t *testing.T) {
	var r chunker.Rung
	if err := rung(&r).set(chunker.RungRegistered.String()); err == nil || r != chunker.RungAuto {
		t.Errorf("%v: %v", r, err)
	}
	if err := rung(&r).set("direct"); err != nil || r != chunker.RungDirect {
		t.Errorf("%v: %v", r, err)
	}
}
