package manifest

import (
	"fmt"
	"testing"
)

// TestUnread: Holds is true for paths below an unread one, and paths that are
// passed or out of order are not kept.
func TestUnread(t *testing.T) {
	var u Unread
	for _, path := range []string{"a", "b/c"} {
		u.Note(path)
	}
	for _, c := range []struct {
		path  string
		holds bool
	}{{"b/c/d", true}, {"b/c/e/f", true}, {"b/d", false}, {"c", false}} {
		if got := u.Holds(c.path); got != c.holds {
			t.Errorf("%s: %v", c.path, got)
		}
	}
	var late Unread // the walk finds d and d-b, and then reads d
	late.Note("d-b")
	late.Note("d")
	if !late.Holds("d/x") || late.Holds("d0") {
		t.Error("what is in a directory that was found before another one")
	}
	for i := range 1000 {
		u.Note(fmt.Sprintf("d%d", 1000-i))
		u.Note(".")
	}
	if n := len(u.paths); n > 1 {
		t.Errorf("%d paths are kept", n)
	}
}
