package cmdline

import (
	"strings"
	"testing"
)

func TestWrap(t *testing.T) {
	long := strings.Repeat("wörter ", 40)
	for line := range strings.Lines(wrap(long, 20, helpColumns)) {
		if n := len([]rune(strings.TrimSuffix(line, "\n"))); n > helpColumns {
			t.Errorf("%q is %d columns wide", line, n)
		}
	}
	if got := strings.Fields(wrap(long, 20, helpColumns)); len(got) != 40 {
		t.Errorf("%d words of 40 are left", len(got))
	}
}
