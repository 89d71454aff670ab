// Package gputest gives tests a fake GPU: the fake libcuda of gpu/fakecuda,
// which is documented in its fake.h, including the words in GDRCP_FAKE_CUDA.
package gputest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"
)

// Library names the environment variable with the file of a fake that has been built
// already, for example for tests in a virtual machine: then Build builds nothing.
const Library = "GDRCP_FAKE_CUDA_LIBRARY"

// Build builds the fake in dir, with further flags for the compiler, and returns the
// file. It needs gcc, and takes about a second.
func Build(dir string, flags ...string) (string, error) {
	if file := os.Getenv(Library); file != "" && len(flags) == 0 {
		return file, nil
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "libcuda.so.1")
	out, err := exec.Command(filepath.Join(root, "gpu/fakecuda/build"), append([]string{file}, flags...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the fake libcuda: %w\n%s", err, out)
	}
	return file, nil
}

// Env returns the environment in which a process uses the fake, with words of
// GDRCP_FAKE_CUDA. A leak then ends the process.
func Env(library string, words ...string) []string {
	return []string{
		"GDRCP_LIBCUDA=" + library,
		"GDRCP_LIBNVML=" + library,
		"GDRCP_FAKE_CUDA=" + strings.Join(words, ","),
		"GDRCP_FAKE_CUDA_LEAKS=abort",
	}
}

// Set sets Env for this process until the test ends, and thus for every
// gpu.Driver that is opened meanwhile.
func Set(t testing.TB, library string, words ...string) {
	t.Helper()
	for _, entry := range Env(library, words...) {
		name, value, _ := strings.Cut(entry, "=")
		t.Setenv(name, value)
	}
}

// Use calls Build and Set for one test.
func Use(t testing.TB, words ...string) {
	t.Helper()
	library, err := Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	Set(t, Fresh(t, library), words...)
}

// Fresh makes a copy of the fake for one test. After a failure a library fails
// until the process ends, and a copy counts as another library.
func Fresh(t testing.TB, library string) string {
	t.Helper()
	b, err := os.ReadFile(library)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(file, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return file
}

// Reach returns n bytes of the fake's device memory, as a device that pins the
// address accesses them. The mode must be peermem: in other modes the processor
// must not access them.
func Reach(addr uint64, n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(nil), uintptr(addr))), n)
}

// moduleRoot searches for go.mod from the working directory upwards: go test
// runs tests in the directory of their package.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir, nil
		}
		if parent := filepath.Dir(dir); errors.Is(err, fs.ErrNotExist) && parent != dir {
			dir = parent
			continue
		}
		return "", fmt.Errorf("find the module: %w", err)
	}
}
