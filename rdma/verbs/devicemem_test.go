//go:build linux && cgo

package verbs

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gdrcp/rdma"
)

// workingDevice is a device that can be opened and registers memory. If the
// upper half of an address or a descriptor is 0xE, registering it fails with
// the error number in the lower half; a region's handle is the descriptor, or
// 0. If regions are left over, the last call of Rail.Close fails.
var workingDevice = map[string]string{
	"ibv_query_device": `int ibv_query_device(void *c, struct abi_device_attr *a) { a->max_qp_wr = a->max_cqe = 1 << 14; return 0; }`,
	"ibv_query_port":   `int ibv_query_port(void *c, int port, struct abi_port_attr *a) { a->active_mtu = 3; return 0; }`,
	"ibv_alloc_pd":     `static int live; void *ibv_alloc_pd(void *c) { return &live; }`,
	"ibv_dealloc_pd":   `int ibv_dealloc_pd(void *pd) { return live ? EBUSY : 0; }`,
	"ibv_create_comp_channel": `void *ibv_create_comp_channel(struct abi_context *c) {
		struct abi_comp_channel *ch = calloc(1, sizeof *ch); ch->context = c; ch->fd = eventfd(0, 0); return ch; }`,
	"ibv_destroy_comp_channel": `int ibv_destroy_comp_channel(struct abi_comp_channel *ch) { close(ch->fd); free(ch); return 0; }`,
	"ibv_create_cq": `void *ibv_create_cq(struct abi_context *c, int n, void *x, struct abi_comp_channel *ch, int v) {
		struct abi_cq *cq = calloc(1, sizeof *cq); cq->context = c; cq->channel = ch; return cq; }`,
	"ibv_destroy_cq": `int ibv_destroy_cq(void *cq) { free(cq); return 0; }`,
	"ibv_reg_mr": `static void *mr(uint64_t addr, size_t n, int access, int fd) {
			struct abi_mr *m = calloc(1, sizeof *m); m->addr = (void *)addr; m->length = n; m->handle = fd;
			m->lkey = access; m->rkey = ++live; return m; }
		void *ibv_reg_mr(void *pd, uint64_t addr, size_t n, int access) {
			if (addr >> 32 == 0xE) { errno = (int)addr >> 16; return 0; }
			return mr(addr, n, access, 0); }`,
	"ibv_dereg_mr": `int ibv_dereg_mr(void *m) { live--; free(m); return 0; }`,
	// Without EAGAIN, a stale errno would look like a removed device.
	"ibv_get_async_event": `int ibv_get_async_event(void *c, void *e) { errno = EAGAIN; return -1; }`,
}

const oneContext = `static struct { char ops[16]; int node, transport; char name[64]; } d = { .name = "fake0" };
	static struct abi_context c, *list[2] = { &c };
	if (!c.device) { c.device = (void *)&d; c.async_fd = eventfd(0, 0); }
	return list;`

// importer defines a function that registers a dma-buf, and answers probe for descriptor
// -1. It keeps the address that peers use, where the real one keeps the offset.
func importer(probe string) string {
	return `static void *mr(uint64_t, size_t, int, int);
		void *ibv_reg_dmabuf_mr(void *pd, uint64_t offset, size_t n, uint64_t iova, int fd, int access) {
			if (fd < 0 || fd >> 16 == 0xE) { errno = fd < 0 ? ` + probe + ` : fd & 0xffff; return 0; }
			if (access == 3 && offset == 0xE000) { errno = EINVAL; return 0; }
			return mr(iova, n, access, fd); }`
}

// fakeDevice opens the device of a library with the given functions.
func fakeDevice(t *testing.T, node string, functions map[string]string) (*Provider, error) {
	t.Helper()
	all := maps.Clone(workingDevice)
	maps.Copy(all, functions)
	fake{deviceList: oneDevice, contexts: oneContext, functions: all}.build(t)
	p := New()
	p.dev = t.TempDir()
	p.sysfs = writeTree(t, map[string]string{
		"class/infiniband/fake0/node_type":                 node,
		"class/infiniband/fake0/ports/1/link_layer":        "Ethernet",
		"class/infiniband/fake0/ports/1/state":             "4: ACTIVE",
		"class/infiniband/fake0/ports/1/gid_attrs/ndevs/0": "lo",
	})
	return p, os.WriteFile(filepath.Join(p.dev, "rdma_cm"), nil, 0o600)
}

func fakeRail(t *testing.T, node string, functions map[string]string) rdma.Rail {
	return fakeRailBy(t, node, functions, rdma.Wire{})
}

