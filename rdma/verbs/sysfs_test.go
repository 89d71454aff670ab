//go:build linux && cgo

package verbs

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gdrcp/rdma"
)

// writeTree creates the files of a fake sysfs.
func writeTree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

const ibDir = "class/infiniband/d0/"

func TestReadDevice(t *testing.T) {
	port := func(layer string) map[string]string {
		return map[string]string{
			ibDir + "fw_ver":                    "20.31.1014",
			ibDir + "device/numa_node":          "1",
			ibDir + "ports/1/link_layer":        layer,
			ibDir + "ports/1/rate":              "100 Gb/sec (4X EDR)",
			ibDir + "ports/1/state":             "4: ACTIVE",
			ibDir + "ports/1/gid_attrs/ndevs/0": "lo",
			ibDir + "ports/1/gid_attrs/ndevs/1": "lo",
		}
	}
	cases := []struct {
		node, layer string
		want        rdma.Transport
	}{
		{"1: CA", "InfiniBand", rdma.InfiniBand},
		{"1: CA", "Ethernet", rdma.RoCE},
		{"4: RNIC", "Ethernet", rdma.IWARP},
		{"7: unspecified", "Ethernet", ""},
	}
	for _, c := range cases {
		t.Run(c.node+c.layer, func(t *testing.T) {
			files := port(c.layer)
			files[ibDir+"node_type"] = c.node
			d := readDevice(writeTree(t, files), "d0", nil)
			if d.Transport != c.want || d.NUMANode != 1 || d.Firmware != "20.31.1014" || len(d.Ports) != 1 {
				t.Fatalf("device: %+v", d)
			}
			p := d.Ports[0]
			if p.Number != 1 || p.State != "ACTIVE" || p.RateGbps != 100 || p.NetDev != "lo" || p.LinkLayer != c.layer {
				t.Errorf("port: %+v", p)
			}
			if !slices.Contains(p.Addrs, netip.MustParseAddr("127.0.0.1")) {
				t.Errorf("addresses of the loopback interface: %v", p.Addrs)
			}
			if problem, _ := judge(d); (problem == "") != (c.want != "") {
				t.Errorf("problem: %q", problem)
			}
		})
	}
}

