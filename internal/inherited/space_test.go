//go:build cgo

package inherited

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A lack of address space ends the program with one line, not with a stack
// trace of the runtime.
func TestTooLittleAddressSpace(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, kib := range []string{"400000", "1200000"} {
		out, err := exec.Command("sh", "-c", "ulimit -v "+kib+" && exec \"$0\" -test.run=^$", exe).CombinedOutput()
		var ended *exec.ExitError
		if !errors.As(err, &ended) || ended.ExitCode() != 1 || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "ulimit -v") {
			t.Errorf("%s KiB: %v, %.300s", kib, err, out)
		}
	}
}
