//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import "gdrcp/rdma"

// keyPad keeps a range of a siw device's mapping keys in use.
//
// siw's user-space driver takes the key 0x90000 to mean that the kernel made no
// mapping (SIW_INVAL_UOBJ_KEY, rdma-core's kernel-headers/rdma/siw-abi.h). But
// the kernel assigns keys from zero upwards, each a page offset, and eventually
// assigns that key: creating the queue that gets it fails. A completion queue
// that is created first, and is long enough to cover that key, prevents this.
type keyPad struct {
	cq    *C.struct_abi_cq
	rails int
}

// keyPadCQE makes a completion queue larger than 0x90 pages.
const keyPadCQE = 1 << 15

// padKeys creates the pad before the first rail on the device, or shares it.
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

// unpadKeys frees the pad with the last rail.
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
