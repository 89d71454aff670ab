//go:build linux && cgo

package gpu

import (
	"embed"
	"errors"
	"fmt"
)

//go:generate ./ptx
//go:generate ./cubins

// blake3PTX is blake3.cu as compiled by the script ptx.
//
//go:embed blake3.ptx
var blake3PTX string

// cubins are blake3PTX as assembled by the script cubins, one for each of several
// compute capabilities.
//
//go:embed cubin/*.cubin
var cubins embed.FS

// cubinFor returns the machine code for GPUs of a compute capability, and its name; nil
// if there is none. A GPU runs code for its own compute capability or an earlier one of
// the same major number (CUDA C++ Programming Guide, "Binary Compatibility").
func cubinFor(major, minor int) (name string, image []byte) {
	for ; minor >= 0; minor-- {
		name = fmt.Sprintf("sm_%d%d", major, minor)
		if image, err := cubins.ReadFile("cubin/" + name + ".cubin"); err == nil {
			return name, image
		}
	}
	return "", nil
}

// hashKernels are the kernels that all Hashers of a GPU share.
type hashKernels struct {
	form        string // the loaded form: "sm_90", or "PTX"
	module      *module
	tiles, join *kernel
}

// load loads the machine code for the GPU. If there is none, or the driver refuses it,
// load loads the PTX, which needs the driver's compiler.
func (k *hashKernels) load(c *Context) error {
	name, image := cubinFor(c.device.ComputeMajor, c.device.ComputeMinor)
	if image != nil {
		if err := k.loadImage(c, name, image); err == nil || !c.refuses(err) {
			return err
		}
	}
	return k.loadImage(c, "PTX", []byte(blake3PTX))
}

// refuses reports whether an error is the driver's refusal of an image, in
// which case another image may load.
func (c *Context) refuses(err error) bool {
	return errors.As(err, new(*Error)) && !errors.Is(err, ErrOutOfMemory) && c.Lost() == nil
}

func (k *hashKernels) loadImage(c *Context, form string, image []byte) (err error) {
	if k.module, err = c.loadModule(image); err != nil {
		return err
	}
	// A driver with lazy loading refuses an image only here.
	if k.tiles, err = k.module.kernel("gdr_blake3_tiles"); err == nil {
		k.join, err = k.module.kernel("gdr_blake3_join")
	}
	if err != nil {
		return errors.Join(err, k.module.unload())
	}
	k.form = form
	return nil
}
