package packaging

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// checkout copies what is under version control, as it is now, to a folder of
// its own: what make builds there disturbs nobody.
func checkout(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"git", "make", "go"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed", tool)
		}
	}
	out, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		t.Skip("this is no checkout of git's")
	}
	dir := t.TempDir()
	for name := range strings.SplitSeq(strings.TrimRight(string(out), "\x00"), "\x00") {
		from, to := filepath.Join("../..", name), filepath.Join(dir, name)
		info, err := os.Stat(from)
		if err != nil || !info.Mode().IsRegular() {
			continue // removed, and not committed yet
		}
		data, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, data, info.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// make install puts everything below DESTDIR, where the tools look for it, and
// readable for all.
func TestInstall(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the program")
	}
	dir, dest := checkout(t), t.TempDir()
	cmd := exec.CommandContext(t.Context(), "make", "install", "DESTDIR="+dest, "PREFIX=/usr", "VERSION=1.2.3-test")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make install: %v\n%s", err, out)
	}
	for name, mode := range map[string]fs.FileMode{
		"usr/bin/gdrcp":                                  0o755,
		"usr/share/man/man1/gdrcp.1":                     0o644,
		"usr/share/man/man1/gdrcp-serve.1":               0o644,
		"usr/share/man/man1/gdrcp-manifest.1":            0o644,
		"usr/share/man/man1/gdrcp-clean.1":               0o644,
		"usr/share/man/man1/gdrcp-devices.1":             0o644,
		"usr/share/man/man1/gdrcp-bench.1":               0o644,
		"usr/share/man/man1/gdrcp-key.1":                 0o644,
		"usr/lib/systemd/system/gdrcp.service":           0o644,
		"usr/share/bash-completion/completions/gdrcp":    0o644,
		"usr/share/zsh/site-functions/_gdrcp":            0o644,
		"usr/share/fish/vendor_completions.d/gdrcp.fish": 0o644,
	} {
		info, err := os.Stat(filepath.Join(dest, name))
		if err != nil || info.Mode() != mode || info.Size() == 0 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	page, err := os.ReadFile(filepath.Join(dest, "usr/share/man/man1/gdrcp.1"))
	if err != nil || !strings.Contains(string(page), `"gdrcp 1.2.3-test"`) {
		t.Errorf("the page does not say of which version it is: %v", err)
	}
	out, err := exec.CommandContext(t.Context(), filepath.Join(dest, "usr/bin/gdrcp"), "--version").Output()
	if err != nil || string(out) != "gdrcp 1.2.3-test\n" {
		t.Errorf("what was installed is %q: %v", out, err)
	}
}
