//go:build linux && cgo

package verbs

import (
	"embed"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

//go:embed abi.h testdata/abi_check.c
var abiSources embed.FS

const verbsHeader = "/usr/include/infiniband/verbs.h"

// TestABI compares abi.h with rdma-core's headers, if they are installed, and
// with variants of them for the differences between older and newer versions.
func TestABI(t *testing.T) {
	for _, h := range []string{verbsHeader, "/usr/include/rdma/rdma_cma.h"} {
		if _, err := os.Stat(h); err != nil {
			t.Skipf("the headers to compare with are missing: apt install libibverbs-dev librdmacm-dev: %v", err)
		}
	}
	b, err := os.ReadFile(verbsHeader)
	if err != nil {
		t.Fatal(err)
	}
	installed := string(b)
	const last = "\tuint16_t\t\tport_cap_flags2;\n"
	const grown = last + "\tuint32_t\t\tactive_speed_ex;\n" // from version 49 on
	before := strings.Replace(installed, grown, last, 1)
	if !strings.Contains(before, last) {
		t.Fatalf("%s has no line %q", verbsHeader, last)
	}
	for _, c := range []struct {
		name, header string
		agrees       bool
	}{
		{"as installed", installed, true},
		{"before version 49", before, true},
		{"since version 49", strings.Replace(before, last, grown, 1), true},
		{"a member that is larger", strings.Replace(before, last, strings.Replace(last, "uint16_t", "uint32_t", 1), 1), false},
		{"a member in between", strings.Replace(before, last, "\tuint32_t\t\tbetween;\n"+last, 1), false},
	} {
		out, err := compareABI(t, c.header)
		if (err == nil) != c.agrees {
			t.Errorf("%s: abi.h and the headers agree is %v, want %v: %v\n%s", c.name, err == nil, c.agrees, err, out)
		}
		if !c.agrees && !strings.Contains(out, "abi_port_attr") {
			t.Errorf("%s: the compiler says something else: %s", c.name, out)
		}
	}
}

// compareABI compares abi.h with rdma-core's headers, with header in place of verbs.h.
func compareABI(t *testing.T, header string) (string, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, abiSources); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "infiniband"), 0o755); err != nil {
		t.Fatal(err)
	}
	// Its includes refer to the directory of the original.
	header = strings.ReplaceAll(header, "#include <infiniband/", "#include </usr/include/infiniband/")
	if err := os.WriteFile(filepath.Join(dir, "infiniband/verbs.h"), []byte(header), 0o644); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(compiler(t), "-Wall", "-Werror", "-fsyntax-only", "-I", dir, filepath.Join(dir, "testdata/abi_check.c")).CombinedOutput()
	return string(out), err
}

// compiler returns the C compiler that cgo uses.
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
