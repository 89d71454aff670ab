//go:build linux && cgo

package gpu

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"math"
	"os"
	"sync"
	"unsafe"
)

// alignBytes is the alignment of device memory and the unit to which its size
// is rounded up: the driver's largest page. A dma-buf must begin and end at
// page boundaries of the host, and an RDMA device may require the same offset
// of address and dma-buf within a larger page.
const alignBytes = 2 << 20

// Memory is device memory.
type Memory struct {
	handle
	ctx   *Context
	block C.struct_gdr_block
	len   int

	exporting sync.Mutex
	dmabuf    *os.File // nil when not exported
}

// Alloc allocates n bytes of zeroed device memory at a multiple of 2 MiB. It rounds the
// size up to a multiple of 2 MiB. The error is ErrOutOfMemory if the GPU has too little
// free memory.
//
// The driver's own copies from and to the memory are complete when they return
// (SYNC_MEMOPS), as RDMA devices need: see Registrable. Copies in a Stream are
// not, and need a wait as usual.
func (c *Context) Alloc(n int) (*Memory, error) {
	if n <= 0 || n > math.MaxInt-2*alignBytes {
		return nil, fmt.Errorf("allocate %d bytes on GPU %d: not a size", n, c.device.Index)
	}
	if err := c.begin("memory"); err != nil {
		return nil, err
	}
	m := &Memory{ctx: c, len: n}
	rc := c.opening("allocate", func() C.int { return C.gdr_alloc(c.c, C.size_t(m.allocated()), alignBytes, &m.block) })
	if err := c.check(rc, "allocate %d bytes", n); err != nil {
		c.end("memory")
		return nil, err
	}
	return m, nil
}

// allocated returns the length rounded up.
func (m *Memory) allocated() int { return (m.len + alignBytes - 1) / alignBytes * alignBytes }

// Addr returns the memory's device address, a multiple of 2 MiB, which the
// processor cannot access.
func (m *Memory) Addr() uint64 { return uint64(m.block.addr) }

// Len returns the requested length in bytes.
func (m *Memory) Len() int { return m.len }

// Registrable returns nil if an RDMA device may access the memory, or the
// reason why not: the driver refused SYNC_MEMOPS.
func (m *Memory) Registrable() error {
	if m.block.unsynced == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrUnsupported, m.ctx.check(m.block.unsynced, "set SYNC_MEMOPS for %d bytes", m.len))
}

// DMABuf exports the memory, rounded up to 2 MiB, as a dma-buf. It returns the
// dma-buf's descriptor, and the offset of the memory in it. The descriptor is
// close-on-exec and belongs to the Memory: CloseDMABuf or Close closes it.
// Further calls return the same descriptor, so that all devices share one
// window of BAR1. The error is ErrUnsupported unless Device.DMABuf is set.
func (m *Memory) DMABuf() (fd int, offset uint64, err error) {
	if err := m.use(); err != nil {
		return -1, 0, err
	}
	defer m.release()
	m.exporting.Lock()
	defer m.exporting.Unlock()
	if m.dmabuf == nil {
		if err := m.export(); err != nil {
			return -1, 0, err
		}
	}
	return int(m.dmabuf.Fd()), 0, nil
}

func (m *Memory) export() error {
	if !m.ctx.device.DMABuf {
		return fmt.Errorf("export memory of GPU %d as a dma-buf: %w", m.ctx.device.Index, ErrUnsupported)
	}
	var fd C.int
	rc := C.gdr_export(m.ctx.c, m.block.addr, C.size_t(m.allocated()), &fd)
	if err := m.ctx.check(rc, "export %d bytes as a dma-buf", m.allocated()); err != nil {
		return err
	}
	m.dmabuf = os.NewFile(uintptr(fd), "dma-buf")
	return nil
}

// CloseDMABuf closes the descriptor that DMABuf made. Devices that imported the dma-buf
// keep it. Without a descriptor CloseDMABuf does nothing. A later DMABuf exports the
// memory anew.
func (m *Memory) CloseDMABuf() error {
	m.exporting.Lock()
	defer m.exporting.Unlock()
	if m.dmabuf == nil {
		return nil
	}
	err := m.dmabuf.Close()
	m.dmabuf = nil
	return err
}

// Close frees the memory, and closes its dma-buf. The memory must not be registered with
// an RDMA device. Close blocks until the GPU's work that uses the memory is done, and
// other goroutines have left its methods. Closing again does nothing.
func (m *Memory) Close() error {
	return m.close(func() error {
		fdErr := m.CloseDMABuf()
		rc := m.ctx.closing("free memory", func() C.int { return C.gdr_free(m.ctx.c, m.block.base) })
		err := m.ctx.ended(rc, "free %d bytes", m.len)
		m.ctx.end("memory")
		if err != nil {
			return err
		}
		return fdErr
	})
}

// at returns the device address of the n bytes at an offset.
func (m *Memory) at(offset, n int) (C.uint64_t, error) {
	if offset < 0 || n < 0 || offset > m.len || n > m.len-offset {
		return 0, fmt.Errorf("%d bytes at offset %d of %d bytes of GPU memory", n, offset, m.len)
	}
	return m.block.addr + C.uint64_t(offset), nil
}

// Pinned is host memory that the GPU reads and writes directly.
type Pinned struct {
	handle
	ctx  *Context
	mem  []byte
	addr C.uint64_t // address for kernels, 0 if they cannot access it
}

// Pin registers host memory with all GPUs of the process, so that copies run at
// the speed of the bus and without the processor. The memory belongs to the
// caller, must not be on the Go heap, and must remain mapped until Close. It may
// also be registered with an RDMA device. Pin blocks while pages are pinned.
func (c *Context) Pin(mem []byte) (*Pinned, error) {
	if len(mem) == 0 {
		return nil, fmt.Errorf("pin 0 bytes for GPU %d: not a size", c.device.Index)
	}
	if err := c.begin("pinned memory"); err != nil {
		return nil, err
	}
	p := &Pinned{ctx: c, mem: mem}
	rc := c.opening("pin memory", func() C.int {
		return C.gdr_pin(c.c, unsafe.Pointer(&mem[0]), C.size_t(len(mem)), &p.addr)
	})
	if err := c.check(rc, "pin %d bytes of host memory", len(mem)); err != nil {
		c.end("pinned memory")
		return nil, err
	}
	return p, nil
}

// Close ends the registration. No copy from or to the memory may be in
// progress. Close blocks while pages are unpinned. Closing again does nothing.
func (p *Pinned) Close() error {
	return p.close(func() error {
		rc := p.ctx.closing("unpin memory", func() C.int { return C.gdr_unpin(p.ctx.c, unsafe.Pointer(&p.mem[0])) })
		p.ctx.end("pinned memory")
		return p.ctx.ended(rc, "unpin %d bytes of host memory", len(p.mem))
	})
}
