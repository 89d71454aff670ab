//go:build linux && cgo

package xfer

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"gdrcp/gpu"
	"gdrcp/gpu/gputest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
)

// network is a set of devices, and the device that the kernel names for each address. It moves no
// data.
type network struct {
	rdma.Provider
	devices []rdma.Device
	routes  map[string]string
}

func (n *network) Devices() ([]rdma.Device, error) { return n.devices, nil }

func (n *network) Route(_ context.Context, remote netip.AddrPort) (string, netip.Addr, error) {
	if d := n.routes[remote.Addr().String()]; d != "" {
		return d, netip.Addr{}, nil
	}
	return "", netip.Addr{}, rdma.ErrNoDevice
}

// machineOf makes a sysfs with PCI devices below the host bridges of two nodes: paths by address.
func machineOf(t *testing.T, paths map[string]string) string {
	t.Helper()
	sysfs := t.TempDir()
	for address, path := range paths {
		dir := filepath.Join(sysfs, "devices", path, address)
		link := filepath.Join(sysfs, "bus/pci/devices", address)
		err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink(dir, link))
		node := "0\n"
		if path[:len("pci0000:80")] == "pci0000:80" {
			node = "1\n"
		}
		if err := errors.Join(err, os.WriteFile(filepath.Join(dir, "numa_node"), []byte(node), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs
}

// MachineOf is machineOf for external tests, and SetSysfs makes a client use it.
func MachineOf(t *testing.T, paths map[string]string) string { return machineOf(t, paths) }

// SetSysfs is for a client that does not copy yet.
func SetSysfs(c *Client, dir string) { c.sysfs = dir }

// twoProcessors is a made-up machine: GPUs 0 and 1 each have a switch with a NIC, GPU 1 also a
// second one; GPU 2 is alone below the second processor, with a NIC next to it; GPU 3 does not
// exist in sysfs.
func twoProcessors(t *testing.T) (sysfs string) {
	t.Helper()
	return machineOf(t, map[string]string{
		"0000:1b:00.0": "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0",
		"0000:1c:00.0": "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0",
		"0000:2b:00.0": "pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:00.0",
		"0000:2c:00.0": "pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:01.0",
		"0000:2d:00.0": "pci0000:00/0000:00:02.0/0000:03:00.0/0000:04:02.0",
		"0000:3b:00.0": "pci0000:80/0000:80:01.0",
		"0000:3c:00.0": "pci0000:80/0000:80:02.0",
	})
}

// A particular GPU decides by which device a server is reached, ahead of the server's order.
func TestNearRails(t *testing.T) {
	OnHost(t)
	gputest.Use(t, "gpus=4")
	driver, err := gpu.Open()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := driver.Close(); err != nil {
			t.Error(err)
		}
	})
	sysfs := twoProcessors(t)
	device := func(name, at string, rate float64, addr, problem string) rdma.Device {
		d := rdma.Device{Name: name, PCIAddress: at, Problem: problem}
		d.Ports = []rdma.Port{{RateGbps: rate}}
		if addr != "" {
			d.Ports[0].Addrs = []netip.Addr{netip.MustParseAddr(addr)}
		}
		return d
	}
	eachItsOwn := map[string]string{"10.0.0.1": "nic0", "10.0.1.1": "nic1", "10.0.2.1": "nic2", "10.0.3.1": "slow"}
	for _, tc := range []struct {
		name, gpu string
		o         Options
		routes    map[string]string
		addrs     []string
		want      []string // device and address
	}{
		{name: "GPU 0", gpu: "0", routes: eachItsOwn, addrs: []string{"10.0.2.1", "10.0.1.1", "10.0.0.1"},
			want: []string{"nic0 10.0.0.1", "nic1 10.0.1.1", "nic2 10.0.2.1"}},
		{name: "GPU 1 by its address", gpu: "2b:00.0", routes: eachItsOwn, addrs: []string{"10.0.2.1", "10.0.0.1", "10.0.1.1"},
			want: []string{"nic1 10.0.1.1", "nic0 10.0.0.1", "nic2 10.0.2.1"}},
		{name: "GPU 2", gpu: "2", routes: eachItsOwn, addrs: []string{"10.0.0.1", "10.0.1.1", "10.0.2.1"},
			want: []string{"nic2 10.0.2.1", "nic0 10.0.0.1", "nic1 10.0.1.1"}},
		{name: "near but slow", gpu: "1", routes: eachItsOwn, addrs: []string{"10.0.3.1", "10.0.0.1"},
			want: []string{"nic0 10.0.0.1", "slow 10.0.3.1"}},
		{name: "an address by no device", gpu: "0", routes: eachItsOwn, addrs: []string{"10.9.9.9", "10.0.1.1"},
			want: []string{"nic1 10.0.1.1"}},
		{name: "a GPU that is nowhere", gpu: "3", routes: eachItsOwn, addrs: []string{"10.0.2.1", "10.0.0.1"},
			want: []string{"nic2 10.0.2.1", "nic0 10.0.0.1"}},
		{name: "no such GPU", gpu: "9", routes: eachItsOwn, addrs: []string{"10.0.2.1", "10.0.0.1"},
			want: []string{"nic2 10.0.2.1", "nic0 10.0.0.1"}},
		{name: "any GPU", gpu: "auto", routes: eachItsOwn, addrs: []string{"10.0.2.1", "10.0.0.1"},
			want: []string{"nic2 10.0.2.1", "nic0 10.0.0.1"}},
		{name: "no GPU", gpu: "off", routes: eachItsOwn, addrs: []string{"10.0.2.1", "10.0.0.1"},
			want: []string{"nic2 10.0.2.1", "nic0 10.0.0.1"}},
		{name: "a device that is named", gpu: "0", o: Options{Rail: "nic2"}, routes: eachItsOwn, addrs: []string{"10.0.0.1", "10.0.2.1"},
			want: []string{"nic2 10.0.2.1", "nic2 10.0.0.1"}},
		// All are in 127.0.0.0/8, and the kernel names nic1 for every address there.
		{name: "one network", gpu: "0", routes: map[string]string{"127.0.0.2": "nic1", "127.0.0.3": "nic1"}, addrs: []string{"127.0.0.2", "127.0.0.3"},
			want: []string{"nic0 127.0.0.2", "nic0 127.0.0.3", "nic1 127.0.0.2", "nic1 127.0.0.3"}},
		{name: "one network, and the nearest at once", gpu: "1", routes: map[string]string{"127.0.0.2": "nic1"}, addrs: []string{"127.0.0.2"},
			want: []string{"nic1 127.0.0.2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := Client{
				GPUs: sync.OnceValues(func() (*gpu.Driver, error) { return driver, nil }), sysfs: sysfs,
				Verbs: &network{routes: tc.routes, devices: []rdma.Device{
					device("broken", "0000:1c:00.0", 400, "127.0.0.1", "its port is down"),
					device("nic1", "0000:2c:00.0", 400, "", ""), device("nic0", "0000:1c:00.0", 400, "127.0.0.1", ""),
					device("nic2", "0000:3c:00.0", 400, "", ""), device("slow", "0000:2d:00.0", 25, "", ""),
				}},
			}
			o := tc.o
			o.GPU = tc.gpu
			local, _, err := o.placements()
			if err != nil {
				t.Fatal(err)
			}
			o.local = local
			var rails []door.RailAddr
			for _, a := range tc.addrs {
				rails = append(rails, door.RailAddr{Addr: netip.AddrPortFrom(netip.MustParseAddr(a), 1)})
			}
			var tried []string
			err = c.overVerbs(t.Context(), rails, &o, func(device string, r door.RailAddr) error {
				tried = append(tried, device+" "+r.Addr.Addr().String())
				return rdma.ErrDisconnected
			})
			if err == nil || !slices.Equal(tried, tc.want) {
				t.Errorf("tried %q, want %q: %v", tried, tc.want, err)
			}
		})
	}
}
