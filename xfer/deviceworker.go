package xfer

import (
	"crypto/rand"
	"errors"
	"fmt"

	"gdrcp/gpu"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// deviceWorker is what a worker needs to move chunks between host memory and
// slots in GPU memory: a stream of its own, bounce buffers that the GPU reaches
// without a copy, and a hasher. The ring owns it, and one goroutine at a time
// uses it.
type deviceWorker struct {
	device    *deviceRing
	slotBytes int
	stream    *gpu.Stream
	bounces   []bounce
	hasher    *gpu.Hasher // nil where the processor digests
	jobs      []gpu.HashJob
	done      *gpu.Mark // behind a batch
	// private holds copies of slots that the peer can still write to, where a
	// manifest says what arrived: what is written is then what was hashed. Nil
	// where none are needed.
	private *gpu.Memory
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
func deviceBatch(slots, workers int) int { return min(max(1, slots/(2*workers)), 64) }

// maxDeviceWorkers is how many workers share a GPU at most. They wait for it more than
// they compute.
const maxDeviceWorkers = 4

// bounceBytes is how much host memory the workers of a ring in GPU memory pin beside
// it, where as many goroutines fill or drain it.
func bounceBytes(workers, slotBytes int) int64 {
	return int64(min(workers, maxDeviceWorkers)*bouncesPerWorker) * int64(slotBytes)
}

// openWorkers makes the workers of a ring in GPU memory, each with all that it
// will need. What there is of them the ring closes.
func (p *placer) openWorkers(r *ring) error {
	n, d, digests := min(p.workers, maxDeviceWorkers), r.device, p.touched == nil
	d.batch = deviceBatch(r.slots, n)
	for range n {
		w := &deviceWorker{device: d, slotBytes: r.slotBytes, bounces: make([]bounce, bouncesPerWorker)}
		d.workers = append(d.workers, w)
		err := w.open(digests, p.copiesSlots && d.direct())
		if err == nil && len(d.workers) == 1 && digests {
			err = w.tryDigest()
		}
		if err != nil {
			return fmt.Errorf("prepare the GPU: %w", unsupported(err))
		}
	}
	return nil
}

func (w *deviceWorker) open(digests, private bool) (err error) {
	batch := w.device.batch
	if w.stream, err = w.device.gpu.NewStream(); err != nil {
		return err
	}
	if w.done, err = w.device.gpu.NewMark(); err != nil {
		return err
	}
	for i := range w.bounces {
		b := &w.bounces[i]
		if b.mem, err = mapSlots(w.slotBytes); err != nil {
			return err
		}
		if b.pinned, err = w.device.gpu.Pin(b.mem); err != nil {
			return err
		}
		if b.mark, err = w.device.gpu.NewMark(); err != nil {
			return err
		}
	}
	if digests {
		w.jobs = make([]gpu.HashJob, 0, batch*wire.MaxExtents)
		if w.hasher, err = w.device.gpu.NewHasher(batch*wire.MaxExtents, batch*w.slotBytes); err != nil {
			return err
		}
	}
	if private {
		w.private, err = w.device.gpu.Alloc(batch * w.slotBytes)
	}
	return err
}

// tryDigest has the GPU digest the beginning of the slots, and holds the result
// against the processor's: that a kernel loads does not mean that it runs.
func (w *deviceWorker) tryDigest() error {
	n := min(tryDigestBytes, w.slotBytes)
	plain := w.bounces[0].mem[:n]
	if _, err := rand.Read(plain); err != nil {
		return err
	}
	want := manifest.BLAKE3.Piece(plain, 0, int64(n), true)
	err := w.stream.ToDevice(w.device.slots, 0, plain)
	if err == nil {
		err = w.hasher.Begin(w.stream, []gpu.HashJob{{Memory: w.device.slots, Len: n, Root: true}})
	}
	if err == nil {
		err = w.wait()
	}
	if err == nil && w.hasher.Digest(0) != want {
		err = fmt.Errorf("%w: GPU %d digests wrongly", gpu.ErrUnsupported, w.device.memory.GPU)
	}
	return err
}

// wait waits until the stream has come to its end. A mark is slept for; a
// stream's own Wait may spin.
func (w *deviceWorker) wait() error {
	if err := w.stream.Record(w.done); err != nil {
		return err
	}
	return w.done.Wait()
}

// tryDigestBytes is more than one block of threads digests, so that both kernels
// run.
const tryDigestBytes = 160 << 10

// close waits for what the stream still does, and ends all.
func (w *deviceWorker) close() error {
	var errs []error
	if w.stream != nil {
		errs = append(errs, w.stream.Drain(), w.stream.Close())
	}
	if w.hasher != nil {
		errs = append(errs, w.hasher.Close())
	}
	if w.private != nil {
		errs = append(errs, w.private.Close())
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
		// A GPU that hangs may still use what it reaches.
		if b.mem != nil && w.device.gpu.Lost() == nil {
			errs = append(errs, unix.Munmap(b.mem))
		}
	}
	return errors.Join(errs...)
}

// at is where a slot begins in the GPU's memory.
func (w *deviceWorker) at(slot int) int { return slot * w.slotBytes }

// hashJob is the digest of an extent of a chunk that begins at byte at of mem,
// as params.wire.DigestOf makes it.
func hashJob(mem *gpu.Memory, at int, x *wire.Extent, p *wire.Terms, fileBytes int64) gpu.HashJob {
	j := gpu.HashJob{Memory: mem, Offset: at + int(x.SlotOff), Len: int(x.Length), Root: fileBytes <= p.PieceBytes}
	if !j.Root {
		j.Counter = uint64(x.Off) / blake3ChunkBytes
	}
	return j
}

// blake3ChunkBytes is BLAKE3's own unit, of which its tree counts.
const blake3ChunkBytes = 1024
