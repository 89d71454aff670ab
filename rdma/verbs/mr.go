//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// mr is a registered memory region.
type mr struct {
	rail       *rail
	c          *C.struct_abi_mr
	addr       uint64
	len        int
	lkey, rkey uint32
	// sinkLKey is the key used as the target of Reads.
	sinkLKey uint32
	sink     *C.struct_abi_mr // a separate registration for Reads, or nil
	access   rdma.Access
	device   bool // memory that the processor does not access
	relaxed  bool
	// orderingRefused: the region was refused with relaxed ordering, and could
	// be registered without it.
	orderingRefused bool
	closed          atomic.Bool
	once            sync.Once
	err             error
}

// Register pins memory and registers it with the device.
//
// On iWARP hardware the data of a Read lands as a write by the peer, so its target must
// grant that right. A region with LocalWrite alone is then registered a second time for
// Reads, so that the key given to the peer grants no more than the caller requested. But
// each Read shows the peer the second key (RFC 5040, 5.3). siw checks for LocalWrite and
// needs no second registration.
func (r *rail) Register(region rdma.Region, access rdma.Access) (rdma.MR, error) {
	if err := r.registrable(region); err != nil {
		return nil, err
	}
	if err := r.enter(); err != nil {
		return nil, err
	}
	defer r.busy.Done()
	m := &mr{rail: r, addr: region.Addr, len: region.Len, access: access, device: region.Mem == nil}
	if !m.device {
		m.addr = uint64(uintptr(unsafe.Pointer(&region.Mem[0])))
	}
	var rc C.int
	if m.c, rc = m.register(region, access); rc == 0 && r.needsSink(access) {
		if m.sink, rc = m.register(region, rdma.RemoteWrite); rc != 0 {
			C.vb_mr_deregister(r.api, m.c)
		}
	}
	switch number := syscall.Errno(-rc); {
	case m.orderingRefused:
		return nil, r.orderingRefused(number)
	case rc != 0:
		return nil, r.registerFailed(region, number)
	}
	m.lkey, m.rkey = uint32(m.c.lkey), uint32(m.c.rkey)
	m.sinkLKey = m.lkey
	if m.sink != nil {
		m.sinkLKey = uint32(m.sink.lkey)
	}
	r.mu.Lock()
	r.mrs[m] = struct{}{}
	r.mu.Unlock()
	return m, nil
}

// register makes one registration, with relaxed ordering if that is wanted. If auto wants
// it and the device refuses it, register retries without. If the user wants it, register
// finds out whether relaxed ordering is the reason for the refusal.
func (m *mr) register(region rdma.Region, access rdma.Access) (out *C.struct_abi_mr, rc C.int) {
	flags := accessFlags(access)
	if access&rdma.Unordered == 0 || !relaxes(m.rail.cfg.Wire.Ordering, m.device) {
		return m.registerBy(region, flags)
	}
	out, rc = m.registerBy(region, flags|C.ABI_ACCESS_RELAXED_ORDERING)
	m.relaxed = rc == 0
	if !refusesOrdering(syscall.Errno(-rc)) {
		return out, rc
	}
	strict, other := m.registerBy(region, flags)
	if m.rail.cfg.Wire.Ordering == rdma.OrderingAuto || other != 0 {
		return strict, other
	}
	m.orderingRefused = true
	C.vb_mr_deregister(m.rail.api, strict)
	return nil, rc
}

// registerBy makes one registration, by the method that the region calls for.
func (m *mr) registerBy(region rdma.Region, flags C.int) (out *C.struct_abi_mr, rc C.int) {
	r, addr, bytes := m.rail.c, C.uint64_t(m.addr), C.size_t(m.len)
	if importable(region) {
		rc = C.vb_mr_import(r, C.int(region.DMABufFD), C.uint64_t(region.DMABufOffset), bytes, addr, flags, &out)
	} else {
		rc = C.vb_mr_register(r, addr, bytes, flags, &out)
	}
	return out, rc
}

func (r *rail) needsSink(access rdma.Access) bool {
	return r.dev.Transport == rdma.IWARP && !r.size.siw &&
		access&rdma.LocalWrite != 0 && access&rdma.RemoteWrite == 0
}

func accessFlags(access rdma.Access) C.int {
	var f C.int
	if access&(rdma.LocalWrite|rdma.RemoteWrite) != 0 {
		// Remote write without local write is invalid (ibv_reg_mr(3)).
		f |= C.ABI_ACCESS_LOCAL_WRITE
	}
	if access&rdma.RemoteWrite != 0 {
		f |= C.ABI_ACCESS_REMOTE_WRITE
	}
	if access&rdma.RemoteRead != 0 {
		f |= C.ABI_ACCESS_REMOTE_READ
	}
	return f
}

// Addr returns a virtual address of this process, or of a device.
func (m *mr) Addr() uint64 { return m.addr }

// RKey is the region's remote key.
func (m *mr) RKey() uint32 { return m.rkey }

// Len returns the length in bytes.
func (m *mr) Len() int { return m.len }

// Relaxed reports whether the region has relaxed ordering.
func (m *mr) Relaxed() bool { return m.relaxed }

// Close deregisters the memory. It blocks while pages are unpinned.
// Soft-iWARP's driver does not wait for a packet that it is copying to the
// region (siw_proc_write, Linux 6.12).
func (m *mr) Close() error {
	m.once.Do(func() {
		m.closed.Store(true)
		for _, c := range []*C.struct_abi_mr{m.sink, m.c} {
			if c == nil {
				continue
			}
			if rc := C.vb_mr_deregister(m.rail.api, c); rc != 0 {
				m.err = errors.Join(m.err, &rdma.OpError{Op: "deregister memory", Device: m.rail.dev.Name, Err: errno(rc)})
			}
		}
		m.rail.mu.Lock()
		delete(m.rail.mrs, m)
		m.rail.mu.Unlock()
	})
	return m.err
}

// lockedMemory converts an ENOMEM of an operation that pins pages (regions,
// buffers of queues) to rdma.ErrLockedMemory, with the limit and how to raise
// it, unless this process is exempt from the limit.
func (r *rail) lockedMemory(op *rdma.OpError) error {
	// siw grants no exemption (Linux 6.1, siw_umem_get and siw_reg_user_mr).
	if !errors.Is(op.Err, syscall.ENOMEM) || (!r.size.siw && rdma.MayLockAll()) {
		return op
	}
	limit := "unknown"
	var lim unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim) == nil {
		limit = fmt.Sprintf("%d bytes", lim.Cur)
		if lim.Cur == math.MaxUint64 {
			// Otherwise the machine ran out of memory.
			return op
		}
	}
	op.Err = fmt.Errorf("%w (limit %s, and every device's registration counts)", rdma.ErrLockedMemory, limit)
	op.Hint = "raise the limit: `ulimit -l unlimited`, LimitMEMLOCK=infinity in a systemd unit, `--ulimit memlock=-1` for docker"
	return op
}
