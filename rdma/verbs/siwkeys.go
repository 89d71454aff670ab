//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import "gdrcp/rdma"

// keyPad keeps a stretch of a siw device's mapping keys in use.
//
// siw's user-space driver takes the key 0x90000 to mean that the kernel made no mapping
// (SIW_INVAL_UOBJ_KEY, rdma-core's kernel-headers/rdma/siw-abi.h). But the kernel hands
// keys out from zero upwards, each a page offset, and so comes to that very key: the
// queue that gets it cannot be made. A completion queue that is made first, and is long
// enough to cover that key, keeps it from every other queue.
type keyPad struct {
	cq    *C.struct_abi_cq
	rails int
}

// keyPadCQE makes a completion queue of well over 0x90 pages.
const keyPadCQE = 1 << 15

// padKeys makes the pad before the first rail on the device, or shares it.
func (p *Provider) padKeys(r *rail) error {
	if !r.size.siw {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	pad := p.pads[r.ctx]
	if pad == nil {
		pad = &keyPad{}
		if rc := C.vb_pad_open(r.api, r.ctx, keyPadCQE, &pad.cq); rc != 0 {
			return r.lockedMemory(&rdma.OpError{Op: "open rail", Device: r.dev.Name, Err: errno(rc)})
		}
		p.pads[r.ctx] = pad
	}
	pad.rails++
	return nil
}

// unpadKeys gives the pad up with the last rail.
func (p *Provider) unpadKeys(r *rail) {
	p.mu.Lock()
	defer p.mu.Unlock()
	pad := p.pads[r.ctx]
	if pad == nil {
		return
	}
	if pad.rails--; pad.rails == 0 {
		C.vb_pad_close(r.api, pad.cq)
		delete(p.pads, r.ctx)
	}
}
