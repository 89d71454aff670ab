package tcp

import (
	"errors"
	"strings"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

func TestRegisterRefuses(t *testing.T) {
	rail := openEnd(t, benchConfig(), 4096).rail
	mem := rdmatest.Map(t, 4096)
	cases := []struct {
		name        string
		region      rdma.Region
		unsupported bool
		reason      string
	}{
		{"Nothing", rdma.HostRegion(nil), false, "region of 0 bytes"},
		{"NoBytes", rdma.HostRegion(mem[:0]), false, "region of 0 bytes"},
		{"AnotherLength", rdma.Region{Mem: mem, Len: 4095, DMABufFD: -1}, false, "region of 4096 bytes given as 4095"},
		{"DeviceMemory", rdma.Region{Addr: 1 << 40, Len: 4096, DMABufFD: -1}, true, "TCP sockets cannot reach device memory"},
		{"DMABuf", rdma.Region{Addr: 1 << 40, Len: 4096, DMABufFD: 0}, true, "TCP sockets cannot reach device memory"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := rail.Register(c.region, rdma.RemoteWrite)
			var op *rdma.OpError
			if !errors.As(err, &op) || errors.Is(err, rdma.ErrUnsupported) != c.unsupported || !strings.Contains(err.Error(), c.reason) {
				t.Errorf("%v, want an OpError with %q", err, c.reason)
			}
		})
	}
	if d := rail.Device(); d.DMABuf || d.DMABufProblem == "" {
		t.Errorf("dma-bufs: %t, problem %q", d.DMABuf, d.DMABufProblem)
	}
	if d := rail.Device(); d.Name != "tcp" || d.Transport != rdma.TCP || d.NUMANode != -1 || !d.Usable() {
		t.Errorf("device %+v of a rail", d)
	}
}
