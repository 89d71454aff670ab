//go:build linux && cgo

package gpu

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"gdrcp/gpu/gputest"
)

// TestFake calls the fake incorrectly, which this package never does.
func TestFake(t *testing.T) {
	program := filepath.Join(t.TempDir(), "fake_check")
	compiler := os.Getenv("CC")
	if compiler == "" {
		compiler = "gcc"
	}
	out, err := exec.Command(compiler, "-Wall", "-Wextra", "-Werror", "-o", program, "testdata/fake_check.c", "-ldl").CombinedOutput()
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	cmd := exec.Command(program, os.Getenv(fakeLibrary))
	cmd.Env = append(os.Environ(), gputest.Env(os.Getenv(fakeLibrary))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
