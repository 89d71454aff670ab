//go:build linux && cgo

package xfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// launches counts the launches that the fake recorded for large chunks: each has two kernels, like
// the trial of a ring.
func launches(t *testing.T, log string) int {
	t.Helper()
	told, err := os.ReadFile(log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(told, []byte("launch 0\n")) / 2
}

// The GPU digests chunks that arrive together in one launch, a quarter of a ring at most.
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
	batches := launches(t, log) - 1
	if least, most := chunks/(slots/4), chunks*2/3; batches < least || batches > most {
		t.Errorf("%d chunks in %d batches, want %d to %d", chunks, batches, least, most)
	}
}

// Concurrent sessions share launches for their digests, and a session that is cut off meanwhile
// does not harm the others.
func TestSessionsShareLaunches(t *testing.T) {
	const slots, chunks, sessions = 16, 64, 3
	for name, cut := range map[string]bool{"all come to their end": false, "one is cut off": true} {
		t.Run(name, func(t *testing.T) {
			log := filepath.Join(t.TempDir(), "log")
			w, gpus := tcpWay(t), fakeGPUs(t, "late=20", "launches", "log="+log)
			s, src := serve(t, w, func(c *xfer.ServerConfig) { c.GPUs, c.MaxSessions = gpus, sessions+1 }), t.TempDir()
			write(t, filepath.Join(src, "large"), randomBytes(t, chunks<<20))
			o := w.options(t)
			o.RemoteGPU, o.Slots, o.ChunkBytes = "0", slots, 1<<20
			push := func(ctx context.Context, name string, bytesPerSecond int64) error {
				o := o
				o.BytesPerSecond = bytesPerSecond
				_, err := w.client(rdmatest.Faults{}).Push(ctx, []string{src}, s.ep, name, o)
				return err
			}
			var all, other errgroup.Group
			for i := range sessions {
				all.Go(func() error { return push(t.Context(), fmt.Sprint(i), 0) })
			}
			if cut {
				ctx, end := context.WithCancel(t.Context())
				// It is slow, or it could end before it is cut off.
				other.Go(func() error { return push(ctx, "other", 4<<20) })
				for start := time.Now(); launches(t, log) < sessions+1+4; time.Sleep(time.Millisecond) {
					if time.Since(start) > time.Minute {
						t.Fatalf("%d launches within a minute", launches(t, log))
					}
				}
				end()
				if err := other.Wait(); !errors.Is(err, context.Canceled) {
					t.Errorf("who was cut off: %v", err)
				}
			}
			if err := all.Wait(); err != nil {
				t.Fatal(err)
			}
			for i := range sessions {
				sameTree(t, src, filepath.Join(s.root, fmt.Sprint(i)))
			}
			// A single session has no more than a quarter of its ring in a launch, and a trial.
			n, alone := launches(t, log), sessions*(chunks/(slots/4)+1)
			t.Logf("%d launches, without sharing %d at least", n, alone)
			if n >= alone {
				t.Errorf("%d launches for %d sessions, want less than the %d without sharing", n, sessions, alone)
			}
		})
	}
}

// A copy through a ring of few slots in GPU memory also ends.
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
