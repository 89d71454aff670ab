//go:build linux && cgo

package xfer_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// The GPU digests what arrives together in one launch, a quarter of a ring at most.
func TestLaunchesForManyChunks(t *testing.T) {
	const slots, chunks = 16, 32
	log := filepath.Join(t.TempDir(), "log")
	w, gpus := tcpWay(t), fakeGPUs(t, "late=10", "launches", "log="+log)
	s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus }), t.TempDir()
	write(t, filepath.Join(src, "large"), randomBytes(t, chunks<<20))
	o := w.options(t)
	o.RemoteGPU, o.Slots, o.ChunkBytes = "0", slots, 1<<20
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o); err != nil {
		t.Fatal(err)
	}
	sameTree(t, src, filepath.Join(s.root, "copy"))
	told, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	// Each batch has two kernels, as has the trial before the first.
	batches := bytes.Count(told, []byte("launch 0\n"))/2 - 1
	if least, most := chunks/(slots/4), chunks*2/3; batches < least || batches > most {
		t.Errorf("%d chunks in %d batches, want %d to %d", chunks, batches, least, most)
	}
}

// A ring of few slots in a GPU's memory comes to its end, too.
func TestFewSlotsInAGPU(t *testing.T) {
	w := tcpWay(t)
	for slots := 1; slots <= 3; slots++ {
		for _, hash := range []manifest.Algorithm{manifest.BLAKE3, manifest.XXH3} {
			t.Run(fmt.Sprintf("%d-%v", slots, hash), func(t *testing.T) {
				gpus := fakeGPUs(t, "late=1")
				s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs = gpus }), t.TempDir()
				write(t, filepath.Join(src, "large"), randomBytes(t, 5<<20))
				o := w.options(t)
				o.GPU, o.RemoteGPU, o.Slots, o.ChunkBytes, o.Hash = "0", "0", slots, 1<<20, hash
				c := w.client(rdmatest.Faults{})
				c.GPUs = gpus
				if _, err := c.Push(t.Context(), []string{src}, s.ep, "copy", o); err != nil {
					t.Fatal(err)
				}
				sameTree(t, src, filepath.Join(s.root, "copy"))
			})
		}
	}
}
