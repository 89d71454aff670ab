//go:build linux && cgo

package verbs

import (
	"errors"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

// buffer is memory with two mappings: the address of one is registered, and the
// bytes are accessed through the other.
type buffer struct {
	addr   uint64
	bytes  []byte
	export func(t testing.TB) int
}

func (b *buffer) Addr() uint64            { return b.addr }
func (b *buffer) Export(t testing.TB) int { return b.export(t) }
func (b *buffer) Peek(at int, to []byte)  { copy(to, b.bytes[at:]) }
func (b *buffer) Poke(at int, src []byte) { copy(b.bytes[at:], src) }

func addrOf(mem []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mem)))) }

// pinnable is memory that the kernel can pin, as it can pin a GPU's with nvidia-peermem.
type pinnable struct{}

func (pinnable) Alloc(t testing.TB, lenBytes int) rdmatest.DeviceBuffer {
	mem := rdmatest.Map(t, lenBytes)
	return &buffer{addr: addrOf(mem), bytes: mem, export: func(testing.TB) int { return -1 }}
}

// untouchable is memory that the processor cannot access at the registered
// address and that the kernel cannot pin, and that /dev/udmabuf exports as a
// dma-buf: the closest substitute for a GPU's memory.
type untouchable struct{}

func (untouchable) Alloc(t testing.TB, lenBytes int) rdmatest.DeviceBuffer {
	t.Helper()
	fd, err := unix.MemfdCreate("device", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatalf("make device memory: %v", err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, int64(lenBytes)); err != nil {
		t.Fatalf("make device memory: %v", err)
	}
	// udmabuf refuses a file that could shrink.
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatalf("seal device memory: %v", err)
	}
	mapped := func(access int) []byte {
		mem, err := unix.Mmap(fd, 0, lenBytes, access, unix.MAP_SHARED)
		if err != nil {
			t.Fatalf("map device memory: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Munmap(mem); err != nil {
				t.Errorf("unmap device memory: %v", err)
			}
		})
		return mem
	}
	return &buffer{
		addr: addrOf(mapped(unix.PROT_NONE)), bytes: mapped(unix.PROT_READ | unix.PROT_WRITE),
		export: func(t testing.TB) int { return exportMemfd(t, fd, lenBytes) },
	}
}

// udmabufCreate is struct udmabuf_create (Linux, include/uapi/linux/udmabuf.h).
type udmabufCreate struct {
	memfd, flags uint32
	offset, size uint64
}

const (
	udmabufCreateIoctl = 0x40187542 // UDMABUF_CREATE
	udmabufCloexec     = 1          // UDMABUF_FLAGS_CLOEXEC
)

func exportMemfd(t testing.TB, memfd, lenBytes int) int {
	t.Helper()
	dev, err := unix.Open("/dev/udmabuf", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open /dev/udmabuf: %v", err)
	}
	defer unix.Close(dev)
	create := udmabufCreate{memfd: uint32(memfd), flags: udmabufCloexec, size: uint64(lenBytes)}
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(dev), udmabufCreateIoctl, uintptr(unsafe.Pointer(&create)))
	if errno != 0 {
		t.Fatalf("export %d bytes as a dma-buf: %v", lenBytes, errno)
	}
	return int(fd)
}

// deviceMemory runs the suite for device memory on a target.
func deviceMemory(t *testing.T, p *Provider, g target, memory rdmatest.DeviceMemory) {
	cfg := rdmatest.Config{
		Provider: p, Device: g.device, ListenAddr: netip.AddrPortFrom(g.addr, 0), WriteBytes: 16 << 20,
	}
	if deviceOf(t, p, g.device).Transport != rdma.IWARP {
		cfg.AccessTold = rdmatest.TellInitiator
	}
	rdmatest.RunDevice(t, cfg, memory)
}

const importerEnv = "BED_VERBS_DMABUF"

