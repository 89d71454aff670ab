package xfer

import (
	"errors"
	"strings"
	"testing"

	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// The user gets a sink's warnings sanitized, and no more of them than a sink has.
func TestWarnings(t *testing.T) {
	var got []string
	s := &source{Session: &flow.Session{Session: &link.Session{Client: true, Report: func(e Event) { got = append(got, e.Text) }}}}
	for range maxWarnings {
		if err := s.hearWarning([]byte("a\x1b[2Jb")); err != nil {
			t.Fatal(err)
		}
	}
	if len(got) != maxWarnings || strings.Contains(got[0], "\x1b") {
		t.Errorf("%d warnings, the first %q", len(got), got[0])
	}
	if err := s.hearWarning([]byte("more")); !errors.Is(err, ErrProtocol) {
		t.Errorf("one more: %v", err)
	}
	for _, body := range []string{"", strings.Repeat("x", wire.MaxTextBytes+1), "\xff"} {
		if err := (&source{Session: s.Session}).hearWarning([]byte(body)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes: %v", len(body), err)
		}
	}
	if err := (&source{Session: &flow.Session{Session: &link.Session{}}}).hearWarning([]byte("to a server")); !errors.Is(err, ErrProtocol) {
		t.Errorf("at a server: %v", err)
	}
}
