package dest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/fusetest"
)

// TestNamesOnASlowServer: files in several directories get their names at once, and the
// entries that come next are looked for together.
func TestNamesOnASlowServer(t *testing.T) {
	below := t.TempDir()
	var names []string
	for i := range 64 {
		name := fmt.Sprintf("d%d/f%d", i%8, i)
		names = append(names, name)
		if err := os.MkdirAll(filepath.Join(below, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	dir, calls := fusetest.MountSlowly(t, below)
	s := sinkInto(t, dir, Options{})
	temps := beginAll(t, s, names...)
	calls.Renames.Forget()
	wantFailed(t, temps, s.Publish(temps))
	if calls.Renames.Most() < 2 {
		t.Error("files of several directories got their names one after the other")
	}
	for _, name := range names {
		if got, err := os.ReadFile(filepath.Join(below, name)); err != nil || string(got) != name {
			t.Errorf("%s holds %q: %v", name, got, err)
		}
	}
	for _, name := range names[:16] {
		if now, err := s.Look(name); err != nil || !now.Exists {
			t.Fatalf("%s: %+v, %v", name, now, err)
		}
	}
	if !s.LooksAreSlow() {
		t.Error("a look that takes 2 ms is no slow one")
	}
	calls.Lookups.Forget()
	s.LookAhead(append(names, "d0/missing", "missing/f"))
	if calls.Lookups.Most() < 2 {
		t.Error("entries were looked for one after the other")
	}
}
