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

// A tree that holds its manifest is copied by it: the manifest cannot have its own digest.
func TestCopyByTheManifestInItsTree(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"s/a": "one", "s/d/b": "two"})
	gdrcp(t, "manifest", "create", "-q", "-o", "s/d/m", "s").want(t, exitOK)
	r := gdrcp(t, "-r", "--delete", "--manifest", "s/d/m", "s/.", "d").want(t, exitOK)
	if !strings.Contains(r.err, `"d/m": it is the manifest that this copy goes by, so it is not copied`) {
		t.Errorf("the manifest: %s", r.err)
	}
	wantFiles(t, "d", map[string]string{"a": "one", "d/b": "two"})
}
