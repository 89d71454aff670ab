package packaging

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gdrcp/internal/trust"
)

// install runs `make install-service` and returns the unit.
func install(t *testing.T, prefix string) (root, unit string) {
	t.Helper()
	if _, err := exec.LookPath("make"); err != nil {
		t.Skip("needs make")
	}
	root = t.TempDir()
	out, err := exec.Command("make", "-C", "../..", "install-service", "DESTDIR="+root, "PREFIX="+prefix).CombinedOutput()
	if err != nil {
		t.Fatalf("make install-service: %v\n%s", err, out)
	}
	b, err := os.ReadFile(root + prefix + "/lib/systemd/system/gdrcp.service")
	if err != nil {
		t.Fatal(err)
	}
	return root, string(b)
}

func TestInstalledUnit(t *testing.T) {
	root, unit := install(t, "/opt/gdrcp")
	if want := "\nExecStart=/opt/gdrcp/bin/gdrcp serve --access-file /etc/gdrcp/access --exit-on-gpu-failure\n"; !strings.Contains(unit, want) {
		t.Errorf("the unit is without %q:\n%s", want, unit)
	}
	for _, name := range []string{"lib/systemd/system/gdrcp.service", "lib/sysusers.d/gdrcp.conf", "share/doc/gdrcp/access.example"} {
		if st, err := os.Stat(filepath.Join(root, "opt/gdrcp", name)); err != nil || st.Mode() != 0o644 {
			t.Errorf("%v, %v", st, err)
		}
	}
}

// systemd finds nothing wrong with the unit where the program is there.
func TestUnitIsVerified(t *testing.T) {
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("needs systemd-analyze: apt-get install systemd")
		}
		t.Skip("needs systemd-analyze: apt-get install systemd")
	}
	binary := filepath.Join(t.TempDir(), "gdrcp")
	if out, err := exec.Command("go", "build", "-o", binary, "gdrcp").CombinedOutput(); err != nil {
		t.Fatalf("build the program: %v\n%s", err, out)
	}
	verify := func(unit string) (string, error) {
		file := filepath.Join(t.TempDir(), "gdrcp.service")
		if err := os.WriteFile(file, []byte(unit), 0o644); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(analyze, "verify", file).CombinedOutput()
		return string(out), err
	}
	_, installed := install(t, "/opt/gdrcp")
	unit := strings.ReplaceAll(installed, "/opt/gdrcp/bin/gdrcp", binary)
	if out, err := verify(unit); err != nil || out != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
	// It would find what is wrong.
	for _, wrong := range []string{strings.Replace(unit, binary, binary+"-none", 1), strings.Replace(unit, "ProtectSystem=strict", "ProtectSystem=streng", 1)} {
		if out, err := verify(wrong); err == nil && out == "" {
			t.Errorf("systemd-analyze verify finds nothing wrong with:\n%s", wrong)
		}
	}
}

// What the unit needs of the program's options is there, and what a service that
// pins memory needs of systemd.
func TestUnitSettings(t *testing.T) {
	b, err := os.ReadFile("../../packaging/gdrcp.service")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"Type=notify", "Restart=on-failure", "StartLimitIntervalSec=0", "ExecReload=kill -HUP $MAINPID", "LimitMEMLOCK=infinity", "NoNewPrivileges=yes", "PrivateTmp=yes", "UMask=0027",
		"ProtectSystem=strict", "DevicePolicy=closed", "DeviceAllow=char-infiniband_verbs rw", "DeviceAllow=/dev/infiniband/rdma_cm rw",
		"DeviceAllow=char-nvidia* rw", "RestrictAddressFamilies=AF_INET AF_INET6 AF_NETLINK AF_UNIX",
	} {
		if !strings.Contains(string(b), "\n"+line+"\n") {
			t.Errorf("the unit is without %s", line)
		}
	}
	for _, c := range []struct{ setting, why string }{
		{"RestrictSUIDSGID=", "a push could not set the mode of a directory that has its setgid bit from the one above it"},
		{"MemoryDenyWriteExecute=", "NVIDIA's driver compiles kernels into memory"},
	} {
		if strings.Contains(string(b), "\n"+c.setting) {
			t.Errorf("the unit has %s: %s", c.setting, c.why)
		}
	}
}

// The example is an access file that lets nobody in.
func TestExampleAccessFile(t *testing.T) {
	b, err := os.ReadFile("../../packaging/access.example")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "access")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, err := trust.ReadAccess(file); err != nil || len(a.Permits()) != 0 {
		t.Errorf("%v, %v", a, err)
	}
	// Without the marks, and with secrets, its lines are what they say.
	key, err := trust.NewKey("x")
	if err != nil {
		t.Fatal(err)
	}
	keyFile := filepath.Join(t.TempDir(), "key")
	if err := key.WriteFile(keyFile); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(keyFile)
	if err != nil {
		t.Fatal(err)
	}
	_, examples, _ := strings.Cut(string(b), "these lines are not read.)\n")
	examples = strings.ReplaceAll(strings.ReplaceAll(examples, "#", ""), "SECRET", strings.Fields(string(text))[2])
	if err := os.WriteFile(file, []byte(examples), 0o600); err != nil {
		t.Fatal(err)
	}
	a, err := trust.ReadAccess(file)
	if err != nil || len(a.Permits()) != 2 {
		t.Fatalf("%v, %v", a, err)
	}
	if p, ok := a.Find("reader"); !ok || !p.ReadOnly || p.Root != "/srv/gdrcp/public data" || p.MaxSessions != 8 || p.BytesPerSecond != 1<<30 {
		t.Errorf("%+v", p)
	}
}
