package cli

import (
	"maps"
	"os"
	"strings"
	"testing"
)

// A manifest that the shell writes into its own tree, or reads from there, is not part
// of that tree.
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

// A tree that contains its manifest can be copied with --manifest, although the
// manifest cannot contain its own digest.
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

// A manifest never replaces a file that the same command copies or reads.
func TestManifestReplacesNothingOfItsCopy(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"s/sums": "payload", "s/x": "x", "d/old": "old"})
	if err := os.Symlink("x", "s/link"); err != nil {
		t.Fatal(err)
	}
	r := gdrcp(t, "-a", "s/.", "d", "--write-manifest", "./d/../d/sums").want(t, exitOK)
	if !strings.Contains(r.err, `"sums": the manifest that this copy writes gets that name, so it is not copied (at the destination)`) {
		t.Errorf("the file in the manifest's place: %s", r.err)
	}
	r = gdrcp(t, "manifest", "show", "d/sums").want(t, exitOK)
	if strings.Contains(r.out, "sums") {
		t.Errorf("the manifest lists itself: %s", r.out)
	}
	gdrcp(t, "-a", "s/.", "d", "--manifest", "d/sums").want(t, exitIntegrity) // because of the missing file
	gdrcp(t, "-a", "s/x", "d", "--write-manifest", "d/m").want(t, exitOK)
	before := listFiles(t, dir)
	for args, code := range map[string]int{
		"s/x d --write-manifest d/x": exitError, "s/x d/x --write-manifest d/x": exitError, "-r s d/new --write-manifest d/new": exitError,
		"s/x d --write-manifest s/x": exitUsage, "s/link d --write-manifest s/x": exitUsage, "s/link d --write-manifest s/link": exitUsage,
		"manifest create -o s/x s/x": exitUsage, "manifest create -o s/x ./s/link": exitUsage,
	} {
		if r := gdrcp(t, strings.Fields(args)...).want(t, code); !strings.Contains(r.err, "the manifest ") {
			t.Errorf("%s: %s", args, r.err)
		}
		if now := listFiles(t, dir); !maps.Equal(before, now) {
			t.Fatalf("%s changed %q to %q", args, before, now)
		}
	}
}
