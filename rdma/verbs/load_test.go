//go:build linux && cgo

package verbs

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"gdrcp/rdma"
)

// fake describes a pair of libraries without a device.
type fake struct {
	deviceList string // body of ibv_get_device_list
	contexts   string // body of rdma_get_devices
	without    string // a symbol that is missing
	oldVersion bool   // libibverbs has only IBVERBS_1.0
	// functions are further definitions, by name. Of the optional functions the
	// library has only those.
	functions map[string]string
}

const oneDevice = `static struct { char ops[16]; int node, transport; char name[64]; } d = { .name = "fake0" };
	static void *list[2]; list[0] = &d; *n = 1; return list;`

//go:embed table.h
var tableH string

// symbols reads from table.h which functions a library must have.
func symbols(t *testing.T, macro string) []string {
	t.Helper()
	_, rest, ok := strings.Cut(tableH, "#define "+macro+"(X)")
	if !ok {
		t.Fatalf("table.h has no %s", macro)
	}
	body, _, _ := strings.Cut(rest, "\n\n")
	var names []string
	for _, m := range regexp.MustCompile(`X\([^,]+, (\w+),`).FindAllStringSubmatch(body, -1) {
		names = append(names, m[1])
	}
	if len(names) == 0 {
		t.Fatalf("%s of table.h names no function", macro)
	}
	return names
}

// withoutTargets skips a test that compiles libraries if devices are named.
func withoutTargets(t *testing.T) {
	t.Helper()
	if os.Getenv(targetsEnv) != "" {
		t.Skipf("it needs no device, and compiles what it needs, which takes long in the bed: run it without %s", targetsEnv)
	}
}

// build compiles the two libraries and points the environment at them.
func (f fake) build(t *testing.T) {
	t.Helper()
	special := map[string]string{
		"ibv_get_device_list": "void *ibv_get_device_list(int *n) {" + f.deviceList + "}",
		"ibv_get_device_name": `const char *ibv_get_device_name(void *d) { return (char *)d + 24; }`,
		"rdma_get_devices":    "void *rdma_get_devices(int *n) {" + f.contexts + "}",
	}
	maps.Copy(special, f.functions)
	layout, err := filepath.Abs("abi.h")
	if err != nil {
		t.Fatal(err)
	}
	source := func(names []string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "#include <errno.h>\n#include <stdlib.h>\n#include <sys/eventfd.h>\n#include <unistd.h>\n#include %q\n", layout)
		for _, name := range names {
			body, ok := special[name]
			if !ok {
				body = fmt.Sprintf("int %s(void) { return -1; }", name)
			}
			if name != f.without {
				b.WriteString(body + "\n")
			}
		}
		return b.String()
	}
	v11, v10 := symbols(t, "VB_VERBS_1_1"), symbols(t, "VB_VERBS_1_0")
	cm := symbols(t, "VB_RDMACM_1_0")
	versions := script("IBVERBS_1.0", v10, "") + script("IBVERBS_1.1", v11, "IBVERBS_1.0")
	if f.oldVersion {
		versions = script("IBVERBS_1.0", append(v10, v11...), "")
	}
	all := append(v10, v11...)
	for _, optional := range []struct{ macro, version string }{{"VB_VERBS_1_8", "IBVERBS_1.8"}, {"VB_VERBS_1_12", "IBVERBS_1.12"}} {
		for _, name := range symbols(t, optional.macro) {
			if f.functions[name] != "" {
				all = append(all, name)
				versions += script(optional.version, []string{name}, "IBVERBS_1.1")
			}
		}
	}
	dir := t.TempDir()
	t.Setenv("GDRCP_LIBIBVERBS", compile(t, dir, "libibverbs", source(all), versions))
	t.Setenv("GDRCP_LIBRDMACM", compile(t, dir, "librdmacm", source(cm), script("RDMACM_1.0", cm, "")))
}

// script returns a linker's version script, without which dlvsym finds nothing.
func script(version string, names []string, parent string) string {
	return version + " { global: " + strings.Join(names, "; ") + "; local: *; } " + parent + ";\n"
}

func compile(t *testing.T, dir, name, source, versions string) string {
	t.Helper()
	c, m, so := filepath.Join(dir, name+".c"), filepath.Join(dir, name+".map"), filepath.Join(dir, name+".so")
	for path, text := range map[string]string{c: source, m: versions} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.Command(compiler(t), "-shared", "-fPIC", "-w", "-Wl,--version-script="+m, "-o", so, c).CombinedOutput()
	if err != nil {
		t.Fatalf("compile %s: %v\n%s", name, err, out)
	}
	return so
}

