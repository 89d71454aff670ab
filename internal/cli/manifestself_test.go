package cli

import (
	"os"
	"strings"
	"testing"
)

// A manifest that a shell writes into the tree that it is of, or reads from there, is no
// part of that tree.
func TestManifestOnStandardStreamsInItsTree(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	open := func(flags int) *os.File {
		f, err := os.OpenFile(dir+"/MANIFEST", flags, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	p, _, errs := newProgram()
	p.stdout = open(os.O_WRONLY | os.O_CREATE)
	if code := p.run(t.Context(), []string{"gdrcp", "manifest", "create", dir}); code != exitOK || !strings.Contains(errs.String(), "manifest of 1 file, 1 directory") {
		t.Fatalf("create: exit code %d: %s", code, errs)
	}
	p, out, errs := newProgram()
	p.stdin = open(os.O_RDONLY)
	if code := p.run(t.Context(), []string{"gdrcp", "manifest", "verify", "-", dir}); code != exitOK || out.String() != "" {
		t.Errorf("verify: exit code %d: %s%s", code, out, errs)
	}
}
