package ring

import (
	"crypto/rand"
	"errors"
	"fmt"

	"gdrcp/gpu"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// Worker is what a goroutine needs to move chunks between host memory and slots in GPU
// memory: a stream of its own, bounce buffers that the GPU reaches without a copy, and
// a hasher. The ring owns the Worker. One goroutine at a time uses it.
type Worker struct {
	Device    *Device
	slotBytes int
	Stream    *gpu.Stream
	Bounces   []Bounce
	// Hasher digests the batch of chunks that Jobs describes. It is nil where the
	// processor digests. Jobs has room for all extents of a batch. The ring itself does
	// not read it.
	Hasher *gpu.Hasher
	Jobs   []gpu.HashJob
	done   *gpu.Mark // in the stream behind a batch
	// Private holds copies of slots that the peer can still write to, where a manifest
	// says, or will say, what arrived. The bytes written are then the bytes hashed. It
	// is nil where no copies are needed.
	Private *gpu.Memory
}

// Bounce is pinned host memory for one chunk. Mark is in the stream behind the last
// copy to or from it.
type Bounce struct {
	Mem    []byte
	pinned *gpu.Pinned
	Mark   *gpu.Mark
}

// bouncesPerWorker is 2: a worker copies one chunk over the bus while it reads or
// writes the file of another.
const bouncesPerWorker = 2

// deviceBatch is how many chunks a worker takes at once: many to a launch, but not so
// many that the other workers have none.
func deviceBatch(slots, workers int) int { return min(max(1, slots/(2*workers)), 64) }

// MaxDeviceWorkers is how many workers share a GPU at most. They wait for the GPU more
// than they compute.
const MaxDeviceWorkers = 4

// BounceBytes is how many bytes of host memory the workers of a ring in GPU memory pin
// beside it, where that many goroutines fill or drain it.
func BounceBytes(workers, slotBytes int) int64 {
	return int64(min(workers, MaxDeviceWorkers)*bouncesPerWorker) * int64(slotBytes)
}

// openWorkers makes the workers of a ring in GPU memory, each with all that it will
// need. After an error the ring closes those that were made.
func (p *placer) openWorkers(r *Ring) error {
	n, d, digests := min(p.Workers, MaxDeviceWorkers), r.Device, p.Touched == nil
	d.Batch = deviceBatch(r.Slots, n)
	for range n {
		w := &Worker{Device: d, slotBytes: r.SlotBytes, Bounces: make([]Bounce, bouncesPerWorker)}
		d.Workers = append(d.Workers, w)
		err := w.open(digests, p.CopySlots && d.Direct())
		if err == nil && len(d.Workers) == 1 && digests {
			err = w.tryDigest()
		}
		if err != nil {
			return fmt.Errorf("prepare the GPU: %w", unsupported(err))
		}
	}
	return nil
}

func (w *Worker) open(digests, private bool) (err error) {
	batch := w.Device.Batch
	if w.Stream, err = w.Device.gpu.NewStream(); err != nil {
		return err
	}
	if w.done, err = w.Device.gpu.NewMark(); err != nil {
		return err
	}
	for i := range w.Bounces {
		b := &w.Bounces[i]
		if b.Mem, err = Map(w.slotBytes); err != nil {
			return err
		}
		if b.pinned, err = w.Device.gpu.Pin(b.Mem); err != nil {
			return err
		}
		if b.Mark, err = w.Device.gpu.NewMark(); err != nil {
			return err
		}
	}
	if digests {
		w.Jobs = make([]gpu.HashJob, 0, batch*wire.MaxExtents)
		if w.Hasher, err = w.Device.gpu.NewHasher(batch*wire.MaxExtents, batch*w.slotBytes); err != nil {
			return err
		}
	}
	if private {
		w.Private, err = w.Device.gpu.Alloc(batch * w.slotBytes)
	}
	return err
}

// tryDigest has the GPU digest the beginning of the slots, and compares the result with
// the processor's. A kernel that loads may still not run.
func (w *Worker) tryDigest() error {
	n := min(tryDigestBytes, w.slotBytes)
	plain := w.Bounces[0].Mem[:n]
	if _, err := rand.Read(plain); err != nil {
		return err
	}
	want := manifest.BLAKE3.Piece(plain, 0, int64(n), true)
	err := w.Stream.ToDevice(w.Device.Slots, 0, plain)
	if err == nil {
		err = w.Hasher.Begin(w.Stream, []gpu.HashJob{{Memory: w.Device.Slots, Len: n, Root: true}})
	}
	if err == nil {
		err = w.Wait()
	}
	if err == nil && w.Hasher.Digest(0) != want {
		err = fmt.Errorf("%w: GPU %d computes wrong digests", gpu.ErrUnsupported, w.Device.memory.GPU)
	}
	return err
}

// Wait blocks until the stream has come to its end. It waits for a mark, because that
// sleeps, and the stream's own Wait may spin.
func (w *Worker) Wait() error {
	if err := w.Stream.Record(w.done); err != nil {
		return err
	}
	return w.done.Wait()
}

// tryDigestBytes is more than one block of threads digests, so that both kernels run.
const tryDigestBytes = 160 << 10

// close waits for what the stream still does, and closes everything.
func (w *Worker) close() error {
	var errs []error
	if w.Stream != nil {
		errs = append(errs, w.Stream.Drain(), w.Stream.Close())
	}
	if w.Hasher != nil {
		errs = append(errs, w.Hasher.Close())
	}
	if w.Private != nil {
		errs = append(errs, w.Private.Close())
	}
	if w.done != nil {
		errs = append(errs, w.done.Close())
	}
	for i := range w.Bounces {
		b := &w.Bounces[i]
		if b.Mark != nil {
			errs = append(errs, b.Mark.Close())
		}
		if b.pinned != nil {
			errs = append(errs, b.pinned.Close())
		}
		// A GPU that hangs may still use the memory that it reaches.
		if b.Mem != nil && w.Device.gpu.Lost() == nil {
			errs = append(errs, unix.Munmap(b.Mem))
		}
	}
	return errors.Join(errs...)
}

// At is where a slot begins in the GPU's memory, in bytes.
func (w *Worker) At(slot int) int { return slot * w.slotBytes }

// HashJob is the digest of an extent, as wire.Terms.DigestOf makes it. The extent's
// chunk begins at byte at of mem. fileBytes is the size of the extent's file.
func HashJob(mem *gpu.Memory, at int, x *wire.Extent, p *wire.Terms, fileBytes int64) gpu.HashJob {
	j := gpu.HashJob{Memory: mem, Offset: at + int(x.SlotOff), Len: int(x.Length), Root: fileBytes <= p.PieceBytes}
	if !j.Root {
		j.Counter = uint64(x.Off) / blake3ChunkBytes
	}
	return j
}

// blake3ChunkBytes is BLAKE3's own unit, which the counter of its tree counts.
const blake3ChunkBytes = 1024
