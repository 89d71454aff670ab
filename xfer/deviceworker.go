package xfer

import (
	"errors"
	"fmt"

	"gdrcp/gpu"

	"golang.org/x/sys/unix"
)

// deviceWorker is what a worker needs to move chunks between host memory and
// slots in GPU memory: a stream of its own, bounce buffers that the GPU reaches
// without a copy, and a hasher. One goroutine owns it.
type deviceWorker struct {
	*deviceRing
	slotBytes int
	stream    *gpu.Stream
	bounces   []bounce
	hasher    *gpu.Hasher // nil where the processor digests
	jobs      []gpu.HashJob
	done      *gpu.Mark // behind a batch
}

// bounce is a chunk's worth of pinned host memory. mark is in the stream behind
// the last copy to or from it.
type bounce struct {
	mem    []byte
	pinned *gpu.Pinned
	mark   *gpu.Mark
}

// A worker copies one chunk over the bus while it reads or writes the file of
// another.
const bouncesPerWorker = 2

// deviceBatch is how many chunks a worker takes at once: many to a launch, and
// some left for the other workers.
func deviceBatch(slots int) int { return min(max(1, slots/(2*deviceWorkers())), 64) }

// deviceWorkers is how many workers share a GPU. They wait for it more than
// they compute.
func deviceWorkers() int { return min(workers(), maxDeviceWorkers) }

const maxDeviceWorkers = 4

// newDeviceWorker makes a worker for a ring in GPU memory; digests says that it
// is to digest there.
func newDeviceWorker(r *ring, digests bool) (*deviceWorker, error) {
	w := &deviceWorker{deviceRing: r.device, slotBytes: r.slotBytes, bounces: make([]bounce, bouncesPerWorker)}
	if err := w.open(deviceBatch(r.slots), digests); err != nil {
		return nil, withClose(fmt.Errorf("prepare the GPU: %w", unsupported(err)), w.close())
	}
	return w, nil
}

func (w *deviceWorker) open(batch int, digests bool) (err error) {
	if w.stream, err = w.gpu.NewStream(); err != nil {
		return err
	}
	if w.done, err = w.gpu.NewMark(); err != nil {
		return err
	}
	for i := range w.bounces {
		b := &w.bounces[i]
		if b.mem, err = mapSlots(w.slotBytes); err != nil {
			return err
		}
		if b.pinned, err = w.gpu.Pin(b.mem); err != nil {
			return err
		}
		if b.mark, err = w.gpu.NewMark(); err != nil {
			return err
		}
	}
	if digests {
		w.jobs = make([]gpu.HashJob, 0, batch*maxExtents)
		w.hasher, err = w.gpu.NewHasher(batch*maxExtents, batch*w.slotBytes)
	}
	return err
}

// close waits for what the stream still does, and ends all.
func (w *deviceWorker) close() error {
	var errs []error
	if w.stream != nil {
		errs = append(errs, w.stream.Wait(), w.stream.Close())
	}
	if w.hasher != nil {
		errs = append(errs, w.hasher.Close())
	}
	if w.done != nil {
		errs = append(errs, w.done.Close())
	}
	for i := range w.bounces {
		b := &w.bounces[i]
		if b.mark != nil {
			errs = append(errs, b.mark.Close())
		}
		if b.pinned != nil {
			errs = append(errs, b.pinned.Close())
		}
		if b.mem != nil {
			errs = append(errs, unix.Munmap(b.mem))
		}
	}
	return errors.Join(errs...)
}

// at is where a slot begins in the GPU's memory.
func (w *deviceWorker) at(slot int) int { return slot * w.slotBytes }

// hashJob is the digest of an extent of a chunk that begins at byte at of mem,
// as params.digestOf makes it.
func hashJob(mem *gpu.Memory, at int, x *extent, p *params, fileBytes int64) gpu.HashJob {
	j := gpu.HashJob{Memory: mem, Offset: at + int(x.slotOff), Len: int(x.length), Root: fileBytes <= p.pieceBytes}
	if !j.Root {
		j.Counter = uint64(x.off) / blake3ChunkBytes
	}
	return j
}

// blake3ChunkBytes is BLAKE3's own unit, of which its tree counts.
const blake3ChunkBytes = 1024
