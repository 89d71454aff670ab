package cli

import (
	"net/netip"
	"strings"
	"testing"

	"gdrcp/rdma"
)

// devicesOf runs `gdrcp devices` on a machine with these devices.
func devicesOf(t *testing.T, list *deviceList, args ...string) result {
	t.Helper()
	p, out, errs := newProgram()
	p.verbs = list
	code := p.run(t.Context(), append([]string{"gdrcp", "devices"}, args...))
	return result{code, out.String(), errs.String()}
}

func TestDevices(t *testing.T) {
	list := &deviceList{devices: []rdma.Device{
		{Name: "mlx5_0", Transport: rdma.InfiniBand, NUMANode: 1, PCIAddress: "0000:3b:00.0", Firmware: "28.1", DMABuf: true, Ports: []rdma.Port{{
			Number: 1, LinkLayer: "InfiniBand", State: "ACTIVE", RateGbps: 400, MTUBytes: 4096, NetDev: "ib0",
			Addrs: []netip.Addr{netip.MustParseAddr("10.7.0.1"), netip.MustParseAddr("fd00::1")},
		}}},
		{Name: "siw0", Transport: rdma.IWARP, NUMANode: -1, DMABufProblem: "it does not", Problem: "port 1 is down", Ports: []rdma.Port{{Number: 1, LinkLayer: "Ethernet", State: "DOWN", MTUBytes: 1024}}},
		{Name: "odd", Transport: rdma.RoCE, NUMANode: -1, Problem: "no port"},
	}}
	r := devicesOf(t, list).want(t, exitOK)
	want := `DEVICE  PORT  LINK LAYER  TRANSPORT   STATE   RATE      MTU   NETDEV  NUMA  PCI           DMA-BUF  ADDRESSES         PROBLEM
mlx5_0  1     InfiniBand  InfiniBand  ACTIVE  400 Gb/s  4096  ib0     1     0000:3b:00.0  yes      10.7.0.1,fd00::1  -
siw0    1     Ethernet    iWARP       DOWN    -         1024  -       -     -             no       -                 port 1 is down
odd     -     -           RoCE        -       -         -     -       -     -             no       -                 no port
`
	if r.out != want || r.err != "" {
		t.Errorf("it wrote\n%s%s", r.out, r.err)
	}
	events := devicesOf(t, list, "--json").want(t, exitOK).events(t)
	if len(events) != 3 || events[0]["event"] != "device" || events[0]["name"] != "mlx5_0" || events[0]["numa_node"] != 1.0 || events[1]["problem"] != "port 1 is down" {
		t.Errorf("events %v", events)
	}
	if events[0]["dma_buf"] != true || events[0]["pci_address"] != "0000:3b:00.0" || events[1]["dma_buf"] != false || events[1]["dma_buf_problem"] != "it does not" || events[1]["pci_address"] != nil {
		t.Errorf("events %v", events)
	}
	port := events[0]["ports"].([]any)[0].(map[string]any)
	if port["link_layer"] != "InfiniBand" || port["rate_gbps"] != 400.0 || port["mtu_bytes"] != 4096.0 || port["addresses"].([]any)[1] != "fd00::1" {
		t.Errorf("port %v", port)
	}
}

func TestNoDevices(t *testing.T) {
	for _, reason := range []rdma.ProbeReason{rdma.NotBuilt, rdma.NoLibrary, rdma.OldLibrary, rdma.NoKernel, rdma.NoDevices, rdma.NoPermission} {
		list := &deviceList{err: &rdma.ProbeError{Reason: reason, Detail: "because", Hint: "do this"}}
		if r := devicesOf(t, list).want(t, exitUnsupported); r.out != "" || r.err != "gdrcp: because\nhint: do this\n" {
			t.Errorf("%v: it wrote %q and %q", reason, r.out, r.err)
		}
		if e := devicesOf(t, list, "--json").want(t, exitUnsupported).event(t, "error"); e["reason"] != reason.String() || e["hint"] != "do this" || e["exit_code"] != 5.0 {
			t.Errorf("%v: %v", reason, e)
		}
	}
	down := &deviceList{devices: []rdma.Device{{Name: "mlx5_0", Problem: "port 1 is down"}, {Name: "mlx5_1", Problem: "no address"}}}
	r := devicesOf(t, down).want(t, exitUnsupported)
	if strings.Count(r.out, "\n") != 3 || !strings.Contains(r.err, "no usable RDMA device") || !strings.Contains(r.err, "mlx5_0: port 1 is down") {
		t.Errorf("it wrote %q and %q", r.out, r.err)
	}
}
