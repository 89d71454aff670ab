// Package launch has what tests of the whole program share: the program, and what it
// writes.
package launch

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"gdrcp/rdma/rdmatest"
)

// Program returns the program under test: the one that GDRCP_BINARY names, or else one
// that it builds in dir.
func Program(dir string) (path string, err error) {
	if given := os.Getenv("GDRCP_BINARY"); given != "" {
		return filepath.Abs(given)
	}
	path = filepath.Join(dir, "gdrcp")
	if out, err := exec.Command("go", "build", "-o", path, "gdrcp").CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program (or name one in GDRCP_BINARY): %w\n%s", err, out)
	}
	return path, nil
}

// InMemory has temporary files lie in memory, where there is such a directory and TMPDIR
// names no other: what tests copy is to measure the program, not a disk.
func InMemory() {
	if st, err := os.Stat("/dev/shm"); os.Getenv("TMPDIR") == "" && err == nil && st.IsDir() {
		os.Setenv("TMPDIR", "/dev/shm")
	}
}

// Slow stretches a limit for machines that are emulated (GDRCP_TEST_SLOW), or that others
// keep busy. What the program itself measures, such as how long a peer may be silent, is
// not stretched.
func Slow(d time.Duration) time.Duration {
	if f, err := strconv.Atoi(os.Getenv("GDRCP_TEST_SLOW")); err == nil && f > rdmatest.MachineFactor {
		return d * time.Duration(f)
	}
	return rdmatest.Stretch(d)
}

// Output keeps what a process writes, readable while the process runs.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String returns all that was written until now.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
