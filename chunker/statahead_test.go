package chunker

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"gdrcp/chunker/internal/parallel"
	"gdrcp/internal/fusetest"
	"gdrcp/manifest"
)

// entriesOf walks the directory dir, with Pace p at its beginning.
func entriesOf(t *testing.T, dir string, p parallel.Pace) (found []Found) {
	t.Helper()
	w := openLocal(t, false, Source{dir, "."}).Walk(true)
	defer w.Close()
	w.pace = p
	for {
		f, err := w.Next()
		if err == io.EOF {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, *f)
	}
}

// TestWalkAheadFindsTheSame walks directories whose names are asked for ahead.
func TestWalkAheadFindsTheSame(t *testing.T) {
	dir := t.TempDir()
	for i := range 3*statsAhead + 7 {
		path := filepath.Join(dir, fmt.Sprintf("d%d", i%5), fmt.Sprint(i))
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, make([]byte, i), 0o600)); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			if err := errors.Join(os.Symlink("1", path+"-link"), os.Mkdir(path+"-dir", 0o700), syscall.Mkfifo(path+"-fifo", 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	same := func(a, b Found) bool {
		text := func(f *Found) string { return fmt.Sprint(f.Problem) }
		return a.Entry == b.Entry && a.Stamp == b.Stamp && a.Dir == b.Dir && text(&a) == text(&b) && a.Skip == b.Skip && a.Links == b.Links
	}
	want := entriesOf(t, dir, parallel.Pace{})
	var slow parallel.Pace
	slow.Note(time.Hour)
	got := entriesOf(t, dir, slow)
	if !slices.EqualFunc(want, got, same) {
		t.Errorf("%d entries, where a walk that asks for each in turn finds %d", len(got), len(want))
	}
}

// TestStatAheadIsTakenInOrder: of names that the walk does not come to, and of what is no
// longer fresh, nothing is taken.
func TestStatAheadIsTakenInOrder(t *testing.T) {
	ahead := func(asked time.Time) *statAhead {
		s := &statAhead{asked: asked}
		for i := range 4 {
			s.names = append(s.names, fmt.Sprint(i))
			s.answers = append(s.answers, statAnswer{attributes: attributes{uid: uint32(i)}})
		}
		return s
	}
	s := ahead(time.Now())
	for _, c := range []struct {
		name string
		uid  uint32
		ok   bool
	}{{"0", 0, true}, {"2", 2, true}, {"1", 0, false}, {"3", 0, false}} {
		if a, ok := s.take(c.name); ok != c.ok || a.attributes.uid != c.uid {
			t.Errorf("%s: %v, %d", c.name, ok, a.attributes.uid)
		}
	}
	if _, ok := ahead(time.Now().Add(-freshStat)).take("0"); ok {
		t.Error("an old answer was taken")
	}
}

// TestWalkOfASlowServer: a walk does not wait for one name after the other.
func TestWalkOfASlowServer(t *testing.T) {
	below := t.TempDir()
	for i := range 200 {
		if err := os.WriteFile(filepath.Join(below, fmt.Sprint(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, calls := fusetest.MountSlowly(t, below)
	found := entriesOf(t, dir, parallel.Pace{})
	if len(found) != 201 || found[0].Entry.Type != manifest.Dir {
		t.Errorf("%d entries", len(found))
	}
	if calls.Lookups.Most() < 2 {
		t.Error("names were looked up one after the other")
	}
}
