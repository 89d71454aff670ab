package packaging

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// vuln runs .ci/vuln with a toolchain that installs, as govulncheck, a script.
// An empty one stands for a toolchain that cannot fetch it.
func vuln(t *testing.T, script string) (code int, out string) {
	t.Helper()
	toolchain := filepath.Join(t.TempDir(), "go")
	text := "#!/bin/sh\necho 'go: downloading' >&2\necho 'dial tcp: no such host' >&2\nexit 1\n"
	if script != "" {
		text = "#!/bin/sh\n[ \"$1\" = install ] || exit 9\ncat >\"$GOBIN/govulncheck\" <<'END'\n#!/bin/sh\n" + script + "\nEND\nchmod +x \"$GOBIN/govulncheck\"\n"
	}
	if err := os.WriteFile(toolchain, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("../../.ci/vuln")
	cmd.Env = append(os.Environ(), "GO="+toolchain, "GOVULNDB=")
	b, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(b)
}

// What could not be checked does not pass for checked, by its words and by its exit code.
func TestVuln(t *testing.T) {
	for _, c := range []struct {
		name, script string
		code         int
		text         string
	}{
		{"nothing found", "echo No vulnerabilities found.", 0, "No vulnerabilities found."},
		{"found", "echo 'Vulnerability #1: GO-2099-0001'; exit 3", 3, "GO-2099-0001"},
		{"broken", "echo 'govulncheck: loading packages: no' >&2; exit 1", 1, "loading packages"},
		{"no database", `echo 'govulncheck: fetching vulnerabilities: Get "https://vuln.go.dev/index/modules.json.gz": no such host' >&2; exit 1`, 77, "NOT CHECKED for known vulnerabilities: govulncheck: fetching vulnerabilities: Get"},
		{"no govulncheck", "", 77, "NOT CHECKED for known vulnerabilities: cannot fetch govulncheck: dial tcp: no such host"},
	} {
		if code, out := vuln(t, c.script); code != c.code || !strings.Contains(out, c.text) || strings.Contains(out, "NOT CHECKED") != strings.HasPrefix(c.text, "NOT CHECKED") {
			t.Errorf("%s: exit code %d, and it wrote %q", c.name, code, out)
		}
	}
}
