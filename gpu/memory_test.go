//go:build linux && cgo

package gpu

import (
	"bytes"
	"context"
	"errors"
	"math"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// contents copies device memory to the host.
func contents(t *testing.T, m *Memory) []byte {
	t.Helper()
	host := hostMemory(t, m.Len())
	s := newStream(t, m.ctx)
	if err := errors.Join(s.ToHost(host, m, 0), s.Wait()); err != nil {
		t.Fatal(err)
	}
	return host
}

func TestAlloc(t *testing.T) {
	for _, mode := range []string{"", "unaligned", "late"} {
		t.Run("mode "+mode, func(t *testing.T) {
			c := useFake(t, mode)
			for _, n := range []int{1, 4096, alignBytes, alignBytes + 1} {
				m := alloc(t, c, n)
				if m.Addr() == 0 || m.Addr()%alignBytes != 0 || m.Len() != n {
					t.Errorf("%d bytes: %d at %#x", n, m.Len(), m.Addr())
				}
				// The fake does not zero new memory.
				if !bytes.Equal(contents(t, m), make([]byte, n)) {
					t.Errorf("%d bytes are not zero", n)
				}
			}
			roundTrip(t, c, alignBytes/2)
		})
	}
}

func TestAllocRefused(t *testing.T) {
	c := useFake(t, "memory=8")
	for _, n := range []int{0, -1, math.MinInt, math.MaxInt} {
		if _, err := c.Alloc(n); err == nil || errors.Is(err, ErrOutOfMemory) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	alloc(t, c, 6<<20)
	if _, err := c.Alloc(4 << 20); !errors.Is(err, ErrOutOfMemory) || !isCode(err, 2) {
		t.Errorf("more than there is: %v", err)
	}
	alloc(t, c, 2<<20)
	if _, err := useFake(t, "oom").Alloc(1); !errors.Is(err, ErrOutOfMemory) {
		t.Errorf("out of memory: %v", err)
	}
}

func TestDMABufRefused(t *testing.T) {
	for mode, want := range map[string]func(error) bool{
		"nodmabuf":                          func(err error) bool { return errors.Is(err, ErrUnsupported) },
		"peermem":                           func(err error) bool { return errors.Is(err, ErrUnsupported) },
		"old=cuMemGetHandleForAddressRange": func(err error) bool { return errors.Is(err, ErrUnsupported) },
		"bar1full":                          func(err error) bool { return errors.Is(err, ErrOutOfMemory) },
	} {
		m := alloc(t, useFake(t, mode), 4096)
		if fd, _, err := m.DMABuf(); fd != -1 || !want(err) {
			t.Errorf("%s: %d, %v", mode, fd, err)
		}
		if err := m.CloseDMABuf(); err != nil {
			t.Errorf("%s: close none: %v", mode, err)
		}
	}
	if _, err := os.Stat("/dev/udmabuf"); err == nil {
		return
	}
	if _, _, err := alloc(t, useFake(t), 4096).DMABuf(); !isCode(err, 304) {
		t.Errorf("without /dev/udmabuf: %v", err)
	}
}

// TestDMABuf maps the dma-buf, as an RDMA device would: writes to the mapping
// appear in device memory.
func TestDMABuf(t *testing.T) {
	if _, err := os.Stat("/dev/udmabuf"); err != nil {
		t.Skipf("the fake exports through the kernel's udmabuf, which is not here: tests/bed/run-tests -r TestDMABuf ./gpu: %v", err)
	}
	for _, mode := range []string{"", "unaligned"} {
		c := useFake(t, mode)
		m := alloc(t, c, alignBytes+5)
		fd, offset, err := m.DMABuf()
		if err != nil {
			t.Fatal(err)
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC == 0 {
			t.Errorf("flags %#x, %v: stays open in children", flags, err)
		}
		if again, _, err := m.DMABuf(); again != fd || err != nil {
			t.Errorf("exported again as %d, %v", again, err)
		}
		view, err := unix.Mmap(fd, 0, 2*alignBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.CloseDMABuf(); err != nil {
			t.Error(err)
		}
		copy(view[int(offset)+m.Len()-5:], "bytes")
		if got := contents(t, m); string(got[m.Len()-5:]) != "bytes" || got[m.Len()-6] != 0 {
			t.Errorf("device memory ends in %q", got[m.Len()-6:])
		}
		if err := unix.Munmap(view); err != nil {
			t.Error(err)
		}
		if _, _, err := m.DMABuf(); err != nil {
			t.Errorf("export anew: %v", err)
		}
	}
}

func TestPin(t *testing.T) {
	c := useFake(t)
	mem := hostMemory(t, 1<<16)
	if _, err := c.Pin(nil); err == nil {
		t.Error("pinned nothing")
	}
	p, err := c.Pin(mem)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Pin(mem[4096:]); !isCode(err, 712) {
		t.Errorf("pinned twice: %v", err)
	}
	closes(t, "pinned memory", p)
	closes(t, "pinned memory again", p)
	again, err := c.Pin(mem)
	if err != nil {
		t.Fatal(err)
	}
	closes(t, "pinned memory", again)
}

// TestPinForAll: memory that is pinned through one GPU is pinned for the others.
func TestPinForAll(t *testing.T) {
	d := openFake(t, "gpus=2", "strict")
	one, err := d.Use(context.Background(), 0)
	two, err2 := d.Use(context.Background(), 1)
	if err := errors.Join(err, err2); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "one", one); closes(t, "two", two) })
	mem := pinned(t, one, 4096)
	s, m := newStream(t, two), alloc(t, two, 4096)
	if err := errors.Join(s.ToDevice(m, 0, mem), s.Wait()); err != nil {
		t.Error(err)
	}
}