func fakeRailBy(t *testing.T, node string, functions map[string]string, w rdma.Wire) rdma.Rail {
	t.Helper()
	p, err := fakeDevice(t, node, functions)
	if err != nil {
		t.Fatal(err)
	}
	r, err := p.Open("fake0", rdma.RailConfig{Conns: 1, SendDepth: 4, RecvDepth: 4, MsgBytes: 64, WriteBytes: 4096, Wire: w})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close rail: %v", err)
		}
	})
	return r
}

const (
	aRoCE  = "1: CA"
	anRNIC = "4: RNIC"
	// gpuAddr is not mapped in this process.
	gpuAddr = uint64(0x7f00_0000_3000)
)

// dmaBuf is device memory exported as a dma-buf, at an offset of 3 pages.
func dmaBuf(fd int) rdma.Region {
	return rdma.Region{Addr: gpuAddr, Len: 1 << 20, DMABufFD: fd, DMABufOffset: 0x3000}
}

func TestProbeOfDMABufs(t *testing.T) {
	withoutTargets(t)
	cases := []struct {
		name     string
		function string
		problem  string // "": it can import
	}{
		{"Imports", importer("EBADF"), ""},
		{"DriverDoesNot", importer("EOPNOTSUPP"), "driver does not import dma-bufs"},
		{"KernelDoesNot", importer("EPROTONOSUPPORT"), "kernel does not register dma-bufs"},
		{"OldLibrary", "", "rdma-core 34"},
		{"Unforeseen", importer("EXDEV"), "cross-device"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			functions := map[string]string{}
			if c.function != "" {
				functions["ibv_reg_dmabuf_mr"] = c.function
			}
			p, err := fakeDevice(t, aRoCE, functions)
			if err != nil {
				t.Fatal(err)
			}
			list, err := p.Devices()
			if err != nil || len(list) != 1 || !list[0].Usable() {
				t.Fatalf("devices: %+v, %v", list, err)
			}
			d := list[0]
			if d.DMABuf != (c.problem == "") || (d.DMABufProblem == "") != d.DMABuf || !strings.Contains(d.DMABufProblem, c.problem) {
				t.Errorf("imports dma-bufs: %t, problem %q; want a problem with %q", d.DMABuf, d.DMABufProblem, c.problem)
			}
		})
	}
}

// TestRegisterDeviceMemory checks the calls into the library and how their
// results are handled.
func TestRegisterDeviceMemory(t *testing.T) {
	withoutTargets(t)
	pinned := rdma.Region{Addr: gpuAddr, Len: 1 << 20, DMABufFD: -1}
	cases := []struct {
		name   string
		node   string
		region rdma.Region
		access rdma.Access
		fd     uint32
		sink   bool
	}{
		{"DMABuf", aRoCE, dmaBuf(7), rdma.RemoteWrite | rdma.RemoteRead, 7, false},
		{"Pinned", aRoCE, pinned, rdma.RemoteWrite | rdma.RemoteRead, 0, false},
		{"ReadsLandOnRoCE", aRoCE, dmaBuf(7), rdma.LocalWrite, 7, false},
		{"ReadsLandInDMABufOnIWARP", anRNIC, dmaBuf(7), rdma.LocalWrite, 7, true},
		{"ReadsLandInPinnedOnIWARP", anRNIC, pinned, rdma.LocalWrite | rdma.RemoteRead, 0, true},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := fakeRail(t, c.node, map[string]string{"ibv_reg_dmabuf_mr": importer("EBADF")}).Register(c.region, c.access)
			if err != nil {
				t.Fatal(err)
			}
			m := got.(*mr)
			if m.Addr() != gpuAddr || m.Len() != 1<<20 || !m.device {
				t.Errorf("region: %+v", m)
			}
			check := func(what string, lkey, flags uint32, addr, bytes uint64, fd uint32) {
				if lkey != flags || addr != gpuAddr || bytes != 1<<20 || fd != c.fd {
					t.Errorf("%s: rights %#x, %d bytes at %#x of descriptor %d", what, lkey, bytes, addr, fd)
				}
			}
			check("region", m.lkey, uint32(accessFlags(c.access)), uint64(uintptr(m.c.addr)), uint64(m.c.length), uint32(m.c.handle))
			if (m.sink != nil) != c.sink || (m.sinkLKey == m.lkey) == c.sink {
				t.Fatalf("another registration for Reads: %t, key %#x beside %#x", m.sink != nil, m.sinkLKey, m.lkey)
			}
			if c.sink {
				check("for Reads", m.sinkLKey, uint32(accessFlags(rdma.RemoteWrite)), uint64(uintptr(m.sink.addr)), uint64(m.sink.length), uint32(m.sink.handle))
			}
		})
	}
}

