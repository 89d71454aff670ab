//go:build linux && cgo

package xfer_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A GPU is named as in nvidia-smi, at either end. The error for one that does not exist lists those
// that do.
func TestGPUsByTheirNames(t *testing.T) {
	w, gpus := tcpWay(t), fakeGPUs(t, "gpus=3", "mig")
	for _, name := range []string{"1", "MIG-99010203-0405-0607-0809-0a0b0c0d0e01", "2b:00.0", "00000000:2B:00.0"} {
		for _, e := range []ends{{name, "off"}, {"off", name}} {
			if !rdmatest.Picked(t, e.name()) {
				continue
			}
			overGPU(t, w, e, gpus, rdmatest.Faults{}, xfer.RungStaged, nil)
		}
		s := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus })
		write(t, filepath.Join(s.root, "file"), []byte("data"))
		o := w.options(t)
		o.GPU, o.RemoteGPU = name, name
		c := w.client(rdmatest.Faults{})
		c.GPUs = gpus
		sum, err := c.Pull(t.Context(), s.ep, []string{"file"}, filepath.Join(t.TempDir(), "file"), o)
		if err != nil || sum.Local.GPU != 1 || sum.Remote.GPU != 1 {
			t.Fatalf("%s: %+v, %v", name, sum, err)
		}
		for _, other := range []string{"GPU-00010203", "3", "99:00.0"} {
			for _, o.GPU = range []string{"off", other} {
				o.RemoteGPU = map[string]string{"off": other, other: "off"}[o.GPU]
				_, err := c.Pull(t.Context(), s.ep, []string{"file"}, filepath.Join(t.TempDir(), "file"), o)
				want := `there is no GPU ` + other + `, only 0 (0000:1b:00.0, MIG-99010203-0405-0607-0809-0a0b0c0d0e00), 1 (0000:2b:00.0, `
				if !errors.Is(err, rdma.ErrUnsupported) || !strings.Contains(err.Error(), want) {
					t.Errorf("%s here, %s there: %v", o.GPU, o.RemoteGPU, err)
				}
			}
		}
	}
}
