//go:build linux && cgo

package verbs

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed abi.h testdata/abi_check.c
var abiSources embed.FS

// TestABI compares abi.h with the headers of rdma-core, where they are.
func TestABI(t *testing.T) {
	for _, h := range []string{"/usr/include/infiniband/verbs.h", "/usr/include/rdma/rdma_cma.h"} {
		if _, err := os.Stat(h); err != nil {
			t.Skipf("the headers to compare with are missing: apt install libibverbs-dev librdmacm-dev: %v", err)
		}
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, abiSources); err != nil {
		t.Fatal(err)
	}
	check := filepath.Join(dir, "testdata/abi_check.c")
	out, err := exec.Command(compiler(t), "-Wall", "-Werror", "-fsyntax-only", check).CombinedOutput()
	if err != nil {
		t.Errorf("abi.h does not agree with the headers: %v\n%s", err, out)
	}
}

// compiler is the C compiler that cgo uses too.
func compiler(t testing.TB) string {
	t.Helper()
	name := os.Getenv("CC")
	if name == "" {
		name = "cc"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("no C compiler to build with: set CC: %v", err)
	}
	return path
}