func TestDeviceMemoryRefused(t *testing.T) {
	withoutTargets(t)
	fails := func(number syscall.Errno) rdma.Region { return dmaBuf(0xE0000 | int(number)) }
	pinFails := func(number syscall.Errno) rdma.Region {
		return rdma.Region{Addr: 0xE<<32 | uint64(number)<<16, Len: 4096, DMABufFD: -1}
	}
	cases := []struct {
		name        string
		region      rdma.Region
		number      error // wrapped, or nil
		unsupported bool
		reason      string
	}{
		{"DriverDoesNotImport", fails(syscall.EOPNOTSUPP), syscall.EOPNOTSUPP, true, "driver does not import dma-bufs"},
		{"KernelDoesNotImport", fails(syscall.EPROTONOSUPPORT), syscall.EPROTONOSUPPORT, true, "kernel does not register dma-bufs"},
		{"PartOfTheDMABuf", fails(syscall.EINVAL), syscall.EINVAL, false, "part of the dma-buf"},
		{"NotSupported", fails(errNotSupp), errNotSupp, true, "do not support this mapping"},
		{"NoRoom", fails(syscall.ENOMEM), syscall.ENOMEM, false, "no room"},
		{"NotMapped", fails(syscall.EFAULT), syscall.EFAULT, false, "cannot be mapped"},
		{"Unforeseen", fails(syscall.EXDEV), syscall.EXDEV, false, "register 1048576 bytes of device memory via fake0: invalid cross-device link"},
		{"NoPeermem", pinFails(syscall.EFAULT), syscall.EFAULT, true, "nvidia-peermem is not loaded or not usable"},
		{"OffsetNotCongruent", rdma.Region{Addr: gpuAddr, Len: 4096, DMABufFD: 7, DMABufOffset: 0x3001}, nil, false, "differ within a page"},
		{"NoAddress", rdma.Region{Len: 4096, DMABufFD: 7}, nil, false, "address 0x0"},
		{"NoBytes", rdma.Region{Addr: gpuAddr, DMABufFD: 7}, nil, false, "region of 0 bytes"},
		{"WrapsAround", rdma.Region{Addr: ^uint64(0) - 4095, Len: 8192, DMABufFD: -1}, nil, false, "8192 bytes of device memory"},
	}
	rail := fakeRail(t, aRoCE, map[string]string{"ibv_reg_dmabuf_mr": importer("EBADF")})
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := rail.Register(c.region, rdma.RemoteWrite)
			var op *rdma.OpError
			if !errors.As(err, &op) || op.Device != "fake0" || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("%v, want an OpError with %q", err, c.reason)
			}
			if errors.Is(err, rdma.ErrUnsupported) != c.unsupported || (c.number != nil && !errors.Is(err, c.number)) {
				t.Errorf("%v: unsupported is to be %t, errno %v", err, c.unsupported, c.number)
			}
		})
	}
	if _, err := fakeRail(t, aRoCE, nil).Register(dmaBuf(7), 0); !errors.Is(err, rdma.ErrUnsupported) || !strings.Contains(err.Error(), "IBVERBS_1.12") {
		t.Errorf("an old library: %v", err)
	}
	// The registration for Reads fails: the one before it must be removed, or
	// closing the rail would fail.
	reads := dmaBuf(7)
	reads.Addr, reads.DMABufOffset = 0x7f00_0000_0000, 0xE000
	sink := fakeRail(t, anRNIC, map[string]string{"ibv_reg_dmabuf_mr": importer("EBADF")})
	if _, err := sink.Register(reads, rdma.LocalWrite); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a registration for Reads that fails: %v", err)
	}
}

// TestDeviceMemoryIsNotRead: only host memory is passed to the device inline.
func TestDeviceMemoryIsNotRead(t *testing.T) {
	const readable = 4 // VB_READABLE
	for _, device := range []bool{false, true} {
		s, m := testQueue(4, 100)
		m.device = device
		if err := s.post(rdma.WR{Op: rdma.OpWrite, Local: m, Len: 8}); err != nil {
			t.Fatal(err)
		}
		if got := s.ops[0].flags&readable != 0; got == device {
			t.Errorf("device memory %t: the processor may read it: %t", device, got)
		}
	}
}
