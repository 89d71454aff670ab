package cli

import (
	"strings"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/xfer"
)

func TestDiskIOText(t *testing.T) {
	for want, s := range map[string]*xfer.Summary{
		"":                     {},
		"read by buffered 5 B": {Read: xfer.DiskIO{Buffered: 5}},
		"read by direct 5 B; written by dontcache 9 B, buffered 7 B": {
			Read: xfer.DiskIO{Direct: 5}, Written: xfer.DiskIO{Buffered: 7, DontCache: 9},
		},
	} {
		if got := diskIOText(s); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestRungs(t *testing.T) {
	for _, want := range []fileset.IOMode{fileset.IOAuto, fileset.IODirect, fileset.IODontCache, fileset.IOBuffered} {
		var r fileset.IOMode
		if err := rung(&r).set(want.String()); err != nil || r != want {
			t.Errorf("%v: %v, %v", want, r, err)
		}
	}
	var r fileset.IOMode
	if err := rung(&r).set("registered"); err == nil || !strings.Contains(err.Error(), "buffered") {
		t.Errorf("%v", err)
	}
}
