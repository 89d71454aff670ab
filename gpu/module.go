//go:build linux && cgo

package gpu

/*
#cgo noescape gdr_launch
#cgo nocallback gdr_launch
#include "shim.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"slices"
	"unsafe"
)

// module is a set of kernels loaded on the GPU, for all of its users.
type module struct {
	handle
	ctx *Context
	c   *C.struct_abi_module
}

// kernel is one function of a module. It lives as long as the module.
type kernel struct {
	module *module
	name   string
	c      *C.struct_abi_function
}

// loadModule loads a cubin, or PTX text. It blocks while the driver compiles PTX: up to
// seconds if the result is not in the driver's cache.
func (c *Context) loadModule(image []byte) (*module, error) {
	if err := c.begin("modules"); err != nil {
		return nil, err
	}
	m := &module{ctx: c}
	rc := c.opening("load kernels", func() C.int {
		// The copy is outside the Go heap, because the call may be abandoned. The driver
		// determines the length of a cubin from its header, and that of text by a NUL.
		copied := C.CBytes(append(slices.Clip(image), 0))
		defer C.free(copied)
		return C.gdr_module_load(c.c, copied, &m.c)
	})
	if err := c.check(rc, "load kernels"); err != nil {
		c.end("modules")
		return nil, err
	}
	return m, nil
}

// kernel looks up a kernel by its name.
func (m *module) kernel(name string) (*kernel, error) {
	if err := m.use(); err != nil {
		return nil, err
	}
	defer m.release()
	text := C.CString(name)
	defer C.free(unsafe.Pointer(text))
	k := &kernel{module: m, name: name}
	if err := m.ctx.check(C.gdr_function(m.ctx.c, m.c, text, &k.c), "find kernel %s", name); err != nil {
		return nil, err
	}
	return k, nil
}

// unload unloads the module. Work of its kernels must be done.
func (m *module) unload() error {
	return m.close(func() error {
		rc := m.ctx.closing("unload kernels", func() C.int { return C.gdr_module_close(m.ctx.c, m.c) })
		m.ctx.end("modules")
		return m.ctx.ended(rc, "unload kernels")
	})
}

// launch queues grid blocks of block threads with sharedBytes of dynamic shared
// memory. Each arg is the value of one parameter, of at most 8 bytes: a device
// address or a number.
func (s *Stream) launch(k *kernel, grid, block, sharedBytes int, args ...uint64) error {
	if k.module.ctx.kept != s.ctx.kept {
		return fmt.Errorf("launch %s: kernel %w", k.name, errOtherGPU)
	}
	if err := s.use(); err != nil {
		return fmt.Errorf("launch %s in a stream: %w", k.name, err)
	}
	defer s.release()
	if err := k.module.use(); err != nil {
		return fmt.Errorf("launch %s: %w", k.name, err)
	}
	defer k.module.release()
	rc := C.gdr_launch(s.ctx.c, s.c, k.c, C.uint(grid), C.uint(block), C.uint(sharedBytes),
		(*C.uint64_t)(unsafe.SliceData(args)), C.int(len(args)))
	if rc != 0 {
		return s.ctx.failed(rc, "launch %s", k.name)
	}
	return nil
}
