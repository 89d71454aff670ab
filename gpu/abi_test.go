//go:build linux && cgo

package gpu

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed abi.h shim.h table.h testdata/abi_check.cc
var abiSources embed.FS

// TestABI compares abi.h and table.h with the headers of the CUDA toolkit, if
// they are installed.
func TestABI(t *testing.T) {
	include := cudaHeaders(t)
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skipf("no C++ compiler to compare with: %v", err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, abiSources); err != nil {
		t.Fatal(err)
	}
	args := []string{"-std=c++17", "-Wall", "-Werror", "-fsyntax-only", "-I" + include}
	if _, err := os.Stat(filepath.Join(include, "nvml.h")); err == nil {
		args = append(args, "-DWITH_NVML")
	}
	out, err := exec.Command(compiler, append(args, filepath.Join(dir, "testdata/abi_check.cc"))...).CombinedOutput()
	if err != nil {
		t.Errorf("abi.h or table.h does not agree with the headers in %s: %v\n%s", include, err, out)
	}
}

// cudaHeaders finds the directory with cuda.h and cudaTypedefs.h, which is the
// newest of the required headers.
func cudaHeaders(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{os.Getenv("CUDA_HOME") + "/include", "/usr/local/cuda/include", "/usr/include"} {
		if _, err := os.Stat(filepath.Join(dir, "cudaTypedefs.h")); err == nil {
			return dir
		}
	}
	t.Skip("the headers to compare with are missing: install the CUDA toolkit, 12.0 or later, and set CUDA_HOME")
	return ""
}
