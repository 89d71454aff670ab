package xfer

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"

	"gdrcp/gpu"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
)

// sysfs is where the kernel tells of PCI devices.
const sysfs = "/sys"

// dialTarget is an address of a server, and the device here by which it is tried:
// empty for the one that the kernel reaches it by.
type dialTarget struct {
	device string
	to     door.RailAddr
}

// dialTargets are the addresses in the order in which they are tried. Where the
// slots here are to be in one certain GPU, those come first that a device near to it
// reaches: what crosses the processor on its way is slower, or does not work.
func (c *Client) dialTargets(ctx context.Context, rails []door.RailAddr, o *Options) []dialTarget {
	as := make([]dialTarget, len(rails))
	for i, r := range rails {
		as[i].to = r
	}
	at := c.wantedGPU(o)
	devices, err := c.Verbs.Devices()
	if at == "" || err != nil {
		return as
	}
	n := nearness{sysfs: cmp.Or(c.sysfs, sysfs), gpu: at, devices: devices}
	for i, device := range c.routes(ctx, rails) {
		if n.find(device) != nil {
			as[i].device = device
		}
	}
	return n.sort(as)
}

// wantedGPU is the PCI address of the GPU that this end is to use; empty where any
// will do, or there is no such GPU, which the session then says.
func (c *Client) wantedGPU(o *Options) string {
	if !o.local.IsOne() || c.GPUs == nil {
		return ""
	}
	return pciOf(c.GPUs, o.local)
}

// routes are the devices by which the kernel reaches the addresses, empty where
// there is none. They are asked for all at once, for an address where nobody is
// takes seconds.
func (c *Client) routes(ctx context.Context, rails []door.RailAddr) []string {
	devices := make([]string, len(rails))
	var all sync.WaitGroup
	for i, r := range rails {
		all.Go(func() {
			if device, _, err := c.Verbs.Route(ctx, r.Addr); err == nil {
				devices[i] = device
			}
		})
	}
	all.Wait()
	return devices
}

// nearness ranks this machine's RDMA devices for one GPU.
type nearness struct {
	sysfs   string
	gpu     string // its PCI address
	devices []rdma.Device
}

// find is a usable device by its name, or nil.
func (n *nearness) find(name string) *rdma.Device {
	i := slices.IndexFunc(n.devices, func(d rdma.Device) bool { return d.Name == name && d.Usable() })
	if i < 0 {
		return nil
	}
	return &n.devices[i]
}

func (n *nearness) path(d *rdma.Device) gpu.PathClass {
	return gpu.PathBetween(n.sysfs, n.gpu, d.PCIAddress)
}

// sort puts first what a near device reaches, and behind all others what a device
// of less than half the rate of the fastest does: that one is there for something
// else. Where several devices are in a server's network the kernel names but one:
// those of them that are nearer than any it names are added.
func (n *nearness) sort(as []dialTarget) []dialTarget {
	nearest, fastest := gpu.SYS, 0.0
	for _, a := range as {
		if d := n.find(a.device); d != nil {
			nearest, fastest = min(nearest, n.path(d)), max(fastest, d.RateGbps())
		}
	}
	var nearer []dialTarget
	for i := range n.devices {
		d := &n.devices[i]
		if !d.Usable() || n.path(d) >= nearest {
			continue
		}
		networks := networksOf(d)
		for _, a := range as {
			if slices.ContainsFunc(networks, func(p netip.Prefix) bool { return p.Contains(a.to.Addr.Addr()) }) {
				nearer, fastest = append(nearer, dialTarget{d.Name, a.to}), max(fastest, d.RateGbps())
			}
		}
	}
	sorted := append(nearer, as...)
	slices.SortStableFunc(sorted, func(a, b dialTarget) int { return cmp.Compare(n.rank(a, fastest), n.rank(b, fastest)) })
	return sorted
}

// rank is railRank of the device of a dialTarget.
func (n *nearness) rank(a dialTarget, fastest float64) int {
	d := n.find(a.device)
	if d == nil {
		return int(gpu.SYS) + 1
	}
	return railRank(n.sysfs, n.gpu, d.PCIAddress, d.RateGbps(), fastest)
}

// railRank is the class of the path from a GPU to a device, and more for one that is
// there for something else: it has less than half the rate of the fastest.
func railRank(sysfs, gpuAt, deviceAt string, rateGbps, fastest float64) int {
	if rateGbps > 0 && rateGbps < fastest/2 { // 0 where it is not known
		return int(gpu.SYS) + 1
	}
	return int(gpu.PathBetween(sysfs, gpuAt, deviceAt))
}

// networksOf are those that a device is in by its addresses, but for link-local
// ones, which say nothing of where they lead.
func networksOf(d *rdma.Device) (networks []netip.Prefix) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	addrs := d.Addrs()
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !p.Addr().IsLinkLocalUnicast() && slices.Contains(addrs, p.Addr()) {
			networks = append(networks, p.Masked())
		}
	}
	return networks
}
