package wire

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gdrcp/manifest"
)

func TestUnsettledRoundTrip(t *testing.T) {
	component := strings.Repeat("p", manifest.MaxNameBytes-1) + "/"
	longest := Unsettled{Path: strings.Repeat(component, manifest.MaxPathBytes/len(component)) + "x", Text: strings.Repeat("t", 2*MaxTextBytes)}
	want := []Unsettled{{Path: "."}, {Path: "a/b", Text: "why"}, {Path: longest.Path, Text: longest.Text[:MaxTextBytes]}}
	var body []byte
	for _, u := range []Unsettled{want[0], want[1], longest} {
		one := u.AppendTo(nil)
		if len(one) > MaxBodyBytes {
			t.Errorf("one takes %d bytes, more than a message", len(one))
		}
		body = append(body, one...)
	}
	var got []Unsettled
	if err := DecodeUnsettled(body, func(u Unsettled) { got = append(got, u) }); err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for name, bad := range map[string]Unsettled{
		"no path": {Text: "why"}, "a way out": {Path: "../x", Text: "why"}, "an absolute path": {Path: "/x", Text: "why"},
	} {
		if err := DecodeUnsettled(bad.AppendTo(nil), func(Unsettled) {}); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := DecodeUnsettled(body[:len(body)-1], func(Unsettled) {}); !errors.Is(err, ErrProtocol) {
		t.Errorf("cut off: %v", err)
	}
}

func FuzzUnsettled(f *testing.F) {
	first, second := Unsettled{Path: ".", Text: "why"}, Unsettled{Path: "a/b"}
	f.Add(second.AppendTo(first.AppendTo(nil)))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		err := DecodeUnsettled(b, func(u Unsettled) {
			if manifest.CheckPath(u.Path) != nil || len(u.Text) > MaxTextBytes {
				t.Fatalf("%q: %q", u.Path, u.Text)
			}
			again = u.AppendTo(again)
		})
		if err == nil && DecodeUnsettled(again, func(Unsettled) {}) != nil {
			t.Fatal("what was decoded does not decode again")
		}
	})
}

func FuzzDeleted(f *testing.F) {
	f.Add(AppendDeleted(AppendDeleted(nil, DeletedDir, "a", ""), DeletedFailed, "b", "why"))
	f.Fuzz(func(t *testing.T, b []byte) {
		var again []byte
		err := DecodeDeleted(b, func(f DeleteOutcome, path, text string) {
			if f < DeletedFile || f > DeletedNone || path == "" || len(path) > manifest.MaxPathBytes || len(text) > MaxTextBytes {
				t.Fatalf("%d of %q: %q", f, path, text)
			}
			again = AppendDeleted(again, f, path, text)
		})
		if err == nil && DecodeDeleted(again, func(DeleteOutcome, string, string) {}) != nil {
			t.Fatal("what was decoded does not decode again")
		}
	})
}
