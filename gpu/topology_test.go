package gpu

import (
	"os"
	"path/filepath"
	"testing"
)

// machine creates the sysfs of a machine with two processors. Below the first are a switch
// with a GPU and a NIC, a switch below that with another GPU, and a NIC at another port of
// the host bridge; below a second host bridge of the same node a GPU; below the second
// processor a GPU and a NIC. The names are the addresses that the tests use.
func machine(t *testing.T) string {
	t.Helper()
	sysfs := t.TempDir()
	for device, at := range map[string]struct {
		path string
		numa string
	}{
		gpuOnSwitch:    {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/" + gpuOnSwitch, "0"},
		nicOnSwitch:    {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/" + nicOnSwitch, "0"},
		nicPort2:       {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0/" + nicPort2, "0"},
		gpuBelow:       {"pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:02.0/0000:06:00.0/0000:07:00.0/" + gpuBelow, "0"},
		nicOtherRP:     {"pci0000:00/0000:00:02.0/" + nicOtherRP, "0"},
		gpuBridge2:     {"pci0000:40/0000:40:01.0/" + gpuBridge2, "0"},
		gpuNode1:       {"pci0000:80/0000:80:01.0/" + gpuNode1, "1"},
		nicNode1:       {"pci0000:80/0000:80:02.0/" + nicNode1, "1"},
		gpuNoNode:      {"platform/NVDA0001:00/pci0001:00/0001:00:00.0/" + gpuNoNode, "-1"},
		"000a:0b:00.0": {"pci000a:00/000a:00:00.0/000a:0a:00.0/000a:0b:00.0", "0"},
		"000a:0c:00.0": {"pci000a:00/000a:00:00.0/000a:0a:01.0/000a:0c:00.0", "0"},
		nicNoNode:      {"platform/NVDA0001:00/pci0002:00/0002:00:00.0/" + nicNoNode, "-1"},
	} {
		dir := filepath.Join(sysfs, "devices", at.path)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "numa_node"), []byte(at.numa+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		link := filepath.Join(sysfs, "bus/pci/devices", device)
		if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join("../../../devices", at.path), link); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs
}

const (
	gpuOnSwitch = "0000:03:00.0"
	nicOnSwitch = "0000:04:00.0"
	nicPort2    = "0000:04:00.1"
	gpuBelow    = "0000:08:00.0"
	nicOtherRP  = "0000:09:00.0"
	gpuBridge2  = "0000:41:00.0"
	gpuNode1    = "0000:81:00.0"
	nicNode1    = "0000:82:00.0"
	gpuNoNode   = "0001:01:00.0"
	nicNoNode   = "0002:01:00.0"
)

func TestPathBetween(t *testing.T) {
	sysfs := machine(t)
	for _, tt := range []struct {
		name, a, b string
		want       PathClass
	}{
		{"one switch", gpuOnSwitch, nicOnSwitch, PIX},
		{"functions of one device", nicOnSwitch, nicPort2, PIX},
		{"itself", gpuOnSwitch, gpuOnSwitch, PIX},
		{"a switch below a switch", gpuBelow, nicOnSwitch, PXB},
		{"ports of one host bridge", gpuOnSwitch, nicOtherRP, PHB},
		{"host bridges of one node", gpuBridge2, nicOnSwitch, PHB},
		{"host bridges of no node", gpuNoNode, nicNoNode, PHB},
		{"nodes", gpuOnSwitch, nicNode1, SYS},
		{"a node and none", gpuNoNode, nicNode1, SYS},
		{"one node beyond the other", gpuNode1, nicNode1, PHB},
		{"in capitals, as the driver spells", "000A:0B:00.0", "000a:0c:00.0", PIX},
		{"no address", gpuOnSwitch, "", SYS},
		{"neither", "", "", SYS},
		{"not there", gpuOnSwitch, "0000:99:00.0", SYS},
		{"a path for an address", gpuOnSwitch, "../../../devices/pci0000:00", SYS},
	} {
		for _, ends := range [][2]string{{tt.a, tt.b}, {tt.b, tt.a}} {
			if got := PathBetween(sysfs, ends[0], ends[1]); got != tt.want {
				t.Errorf("%s: %q to %q is %s, want %s", tt.name, ends[0], ends[1], got, tt.want)
			}
		}
	}
	if !(PIX < PXB && PXB < PHB && PHB < SYS) {
		t.Error("nearer is not less")
	}
}

// TestPathOfSoftwareDevices: a software device has no PCI address.
func TestPathOfSoftwareDevices(t *testing.T) {
	sysfs := t.TempDir()
	dir := filepath.Join(sysfs, "devices/virtual/net/siw0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(sysfs, "bus/pci/devices", gpuOnSwitch)
	if err := os.MkdirAll(filepath.Dir(link), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	if got := PathBetween(sysfs, gpuOnSwitch, gpuOnSwitch); got != SYS {
		t.Errorf("a device without a host bridge: %s", got)
	}
}

func TestNearest(t *testing.T) {
	sysfs := machine(t)
	gpus := func(addresses ...string) []Device {
		var list []Device
		for i, a := range addresses {
			list = append(list, Device{Index: i, PCIAddress: a})
		}
		return list
	}
	broken := gpus(gpuOnSwitch, gpuBelow)
	broken[0].Problem = "broken"
	backwards := gpus(gpuBridge2, gpuBridge2)
	backwards[0].Index, backwards[1].Index = 7, 3
	for _, tt := range []struct {
		name string
		gpus []Device
		nic  string
		want int // index, -1 for none
		path PathClass
	}{
		{"the one on the switch", gpus(gpuNode1, gpuBelow, gpuOnSwitch), nicOnSwitch, 2, PIX},
		{"the next switch", gpus(gpuNode1, gpuBelow, gpuBridge2), nicOnSwitch, 1, PXB},
		{"its own node", gpus(gpuOnSwitch, gpuBelow, gpuNode1), nicNode1, 2, PHB},
		{"equally far: the first", gpus(gpuNode1, gpuOnSwitch, gpuBridge2), nicOtherRP, 1, PHB},
		{"equally far: the lowest index", backwards, nicOnSwitch, 3, PHB},
		{"no PCI address", gpus(gpuOnSwitch, gpuNode1), "", 0, SYS},
		{"passes over the unusable", broken, nicOnSwitch, 1, PXB},
		{"no GPU", nil, nicOnSwitch, -1, 0},
		{"none usable", broken[:1], nicOnSwitch, -1, 0},
	} {
		got, path, ok := Nearest(sysfs, tt.gpus, tt.nic)
		if ok != (tt.want >= 0) || ok && (got.Index != tt.want || path != tt.path) {
			t.Errorf("%s: GPU %d by %s, %t; want %d by %s", tt.name, got.Index, path, ok, tt.want, tt.path)
		}
	}
}
