package cmdline

import (
	"strings"
	"testing"
)

// Lines are never wider than a terminal, and no word is lost.
func TestWrap(t *testing.T) {
	long := strings.Repeat("wörter ", 40)
	for line := range strings.Lines(wrap(long, 20)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpColumns {
			t.Errorf("%q is %d columns wide", line, n)
		}
	}
	if got := strings.Fields(wrap(long, 20)); len(got) != 40 {
		t.Errorf("%d words of 40 are left", len(got))
	}
}

func TestBrief(t *testing.T) {
	for in, want := range map[string]string{
		"copy directories": "copy directories", "how; not why": "how", "a list of things (none), and so on": "a list of things",
		"-0 is short": "-0 is short", "print it.": "print it",
	} {
		if got := Brief(in); got != want {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
}