// needImporter makes the provider use the bed's libibverbs, with which rxe
// imports dma-bufs and siw does not.
func needImporter(t *testing.T) {
	t.Helper()
	library := os.Getenv(importerEnv)
	if library == "" {
		t.Skip(importerEnv + " names no libibverbs by which a software device imports dma-bufs: run it in the bed")
	}
	t.Setenv("GDRCP_LIBIBVERBS", library)
}

// TestDeviceMemoryByDMABuf registers memory exported as a dma-buf, as a GPU's
// driver does, on a device that imports it and on one that does not.
func TestDeviceMemoryByDMABuf(t *testing.T) {
	needImporter(t)
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		d := deviceOf(t, p, g.device)
		if want := strings.HasPrefix(g.device, "rxe"); d.DMABuf != want {
			t.Fatalf("%s imports dma-bufs: %t, %q; want %t", g.device, d.DMABuf, d.DMABufProblem, want)
		}
		if !d.DMABuf {
			importRefused(t, p, g)
			return
		}
		deviceMemory(t, p, g, untouchable{})
	})
}

// TestDeviceMemoryNotImported: Debian's libibverbs does not pass the request to
// the kernel for rxe and siw.
func TestDeviceMemoryNotImported(t *testing.T) {
	if os.Getenv(importerEnv) == "" {
		t.Skip("of a real device it is not known whether it imports dma-bufs: run it in the bed")
	}
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		if d := deviceOf(t, p, g.device); d.DMABuf {
			t.Fatalf("%s imports dma-bufs", g.device)
		}
		importRefused(t, p, g)
	})
}

// importRefused registers a valid dma-buf on a device that imports none.
func importRefused(t *testing.T, p *Provider, g target) {
	t.Helper()
	b := untouchable{}.Alloc(t, 1<<20)
	fd := b.Export(t)
	defer unix.Close(fd)
	refused(t, p, g, rdma.Region{Addr: b.Addr(), Len: 1 << 20, DMABufFD: fd}, syscall.EOPNOTSUPP, "driver does not import dma-bufs")
	if problem := deviceOf(t, p, g.device).DMABufProblem; !strings.Contains(problem, "driver does not import dma-bufs") {
		t.Errorf("the device's own word is %q", problem)
	}
}

// refused registers a region that must be reported as unsupported, on a rail of its own.
func refused(t *testing.T, p *Provider, g target, region rdma.Region, number syscall.Errno, reason string) {
	t.Helper()
	r, err := p.Open(g.device, smallConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.Close(); err != nil {
			t.Errorf("close rail: %v", err)
		}
	}()
	_, err = r.Register(region, rdma.RemoteWrite)
	var op *rdma.OpError
	if !errors.As(err, &op) || !errors.Is(err, rdma.ErrUnsupported) || !errors.Is(err, number) || !strings.Contains(err.Error(), reason) || op.Hint == "" {
		t.Errorf("%v, want an OpError of ErrUnsupported and %v with %q and a hint", err, number, reason)
	}
}

// TestDeviceMemoryByAddress registers memory by address, as with
// nvidia-peermem. To the RDMA device this is a registration like any other, so
// one device suffices unless all are requested.
func TestDeviceMemoryByAddress(t *testing.T) {
	list := targets(t)
	if os.Getenv("GDRCP_TEST_FULL") != "1" {
		list = list[len(list)-1:]
	}
	for _, g := range list {
		t.Run(g.device, func(t *testing.T) { deviceMemory(t, New(), g, pinnable{}) })
	}
}

// TestDeviceMemoryNotPinned: what happens without nvidia-peermem.
func TestDeviceMemoryNotPinned(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		b := untouchable{}.Alloc(t, 1<<20)
		refused(t, p, g, rdma.Region{Addr: b.Addr(), Len: 1 << 20, DMABufFD: -1}, syscall.EFAULT, "nvidia-peermem is not loaded or not usable")
	})
}
