package ssh

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// patience is the time limit of a copy on a busy machine.
var patience = launch.Slow(time.Minute)

// result is the result of a run of the program.
type result struct {
	code     int
	out, err string
}

// command returns a run of the program on the client.
func (c *client) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.Env = append(os.Environ(), "GDRCP_RSH="+c.rsh)
	cmd.Dir = c.dir
	cmd.WaitDelay = time.Second
	return cmd
}

func (c *client) run(t *testing.T, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := c.command(ctx, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%q: %v", args, err)
	}
	return result{cmd.ProcessState.ExitCode(), out.String(), errs.String()}
}

// want fails the test unless the run ended with code.
func (r result) want(t *testing.T, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d; stdout:\n%s\nstderr:\n%s", r.code, code, r.out, r.err)
	}
	return r
}

// says fails the test unless stderr has the text.
func (r result) says(t *testing.T, text string) result {
	t.Helper()
	if !strings.Contains(r.err, text) {
		t.Errorf("stderr lacks %q:\n%s", text, r.err)
	}
	return r
}

// lacks fails the test if stderr has the text.
func (r result) lacks(t *testing.T, text string) result {
	t.Helper()
	if strings.Contains(r.err, text) {
		t.Errorf("stderr has %q:\n%s", text, r.err)
	}
	return r
}

// ours returns the lines on stderr that gdrcp itself wrote.
func (r result) ours() []string {
	var lines []string
	for line := range strings.Lines(r.err) {
		if strings.HasPrefix(line, "gdrcp: ") || strings.HasPrefix(line, "hint: ") {
			lines = append(lines, line)
		}
	}
	return lines
}

// makeFile makes a file of random bytes.
func makeFile(t *testing.T, file string, size int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{byte(size), byte(size >> 8), 7}).Read(data) // never fails
	if err := os.WriteFile(file, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// makeTree makes a tree of files, directories and links.
func makeTree(t *testing.T, dir string) {
	t.Helper()
	makeFile(t, filepath.Join(dir, "large"), 5<<20+123)
	makeFile(t, filepath.Join(dir, "deep", "er", "small"), 1000)
	makeFile(t, filepath.Join(dir, "deep", "empty"), 0)
	if err := os.Symlink("deep/er", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
}

// same compares two trees by diff(1), which does not follow links.
func same(t *testing.T, a, b string) {
	t.Helper()
	if out, err := exec.Command("diff", "-r", "--no-dereference", a, b).CombinedOutput(); err != nil {
		t.Errorf("%s and %s: %v\n%s", a, b, err, out)
	}
}

// onlyPartial fails the test if a directory has anything but a partial file and its
// journal.
func onlyPartial(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) == 0 {
		return
	}
	if len(entries) != 2 || !strings.HasPrefix(entries[0].Name(), ".gdrcp-") || !strings.HasPrefix(entries[1].Name(), ".gdrcp-journal-") {
		t.Errorf("in %s: %v", dir, entries)
	}
}

// nothing fails the test if a directory has any entry.
func nothing(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("in %s: %v, %v", dir, entries, err)
	}
}
