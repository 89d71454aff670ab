package cli

import (
	"path/filepath"
	"strings"
	"testing"
)

// gdrcp clean removes only what copies create, and reports how much that was.
func TestClean(t *testing.T) {
	dir := t.TempDir()
	left := ".gdrcp-" + strings.Repeat("0a", 16)
	makeFiles(t, dir, map[string]string{left: strings.Repeat("x", 2048), "sub/" + left: "y", "file": "z", ".gdrcp-mine": "z"})
	r := gdrcp(t, "clean", "-v", dir).want(t, exitOK)
	for _, want := range []string{"removed " + filepath.Join(dir, left) + "\n", "removed " + filepath.Join(dir, "sub", left) + "\n", "removed 2 files, 2.0 KiB\n"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("it did not write %q but\n%s", want, r.err)
		}
	}
	if got := listFiles(t, dir); len(got) != 3 {
		t.Errorf("left are %v", got)
	}
	gdrcp(t, "clean").want(t, exitUsage)
	if r := gdrcp(t, "clean", filepath.Join(dir, "none"), dir).want(t, exitError); !strings.Contains(r.err, "removed 0 files") || !strings.Contains(r.err, "no such file or directory") {
		t.Errorf("it wrote\n%s", r.err)
	}
}