func TestNetdevs(t *testing.T) {
	cases := []struct {
		name  string
		files map[string]string
		want  []string
	}{
		{"OfABond", map[string]string{
			ibDir + "device/net/ib0/dev_port": "0",
			ibDir + "device/net/ib1/dev_port": "1",
			"class/net/bond0/address":         "76:2b:80:9b:61:f1",
			"masters/ib0":                     "bond0",
		}, []string{"ib0", "bond0"}},
		{"OfABondedVLAN", map[string]string{
			ibDir + "ports/1/gid_attrs/ndevs/0": "bond0.100",
			ibDir + "device/net/eth7/dev_port":  "0",
		}, []string{"bond0.100"}},
		{"OfGIDs", map[string]string{
			ibDir + "ports/1/gid_attrs/ndevs/0": "eth0",
			ibDir + "ports/1/gid_attrs/ndevs/1": "eth0.100",
			ibDir + "device/net/eth7/dev_port":  "0",
		}, []string{"eth0", "eth0.100"}},
		{"OfTheFunction", map[string]string{
			ibDir + "device/net/ib0/dev_port": "0",
			ibDir + "device/net/ib1/dev_port": "1",
		}, []string{"ib0"}},
		{"ByGUID", map[string]string{
			ibDir + "node_guid":      "742b:80ff:fe9b:61f1",
			"class/net/w0/address":   "76:2b:80:9b:61:f1",
			"class/net/eth0/address": "76:2b:80:9b:61:f2",
		}, []string{"w0"}},
		{"None", map[string]string{ibDir + "node_guid": "0"}, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			root := writeTree(t, c.files)
			dir := filepath.Join(root, ibDir)
			if c.files["masters/ib0"] != "" {
				if err := os.Symlink("../"+c.files["masters/ib0"], filepath.Join(dir, "device/net/ib0/master")); err != nil {
					t.Fatal(err)
				}
			}
			var got []string
			for _, d := range netdevs(root, dir, filepath.Join(dir, "ports/1"), 1, false, nil) {
				got = append(got, d.name)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// A port's interface has the addresses of the local interface of the same name
// only if the two are the same: the port's may be in another network namespace.
func TestNetdevOfAnotherNamespace(t *testing.T) {
	const (
		port  = ibDir + "ports/1/"
		own   = "0000:0000:0000:0000:0000:ffff:7f00:0001"
		other = "0000:0000:0000:0000:0000:ffff:0a07:0001"
		local = "fe80:0000:0000:0000:742b:80ff:fe9b:61f1"
	)
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	gids := func(node string, gids ...string) map[string]string {
		files := map[string]string{ibDir + "node_type": node, port + "link_layer": "Ethernet", port + "state": "4: ACTIVE"}
		for i, gid := range gids {
			files[fmt.Sprint(port, "gids/", i)] = gid
			files[fmt.Sprint(port, "gid_attrs/ndevs/", i)] = "lo"
		}
		return files
	}
	card := net.Interface{}
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, ifi := range all { // one with a hardware address
		if addrs := (netdev{name: ifi.Name}).addrs(); len(ifi.HardwareAddr) == 6 && len(addrs) > 0 {
			card = ifi
		}
	}
	cases := map[string]struct {
		files map[string]string
		want  []netip.Addr
	}{
		"RoCE, here":            {gids("1: CA", local, own), loopback},
		"RoCE, elsewhere":       {gids("1: CA", local, other), nil},
		"RoCE, one of two here": {gids("1: CA", other, local, own), loopback},
	}
	for name, c := range cases {
		d := readDevice(writeTree(t, c.files), "d0", nil)
		if got := d.Addrs(); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if problem, reason := judge(d); (problem == "") != (c.want != nil) || (c.want == nil && reason != rdma.NoAddress) {
			t.Errorf("%s: problem %q (%s)", name, problem, reason)
		}
	}
	if card.Name == "" {
		t.Skip("the rest needs an interface with a hardware address and an IP address: this machine has none")
	}
	mac := card.HardwareAddr
	another := slices.Clone(mac)
	another[5] ^= 1
	for _, c := range []struct {
		mac  net.HardwareAddr
		here bool
	}{{mac, true}, {another, false}} {
		files := gids("1: CA")
		files[ibDir+"device/net/"+card.Name+"/address"] = c.mac.String()
		if got := readDevice(writeTree(t, files), "d0", nil).Addrs(); (len(got) > 0) != c.here {
			t.Errorf("the function's interface with %s: %v, and that by its name here has %s", c.mac, got, mac)
		}
	}
}

func TestPCIFunction(t *testing.T) {
	root := writeTree(t, map[string]string{
		"bus/pci/x":                            "",
		"bus/auxiliary/x":                      "",
		"devices/pci0/0000:3b:00.1/vendor":     "0x15b3",
		"devices/pci0/0000:3b:00.1/numa_node":  "1",
		"devices/pci0/0000:3b:00.1/sf.4/sfnum": "88",
		"devices/platform/hns/numa_node":       "0",
		"devices/virtual/net/v0/address":       "76:2b:80:9b:61:f1",
		"class/infiniband/function/node_type":  "1: CA",
		"class/infiniband/sub/node_type":       "1: CA",
		"class/infiniband/soft/node_type":      "1: CA",
		"class/infiniband/chip/node_type":      "1: CA",
		"class/infiniband/nothing/node_type":   "1: CA",
	})
	for link, target := range map[string]string{
		"devices/pci0/0000:3b:00.1/subsystem":      "bus/pci",
		"devices/pci0/0000:3b:00.1/sf.4/subsystem": "bus/auxiliary",
		"class/infiniband/function/device":         "devices/pci0/0000:3b:00.1",
		"class/infiniband/sub/device":              "devices/pci0/0000:3b:00.1/sf.4",
		"class/infiniband/soft/device":             "devices/virtual/net/v0",
		"class/infiniband/chip/device":             "devices/platform/hns",
	} {
		if err := os.Symlink(filepath.Join(root, target), filepath.Join(root, link)); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]struct {
		address string
		node    int
	}{
		"function": {"0000:3b:00.1", 1},
		"sub":      {"0000:3b:00.1", 1},
		"soft":     {"", -1},
		"chip":     {"", 0},
		"nothing":  {"", -1},
	} {
		if d := readDevice(root, name, nil); d.PCIAddress != want.address || d.NUMANode != want.node {
			t.Errorf("%s: %q on node %d, want %q on %d", name, d.PCIAddress, d.NUMANode, want.address, want.node)
		}
	}
}

func TestGUIDOfOtherHardware(t *testing.T) {
	if got := guidOf(net.HardwareAddr{1, 2, 3, 4, 5, 6, 7, 8}); got != "" {
		t.Errorf("an address of 8 bytes has GUID %q", got)
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"400 Gb/sec (4X NDR)":  400,
		"2.5 Gb/sec (1X SDR)":  2.5,
		"":                     0,
		"fast":                 0,
		"-1 Gb/sec":            0,
		"100 furlongs per day": 0,
	} {
		if got := parseRate(text); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

func TestJudge(t *testing.T) {
	address := []netip.Addr{netip.MustParseAddr("192.0.2.1")}
	cases := []struct {
		name   string
		d      rdma.Device
		usable bool
		reason rdma.ProbeReason
	}{
		{"Good", rdma.Device{Transport: rdma.RoCE, Ports: []rdma.Port{{State: "ACTIVE", Addrs: address}}}, true, 0},
		{"SecondPortGood", rdma.Device{Transport: rdma.RoCE, Ports: []rdma.Port{{State: "DOWN"}, {State: "ACTIVE", Addrs: address}}}, true, 0},
		{"NoSubnetManager", rdma.Device{Transport: rdma.InfiniBand, Ports: []rdma.Port{{LinkLayer: "InfiniBand", State: "INIT"}}}, false, rdma.NoActivePort},
		{"Down", rdma.Device{Transport: rdma.RoCE, Ports: []rdma.Port{{State: "DOWN", Addrs: address}}}, false, rdma.NoActivePort},
		{"NoAddress", rdma.Device{Transport: rdma.RoCE, Ports: []rdma.Port{{State: "ACTIVE"}}}, false, rdma.NoAddress},
		{"AddressOnTheDeadPort", rdma.Device{Transport: rdma.RoCE, Ports: []rdma.Port{{State: "ACTIVE"}, {State: "DOWN", Addrs: address}}}, false, rdma.NoAddress},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			c.d.Problem, c.d.Reason = judge(c.d)
			if c.d.Usable() != c.usable {
				t.Fatalf("problem: %q", c.d.Problem)
			}
			if strings.Contains(c.d.Problem, "subnet manager") != (c.name == "NoSubnetManager") {
				t.Errorf("problem: %q", c.d.Problem)
			}
			if probe, ok := c.d.Err().(*rdma.ProbeError); !c.usable && (!ok || probe.Reason != c.reason) {
				t.Errorf("%+v, want %s", probe, c.reason)
			}
		})
	}
}

// A table of GIDs has up to a thousand files, and is cached for a short time.
func TestGIDTablesAreKeptForAMoment(t *testing.T) {
	root := writeTree(t, map[string]string{"gid_attrs/ndevs/0": "eth0", "gid_attrs/ndevs/1": "eth1"})
	synctest.Test(t, func(t *testing.T) {
		tables := &gidTables{}
		names := func() (list []string) {
			for _, d := range tables.netdevs(root, true) {
				list = append(list, d.name)
			}
			return list
		}
		if got := names(); !slices.Equal(got, []string{"eth0", "eth1"}) {
			t.Error(got)
		}
		if err := os.Remove(filepath.Join(root, "gid_attrs/ndevs/1")); err != nil {
			t.Fatal(err)
		}
		if got := names(); len(got) != 2 {
			t.Errorf("read again at once: %q", got)
		}
		time.Sleep(gidTableAge)
		if got := names(); !slices.Equal(got, []string{"eth0"}) {
			t.Errorf("a moment later: %q", got)
		}
	})
}
