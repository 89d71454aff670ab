package xfer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gdrcp/manifest"
)

func TestUnsettledRoundTrip(t *testing.T) {
	component := strings.Repeat("p", manifest.MaxNameBytes-1) + "/"
	longest := unsettled{strings.Repeat(component, manifest.MaxPathBytes/len(component)) + "x", strings.Repeat("t", 2*maxTextBytes)}
	want := []unsettled{{".", ""}, {"a/b", "why"}, {longest.path, longest.text[:maxTextBytes]}}
	var body []byte
	for _, u := range []unsettled{want[0], want[1], longest} {
		one := u.appendTo(nil)
		if len(one) > maxBodyBytes {
			t.Errorf("one takes %d bytes, more than a message", len(one))
		}
		body = append(body, one...)
	}
	var got []unsettled
	if err := decodeUnsettled(body, func(u unsettled) { got = append(got, u) }); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for name, bad := range map[string]unsettled{
		"no path": {"", "why"}, "a way out": {"../x", "why"}, "an absolute path": {"/x", "why"},
	} {
		if err := decodeUnsettled(bad.appendTo(nil), func(unsettled) {}); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := decodeUnsettled(body[:len(body)-1], func(unsettled) {}); !errors.Is(err, ErrProtocol) {
		t.Errorf("cut off: %v", err)
	}
}

func FuzzUnsettled(f *testing.F) {
	first, second := unsettled{".", "why"}, unsettled{"a/b", ""}
	f.Add(second.appendTo(first.appendTo(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		err := decodeUnsettled(b, func(u unsettled) {
			if manifest.CheckPath(u.path) != nil || len(u.text) > maxTextBytes {
				t.Fatalf("%q: %q", u.path, u.text)
			}
			again = u.appendTo(again)
		})
		if err == nil && decodeUnsettled(again, func(unsettled) {}) != nil {
			t.Fatal("what was decoded does not decode again")
		}
	})
}
