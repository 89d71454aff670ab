package xfer

import (
	"errors"
	"fmt"
	"testing"

	"gdrcp/xfer/internal/wire"
)

// The text of several errors is one line, for people, for programs and for the peer.
func TestJoinedErrorsAreOneLine(t *testing.T) {
	err := errors.Join(fmt.Errorf("publish %q: %w", "a\nb", errors.New("no")), errors.New("discard it: no"))
	const want = `publish "a\nb": no; discard it: no`
	var told []string
	o := Options{Report: func(e Event) { told = append(told, e.Text) }}
	a := copyResults{report: o.report}
	if e := a.bookRefused("a", &wire.Exception{Entry: noEntry, Outcome: Failed, Text: err.Error()}); e != nil {
		t.Fatal(e)
	}
	if len(told) != 1 || told[0] != want {
		t.Errorf("%q was told, want %q", told, want)
	}
	if text := toPeer(err); text != want {
		t.Errorf("the peer is told %q, want %q", text, want)
	}
}
