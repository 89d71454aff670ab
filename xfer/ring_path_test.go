//go:build linux && cgo

package xfer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"gdrcp/gpu/gputest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// nic is a provider of rails whose device is at a PCI address and reaches the memory
// of the fake's GPUs in the mode peermem. It can dial only.
type nic struct {
	rdma.Provider
	name, at string
}

func (n *nic) Name() string { return n.name }

func (n *nic) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	rail, err := n.Provider.Open(device, cfg)
	if err != nil {
		return nil, err
	}
	return &nicRail{rail, n.at}, nil
}

type nicRail struct {
	rdma.Rail
	at string
}

func (r *nicRail) Device() rdma.Device {
	d := r.Rail.Device()
	d.Transport, d.PCIAddress = rdma.RoCE, r.at
	return d
}

func (r *nicRail) Register(what rdma.Region, access rdma.Access) (rdma.MR, error) {
	if what.Mem != nil {
		return r.Rail.Register(what, access)
	}
	return r.Rail.Register(rdma.HostRegion(gputest.Reach(what.Addr, what.Len)), access)
}

// A device accesses a GPU's memory directly only if no more than PCIe switches are between the two,
// or if the user requires it.
func TestFarGPUsAreStaged(t *testing.T) {
	const (
		besideGPU, sameNode, otherNode = "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:01.0", "pci0000:00/0000:00:03.0", "pci0000:80/0000:80:02.0"
		noDMABuf                       = `^dma-buf: [^;]*not supported[^;]*$`
	)
	for name, tc := range map[string]struct {
		nicPath, require string // PCI devices above the NIC
		rung             xfer.Rung
		why              string
	}{
		"between nodes":         {otherNode, "", xfer.RungStaged, "^SYS between the GPU and tcp; --require gpudirect"},
		"through the processor": {sameNode, "", xfer.RungStaged, "^PHB between the GPU and tcp; --require gpudirect"},
		"near":                  {besideGPU, "", xfer.RungPeermem, noDMABuf},
		"required":              {otherNode, "gpudirect", xfer.RungPeermem, noDMABuf},
	} {
		t.Run(name, func(t *testing.T) {
			t.Run("pull to auto", func(t *testing.T) { copyByNIC(t, tc.nicPath, tc.require, "auto", false, tc.rung, tc.why) })
			t.Run("push from 0", func(t *testing.T) { copyByNIC(t, tc.nicPath, tc.require, "0", true, tc.rung, tc.why) })
		})
	}
}

// copyByNIC copies a file with this end's slots in a GPU and a NIC at a PCI path, and compares the
// memory path.
func copyByNIC(t *testing.T, nicPath, require, gpu string, push bool, rung xfer.Rung, why string) {
	w := tcpWay(t)
	s := serve(t, w)
	n := &nic{w.provider, "tcp", "0000:1c:00.0"}
	o := w.options(t)
	o.GPU, o.Slots, o.ChunkBytes, o.Require = gpu, 4, 4<<20, require
	if require != "" { // which depends on the provider's name
		n.name, o.Transport = "verbs", "verbs"
		s.ep.Port--
	}
	w.provider = n
	c := w.client(rdmatest.Faults{})
	c.GPUs = fakeGPUs(t, "peermem")
	xfer.SetSysfs(c, xfer.MachineOf(t, map[string]string{
		"0000:1b:00.0": "pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0", n.at: nicPath,
	}))
	content := randomBytes(t, 5<<20)
	var sum *xfer.Summary
	var err error
	from, to := filepath.Join(s.root, "file"), filepath.Join(t.TempDir(), "file")
	if push {
		from, to = to, filepath.Join(s.root, "copy")
		write(t, from, content)
		sum, err = c.Push(t.Context(), []string{from}, s.ep, "copy", o)
	} else {
		write(t, from, content)
		sum, err = c.Pull(t.Context(), s.ep, []string{"file"}, to, o)
	}
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, content) {
		t.Errorf("other bytes arrived: %v", err)
	}
	if sum.Local.Rung != rung || !regexp.MustCompile(why).MatchString(sum.Local.Why) {
		t.Errorf("by %s: %q; want %s, /%s/", sum.Local.Rung, sum.Local.Why, rung, why)
	}
}
