package xfer_test

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"sync/atomic"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// manyNICs are nic0 and nic1 of twoNICs among others that lead nowhere. They count the calls: each
// list asks librdmacm for every device.
type manyNICs struct {
	twoNICs
	devices      int
	lists, opens atomic.Int32
}

func (n *manyNICs) Devices() ([]rdma.Device, error) {
	n.lists.Add(1)
	all, err := n.twoNICs.Devices()
	for i := len(all); i < n.devices; i++ {
		all = append(all, rdma.Device{Name: fmt.Sprintf("nic%d", i), Transport: rdma.RoCE, Ports: []rdma.Port{{RateGbps: 400, Addrs: []netip.Addr{netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})}}}})
	}
	return all, err
}

func (n *manyNICs) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	n.opens.Add(1)
	return n.twoNICs.Open(device, cfg)
}

// A copy lists devices, and opens them, as often on a machine with 72 as on one with 2.
func TestManyDevicesAreListedAFewTimes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	write(t, file, randomBytes(t, 100))
	asked := func(devices int) (lists, opens int32) {
		w := tcpWay(t)
		s, o := serve(t, w), w.options(t)
		s.ep.Addrs = []xfer.ServerAddr{{Transport: "tcp", Addr: netip.AddrPortFrom(w.addr, s.ep.Port)}}
		for name, addr := range nicAddrs {
			if _, err := s.server.Listen(twoNICs{tcp.New()}, netip.AddrPortFrom(netip.MustParseAddr(addr), 0), nicNamed(name)); err != nil {
				t.Fatal(err)
			}
		}
		o.Transport, o.Tries = "auto", xfer.NewTries()
		here := &manyNICs{twoNICs: twoNICs{tcp.New()}, devices: devices}
		sum, err := (&xfer.Client{TCP: tcp.New(), Verbs: here}).Push(t.Context(), []string{file}, s.ep, "/", o)
		if err != nil || sum.Link.Transport != "verbs" {
			t.Fatalf("%+v: %v", sum, err)
		}
		return here.lists.Load(), here.opens.Load()
	}
	fewLists, fewOpens := asked(2)
	lists, opens := asked(72)
	t.Logf("%d and %d lists, %d and %d devices opened", fewLists, lists, fewOpens, opens)
	if lists > fewLists+2 || opens > fewOpens+2 { // the second rail may or may not join such a short copy
		t.Errorf("among 72 devices %d lists and %d opened, among 2 %d and %d", lists, opens, fewLists, fewOpens)
	}
}
