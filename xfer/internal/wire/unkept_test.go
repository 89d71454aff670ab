package wire

import (
	"slices"
	"strings"
	"testing"

	"gdrcp/internal/fileset"
)

func TestUnkept(t *testing.T) {
	list := []fileset.Unkept{
		{Attribute: "time", Dir: ".", Entries: 1, First: "a", Reason: "not permitted"},
		{Attribute: strings.Repeat("x", 255), Dir: strings.Repeat("d/", 2047) + "d", Entries: 1 << 62, First: strings.Repeat("f/", 2047) + "f", Reason: strings.Repeat("é", 4000)},
	}
	var got []fileset.Unkept
	for i := range list {
		body := AppendUnkept(nil, &list[i])
		if len(body) > MaxBodyBytes {
			t.Errorf("%d bytes do not fit a message", len(body))
		}
		if err := DecodeUnkept(body, func(u fileset.Unkept) { got = append(got, u) }); err != nil {
			t.Fatal(err)
		}
		for n := range len(body) {
			if err := DecodeUnkept(body[:n], func(fileset.Unkept) {}); n > 0 && err == nil {
				t.Errorf("%d of %d bytes are a message", n, len(body))
			}
		}
	}
	list[1].Reason = strings.Repeat("é", maxReasonBytes/2)
	if !slices.Equal(got, list) {
		t.Errorf("%v", got)
	}
	for what, u := range map[string]fileset.Unkept{
		"no entries":       {Attribute: "time", Dir: ".", First: "a"},
		"negative entries": {Attribute: "time", Dir: ".", First: "a", Entries: -1},
		"no attribute":     {Dir: ".", First: "a", Entries: 1},
		"a long attribute": {Attribute: strings.Repeat("x", 256), Dir: ".", First: "a", Entries: 1},
		"no directory":     {Attribute: "time", First: "a", Entries: 1},
		"a path outside":   {Attribute: "time", Dir: ".", First: "../a", Entries: 1},
	} {
		if DecodeUnkept(AppendUnkept(nil, &u), func(fileset.Unkept) {}) == nil {
			t.Errorf("%s: it is taken", what)
		}
	}
}