func TestProbeErrors(t *testing.T) {
	withoutTargets(t)
	cases := []struct {
		name   string
		fake   fake
		node   string // what /dev/infiniband/rdma_cm is: "" (missing) or "file"
		reason rdma.ProbeReason
		detail string
	}{
		{"MissingVerbsSymbol", fake{without: "ibv_reg_mr"}, "file", rdma.OldLibrary, "ibv_reg_mr of version IBVERBS_1.1"},
		{"MissingCMSymbol", fake{without: "rdma_migrate_id"}, "file", rdma.OldLibrary, "rdma_migrate_id of version RDMACM_1.0"},
		{"OldVersion", fake{oldVersion: true}, "file", rdma.OldLibrary, "version IBVERBS_1.1"},
		{"NoKernel", fake{deviceList: "errno = ENOSYS; return 0;"}, "file", rdma.NoKernel, "function not implemented"},
		{"Forbidden", fake{deviceList: "errno = EACCES; return 0;"}, "file", rdma.NoPermission, "permission denied"},
		{"NoDevice", fake{deviceList: "static void *none[1]; *n = 0; return none;"}, "file", rdma.NoDevices, "no RDMA device"},
		{"NoNode", fake{deviceList: oneDevice}, "", rdma.NoKernel, "rdma_cm"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.fake.build(t)
			p := New()
			p.dev = t.TempDir()
			if c.node == "file" {
				if err := os.WriteFile(filepath.Join(p.dev, "rdma_cm"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			checkProbe(t, p, c.reason, c.detail)
		})
	}
}

// checkProbe calls every method of a provider that cannot work.
func checkProbe(t *testing.T, p *Provider, reason rdma.ProbeReason, detail string) {
	t.Helper()
	somewhere := netip.MustParseAddrPort("192.0.2.1:7474")
	calls := map[string]func() error{
		"Devices": func() error { _, err := p.Devices(); return err },
		"Route":   func() error { _, _, err := p.Route(context.Background(), somewhere); return err },
		"Open": func() error {
			_, err := p.Open("fake0", rdma.RailConfig{Conns: 1, SendDepth: 1, RecvDepth: 1, MsgBytes: 1, WriteBytes: 1})
			return err
		},
		"Listen": func() error { _, err := p.Listen(somewhere, rdma.Wire{}); return err },
	}
	for name, call := range calls {
		err := call()
		var probe *rdma.ProbeError
		if !errors.As(err, &probe) || !errors.Is(err, rdma.ErrNoDevice) {
			t.Errorf("%s: %v is no ProbeError", name, err)
			continue
		}
		if probe.Reason != reason || !strings.Contains(probe.Detail, detail) || probe.Hint == "" {
			t.Errorf("%s: reason %s, detail %q, hint %q; want %s with %q", name, probe.Reason, probe.Detail, probe.Hint, reason, detail)
		}
	}
}

func TestNoLibrary(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "libibverbs.so.1")
	t.Setenv("GDRCP_LIBIBVERBS", missing)
	checkProbe(t, New(), rdma.NoLibrary, missing)
}

// TestDeviceThatDoesNotOpen: it is listed with the reason.
func TestDeviceThatDoesNotOpen(t *testing.T) {
	withoutTargets(t)
	fake{deviceList: oneDevice, contexts: "errno = EACCES; return 0;"}.build(t)
	p := New()
	p.dev, p.sysfs = t.TempDir(), t.TempDir()
	if err := os.WriteFile(filepath.Join(p.dev, "rdma_cm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := p.Devices()
	if err != nil || len(list) != 1 {
		t.Fatalf("devices: %+v, %v", list, err)
	}
	if d := list[0]; d.Name != "fake0" || !strings.Contains(d.Problem, "permission denied") {
		t.Errorf("device: %+v", d)
	}
	if err := os.MkdirAll(filepath.Join(p.sysfs, "class/infiniband_verbs/uverbs3"), 0o755); err != nil {
		t.Fatal(err)
	}
	// The state of its file, or another's, is more specific than librdmacm's
	// error. Nobody, not even root, can open a directory for writing.
	if err := os.Mkdir(filepath.Join(p.dev, "uverbs3"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, owner := range []string{"fake0", "fake9"} {
		if err := os.WriteFile(filepath.Join(p.sysfs, "class/infiniband_verbs/uverbs3/ibdev"), []byte(owner+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		_, err := p.Open("fake0", rdma.RailConfig{Conns: 1, SendDepth: 1, RecvDepth: 1, MsgBytes: 1, WriteBytes: 1})
		if !errors.Is(err, rdma.ErrNoDevice) || !strings.Contains(err.Error(), "uverbs3") ||
			strings.Contains(err.Error(), "fake9") != (owner == "fake9") {
			t.Errorf("open with an unusable file of %s: %v", owner, err)
		}
	}
	_, err = p.Open("other", rdma.RailConfig{Conns: 1, SendDepth: 1, RecvDepth: 1, MsgBytes: 1, WriteBytes: 1})
	if !errors.Is(err, rdma.ErrNoDevice) || !strings.Contains(err.Error(), "fake0") {
		t.Errorf("open a device that is not there: %v", err)
	}
}
