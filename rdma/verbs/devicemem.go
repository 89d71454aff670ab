//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"syscall"

	"gdrcp/rdma"
)

// Memory of another device, such as a GPU, is registered in one of two ways: as a
// dma-buf, which the driver of the RDMA device imports, or by its address. The kernel
// cannot pin such an address itself, so it asks nvidia-peermem.

// importable reports whether a region is registered as a dma-buf.
func importable(region rdma.Region) bool { return region.Mem == nil && region.DMABufFD >= 0 }

// registrable refuses a region that the kernel would refuse in any case.
func (r *rail) registrable(region rdma.Region) error {
	op := &rdma.OpError{Op: registering(region), Device: r.dev.Name}
	if err := region.Check(); err != nil {
		op.Err = err
		return op
	}
	if importable(region) && C.vb_can_import(r.api) == 0 {
		op.Status, op.Hint, op.Err = oldLibrary.text, oldLibrary.hint, rdma.ErrUnsupported
		return op
	}
	return nil
}

func registering(region rdma.Region) string {
	kind := "memory"
	if region.Mem == nil {
		kind = "device memory"
	}
	return fmt.Sprintf("register %d bytes of %s", region.Len, kind)
}

// refusal is the reason why device memory cannot be registered.
type refusal struct {
	text, hint string
	// unsupported: another method may work here, but this one never will.
	unsupported bool
}

var oldLibrary = refusal{
	"libibverbs has no ibv_reg_dmabuf_mr of version IBVERBS_1.12", "install rdma-core 34 or later", true,
}

const barHint = "make the ring smaller, and see what BAR1 has left in `nvidia-smi -q -d MEMORY`"

// errNotSupp is the kernel's ENOTSUPP, which has no name in user space (Linux,
// include/linux/errno.h). Drivers return it.
const errNotSupp = syscall.Errno(524)

// importRefusals are the reasons why registering a dma-buf fails: those of the
// kernel's RDMA core (Linux, drivers/infiniband/core/uverbs_std_types_mr.c), of
// dma_buf_get and dma_buf_attach, and of the drivers at either end.
var importRefusals = map[syscall.Errno]refusal{
	syscall.EOPNOTSUPP: {
		"the device's driver does not import dma-bufs",
		"mlx5 needs a kernel with CONFIG_INFINIBAND_ON_DEMAND_PAGING; elsewhere nvidia-peermem may do", true,
	},
	errNotSupp: {
		"the drivers of the GPU and of the device do not support this mapping of the dma-buf (ENOTSUPP)",
		"see dmesg; check that the GPU and the device can reach each other over PCIe (ACS, the IOMMU)", true,
	},
	syscall.EPROTONOSUPPORT: {"the kernel does not register dma-bufs", "run Linux 5.12 or later", true},
	syscall.EBADF:           {"the descriptor of the dma-buf is not open", bugHint, false},
	syscall.EINVAL: {
		"the device does not take this part of the dma-buf: the descriptor is of no dma-buf, the dma-buf is shorter, or its pages do not suit the device",
		"see dmesg", false,
	},
	syscall.ENOMEM: {"there is no room to map the dma-buf in", barHint, false},
	syscall.EFAULT: {"the dma-buf cannot be mapped for the device", barHint + "; and dmesg", false},
	syscall.EIO:    {"the dma-buf cannot be mapped for the device", barHint + "; and dmesg", false},
}

// pinRefusals are the same for an address of device memory.
var pinRefusals = map[syscall.Errno]refusal{
	syscall.EFAULT: {
		"the kernel cannot pin this memory: nvidia-peermem is not loaded or not usable",
		"modprobe nvidia-peermem, which needs the RDMA drivers of NVIDIA's DOCA or OFED; where it is loaded, a full BAR1 of the GPU looks the same", true,
	},
	syscall.ENOMEM: {"there is no room to map the memory in", barHint, false},
}

// registerFailed describes the kernel's refusal of a registration.
func (r *rail) registerFailed(region rdma.Region, number syscall.Errno) error {
	op := &rdma.OpError{Op: registering(region), Device: r.dev.Name, Err: number}
	reasons := importRefusals
	if !importable(region) {
		// The limit on locked memory applies to all pages except those of a dma-buf.
		if locked := r.lockedMemory(op); region.Mem != nil || errors.Is(locked, rdma.ErrLockedMemory) {
			return locked
		}
		reasons = pinRefusals
	}
	why := reasons[number]
	op.Status, op.Hint = why.text, why.hint
	if why.unsupported {
		op.Err = fmt.Errorf("%w: %w", rdma.ErrUnsupported, number)
	}
	return op
}

// imports returns the reason why a device cannot import dma-bufs, or an empty string.
func (p *Provider) imports(ctx *C.struct_abi_context) (problem string) {
	if C.vb_can_import(p.api) == 0 {
		return oldLibrary.text + ": " + oldLibrary.hint
	}
	rc := C.vb_device_imports(p.api, ctx)
	if rc == 0 {
		return ""
	}
	number := syscall.Errno(-rc)
	if why, ok := importRefusals[number]; ok {
		return why.text
	}
	return number.Error()
}
