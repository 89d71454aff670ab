package xfer

import (
	"cmp"
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"

	"gdrcp/gpu"
	"gdrcp/internal/numa"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
)

// dialTarget is an address of a server, and the local device that is to reach it. An empty device
// leaves the choice to the kernel.
type dialTarget struct {
	device string
	to     door.RailAddr
}

// dialTargets returns the addresses in the order in which they are tried. If the local slots are to
// be in one particular GPU, addresses that a device near to it reaches come first. Traffic that
// crosses the processor on its way is slower, or does not work.
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
	n := nearness{sysfs: cmp.Or(c.sysfs, numa.Sysfs), gpu: at, devices: devices}
	for i, device := range c.routes(ctx, rails) {
		if n.find(device) != nil {
			as[i].device = device
		}
	}
	return n.sort(as)
}

// wantedGPU is the PCI address of the GPU that this end is to use. It is empty if any GPU will do,
// and if there is no such GPU; the session then reports that.
func (c *Client) wantedGPU(o *Options) string {
	if !o.local.IsOne() || c.GPUs == nil {
		return ""
	}
	return pciOf(c.GPUs, o.local)
}

// routes returns the devices by which the kernel reaches the addresses. A device is empty if the
// kernel has no route. The kernel is asked for all of them in parallel, because an unused address
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

// find returns a usable device by its name, or nil.
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

// sort puts first the addresses that a near device reaches. Those of a device with less than half
// the rate of the fastest come last, because such a device has another purpose. If several devices
// are in a server's network, the kernel names only one. sort adds those of them that are nearer
// than any that the kernel names.
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

// railRank is the class of the path from a GPU to a device. It is higher than any class
// for a device with less than half the rate of the fastest, because such a device has
// another purpose.
func railRank(sysfs, gpuAt, deviceAt string, rateGbps, fastest float64) int {
	if rateGbps > 0 && rateGbps < fastest/2 { // 0 if the rate is not known
		return int(gpu.SYS) + 1
	}
	return int(gpu.PathBetween(sysfs, gpuAt, deviceAt))
}

// networksOf returns the networks that a device's addresses are in. It leaves out IPv6 link-local
// ones, because they say nothing about reachability.
func networksOf(d *rdma.Device) (networks []netip.Prefix) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	addrs := d.Addrs()
	for _, a := range all {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && !rdma.NeedsZone(p.Addr()) && slices.Contains(addrs, p.Addr()) {
			networks = append(networks, p.Masked())
		}
	}
	return networks
}
