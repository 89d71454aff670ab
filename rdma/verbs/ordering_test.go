//go:build linux && cgo

package verbs

import (
	"errors"
	"strings"
	"testing"

	"github.com/klauspost/cpuid/v2"
	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// relaxedFlag is IBV_ACCESS_RELAXED_ORDERING.
const relaxedFlag = 1 << 20

// orderingLibrary is a library that records a request for relaxed ordering, or refuses it.
func orderingLibrary(refusal string) map[string]string {
	body := `return mr(addr, n, access, 0);`
	if refusal != "" {
		body = `errno = ` + refusal + `; return 0;`
	}
	return map[string]string{"ibv_reg_mr_iova2": `static void *mr(uint64_t, size_t, int, int);
		void *ibv_reg_mr_iova2(void *pd, uint64_t addr, size_t n, uint64_t iova, unsigned access) {
			if (addr != iova) { errno = EFAULT; return 0; } ` + body + `}`}
}

// pageOf maps a page.
func pageOf(t *testing.T) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Munmap(b) })
	return b
}

func TestRelaxedOrdering(t *testing.T) {
	withoutTargets(t)
	byCPU, ofDeviceByCPU := fasterRelaxed(cpuid.CPU.VendorID, cpuid.CPU.Family, cpuid.CPU.Model)
	for _, c := range []struct {
		name      string
		functions map[string]string
		order     rdma.Ordering
		access    rdma.Access
		want      bool
		err       error
	}{
		{"On", orderingLibrary(""), rdma.OrderingRelaxed, rdma.RemoteWrite | rdma.Unordered, true, nil},
		{"OnForWhatHasAnOrder", orderingLibrary(""), rdma.OrderingRelaxed, rdma.RemoteWrite, false, nil},
		{"Off", orderingLibrary(""), rdma.OrderingStrict, rdma.RemoteWrite | rdma.Unordered, false, nil},
		{"Auto", orderingLibrary(""), rdma.OrderingAuto, rdma.RemoteWrite | rdma.Unordered, byCPU, nil},
		{"AutoWhereItIsRefused", orderingLibrary("EINVAL"), rdma.OrderingAuto, rdma.RemoteWrite | rdma.Unordered, false, nil},
		{"OnWhereItIsRefused", orderingLibrary("EOPNOTSUPP"), rdma.OrderingRelaxed, rdma.RemoteWrite | rdma.Unordered, false, rdma.ErrUnsupported},
		{"OnWithAnOldLibrary", nil, rdma.OrderingRelaxed, rdma.RemoteWrite | rdma.Unordered, false, rdma.ErrUnsupported},
		{"AutoWithAnOldLibrary", nil, rdma.OrderingAuto, rdma.RemoteWrite | rdma.Unordered, false, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := fakeRailBy(t, aRoCE, c.functions, rdma.Wire{Ordering: c.order})
			m, err := r.Register(rdma.HostRegion(pageOf(t)), c.access)
			if !errors.Is(err, c.err) || c.err == nil && err != nil {
				t.Fatalf("register: %v, want %v", err, c.err)
			}
			if err != nil {
				return
			}
			defer m.Close()
			asked := m.(*mr).lkey&relaxedFlag != 0 // the library returns the flags as the key
			if m.Relaxed() != c.want || asked != c.want {
				t.Errorf("relaxed: %v, asked of the library: %v, want %v", m.Relaxed(), asked, c.want)
			}
		})
	}
	t.Run("OnWhereTheMemoryIsRefused", func(t *testing.T) {
		r := fakeRailBy(t, aRoCE, map[string]string{"ibv_reg_dmabuf_mr": importer("EBADF")}, rdma.Wire{Ordering: rdma.OrderingRelaxed})
		_, err := r.Register(dmaBuf(0xE<<16|int(unix.EOPNOTSUPP)), rdma.RemoteWrite|rdma.Unordered)
		if !errors.Is(err, rdma.ErrUnsupported) || strings.Contains(err.Error(), "relaxed ordering") {
			t.Errorf("register: %v, which is not what was refused", err)
		}
	})
	t.Run("DeviceMemory", func(t *testing.T) {
		r := fakeRail(t, aRoCE, map[string]string{"ibv_reg_dmabuf_mr": importer("EBADF")})
		m, err := r.Register(dmaBuf(7), rdma.RemoteWrite|rdma.Unordered)
		if err != nil {
			t.Fatal(err)
		}
		defer m.Close()
		if m.Relaxed() != ofDeviceByCPU {
			t.Errorf("relaxed: %v, want %v on this processor", m.Relaxed(), ofDeviceByCPU)
		}
	})
}

func TestProcessorsThatAreFasterRelaxed(t *testing.T) {
	for _, c := range []struct {
		name          string
		vendor        cpuid.Vendor
		family, model int
		host, device  bool
	}{
		{"before Zen", cpuid.AMD, 0x15, 2, false, false},
		{"Naples", cpuid.AMD, 0x17, 1, true, true},
		{"Turin", cpuid.AMD, 0x1a, 2, true, true},
		{"Ice Lake", cpuid.Intel, 6, 0x6a, false, false},
		{"Sapphire Rapids", cpuid.Intel, 6, 0x8f, false, true},
		{"Granite Rapids", cpuid.Intel, 6, 0xad, false, true},
		{"of another family", cpuid.Intel, 15, 0x8f, false, false},
		{"unknown", cpuid.VendorUnknown, 0x19, 1, false, false},
	} {
		if host, device := fasterRelaxed(c.vendor, c.family, c.model); host != c.host || device != c.device {
			t.Errorf("%s: host %v, device %v; want %v, %v", c.name, host, device, c.host, c.device)
		}
	}
}

// A real device accepts relaxed ordering, or reports that it does not; with
// auto the registration succeeds in any case.
func TestRelaxedOrderingOfDevices(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, at target) {
		for _, o := range []rdma.Ordering{rdma.OrderingAuto, rdma.OrderingRelaxed} {
			r, err := p.Open(at.device, rdma.RailConfig{Conns: 1, SendDepth: 4, RecvDepth: 4, MsgBytes: 64, WriteBytes: 4096, Wire: rdma.Wire{Ordering: o}})
			if err != nil {
				t.Fatal(err)
			}
			m, err := r.Register(rdma.HostRegion(pageOf(t)), rdma.RemoteWrite|rdma.Unordered)
			switch {
			case err == nil:
				t.Logf("%v: %v", o, m.Relaxed())
				err = m.Close()
			case o == rdma.OrderingRelaxed && errors.Is(err, rdma.ErrUnsupported):
				t.Logf("%v: %v", o, err)
				err = nil
			}
			if err := errors.Join(err, r.Close()); err != nil {
				t.Errorf("%v: %v", o, err)
			}
		}
	})
}
