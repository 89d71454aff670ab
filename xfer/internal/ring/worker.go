package ring

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"

	"gdrcp/gpu"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// Worker is what a goroutine needs to move chunks between host memory and slots in GPU
// memory, or to digest them there: its own stream, bounce buffers that the GPU accesses
// without a copy, and for a source a hasher. The ring owns the Worker. It is not safe for
// concurrent use.
type Worker struct {
	Device    *Device
	slotBytes int
	Stream    *gpu.Stream
	Bounces   []Bounce
	// Hasher digests the batch of chunks that Jobs describes, for a source's workers; a
	// sink's Gatherers have the Device's Digests for that. It is nil if the processor
	// digests. Jobs has room for all extents of a batch; the ring itself does not read it.
	Hasher *gpu.Hasher
	Jobs   []gpu.HashJob
	done   *gpu.Mark // in the stream after a batch
}

// Bounce is pinned host memory for one chunk. Mark is in the stream after the last copy to
// or from it.
type Bounce struct {
	Mem    []byte
	pinned *gpu.Pinned
	Mark   *gpu.Mark
}

// bouncesPerWorker is 2: a source's worker copies one chunk over the bus while it reads the
// file of another. A sink has twice as many workers instead, with one each, so that more of
// them can wait for a disk.
const bouncesPerWorker = 2

// deviceBatch is how many chunks a source's worker takes at a time: many for one launch,
// but not so many that the other workers have none.
func deviceBatch(slots, workers int) int { return min(max(1, slots/(2*workers)), 64) }

// Gatherers is the number of Gatherers of a sink's ring in GPU memory: one takes chunks,
// flushes and copies while the GPU works for the other.
const Gatherers = 2

// gatheredBatch is how many chunks a sink's Gatherer takes at a time: together both have
// half of the ring, and the other half fills meanwhile.
func gatheredBatch(slots, slotBytes int) int {
	return max(1, min(slots/(2*Gatherers), gatheredBytes/slotBytes))
}

// gatheredBytes is how much one launch digests.
const gatheredBytes = 64 << 20

// MaxDeviceWorkers is the maximum number of workers that share a GPU. They mostly wait for
// the GPU.
const MaxDeviceWorkers = 4

// BounceBytes returns how many bytes of host memory the workers of a ring in GPU memory
// pin in addition, for a Config with the given Workers. It is the same for a source and a
// sink.
func BounceBytes(workers, slotBytes int) int64 {
	return int64(min(workers, MaxDeviceWorkers)*bouncesPerWorker) * int64(slotBytes)
}

// openWorkers makes the workers of a ring in GPU memory, with everything that they will
// need. After an error the ring closes those that were made.
func (p *placer) openWorkers(r *Ring) error {
	d, digests := r.Device, p.Touched == nil
	n, need := min(p.Workers, MaxDeviceWorkers), workerNeeds{bounces: bouncesPerWorker, jobs: digests, hasher: digests}
	d.Batch = deviceBatch(r.Slots, n)
	if p.Access&rdma.RemoteWrite != 0 {
		d.Batch = gatheredBatch(r.Slots, r.SlotBytes)
		n, need = n*bouncesPerWorker, workerNeeds{bounces: 1}
		if err := p.openGatherers(r, digests); err != nil {
			return fmt.Errorf("prepare the GPU: %w", unsupported(err))
		}
	}
	for range n {
		w := &Worker{Device: d, slotBytes: r.SlotBytes}
		d.Workers = append(d.Workers, w)
		if err := w.open(r, need); err != nil {
			return fmt.Errorf("prepare the GPU: %w", unsupported(err))
		}
	}
	if !digests {
		return nil
	}
	if err := d.tryDigest(slices.Concat(d.Gatherers, d.Workers)[0], d.Workers[0].Bounces[0].Mem); err != nil {
		return fmt.Errorf("prepare the GPU: %w", unsupported(err))
	}
	return nil
}

// openGatherers makes what a sink's ring has in addition to its workers.
func (p *placer) openGatherers(r *Ring, digests bool) (err error) {
	d := r.Device
	for range Gatherers {
		g := &Worker{Device: d, slotBytes: r.SlotBytes}
		d.Gatherers = append(d.Gatherers, g)
		if err := g.open(r, workerNeeds{jobs: digests}); err != nil {
			return err
		}
	}
	if digests {
		if d.Digests, err = d.gpu.NewSubmitter(Gatherers); err != nil {
			return err
		}
	}
	if p.CopySlots && d.Direct() {
		d.Private, err = d.gpu.Alloc(r.Slots * r.SlotBytes)
	}
	return err
}

// workerNeeds describes what a Worker needs.
type workerNeeds struct {
	bounces      int
	jobs, hasher bool
}

func (w *Worker) open(r *Ring, need workerNeeds) (err error) {
	batch := w.Device.Batch
	if w.Stream, err = w.Device.gpu.NewStream(); err != nil {
		return err
	}
	if w.done, err = w.Device.gpu.NewWordMark(); err != nil {
		return err
	}
	w.Bounces = make([]Bounce, need.bounces)
	for i := range w.Bounces {
		b := &w.Bounces[i]
		if b.Mem, err = r.mapNear(w.slotBytes); err != nil {
			return err
		}
		if b.pinned, err = w.Device.gpu.Pin(b.Mem); err != nil {
			return err
		}
		if b.Mark, err = w.Device.gpu.NewMark(); err != nil {
			return err
		}
	}
	if need.jobs {
		w.Jobs = make([]gpu.HashJob, 0, batch*wire.MaxExtents)
	}
	if need.hasher {
		if w.Hasher, err = w.Device.gpu.NewHasher(batch*wire.MaxExtents, batch*w.slotBytes); err != nil {
			return err
		}
	}
	return nil
}

// tryDigest lets the GPU digest the beginning of the slots, as it will for w, and compares
// the result with the processor's, because a kernel that loads may still not run. pinned
// is memory of a slot's size.
func (d *Device) tryDigest(w *Worker, pinned []byte) error {
	n := min(tryDigestBytes, w.slotBytes)
	plain := pinned[:n]
	if _, err := rand.Read(plain); err != nil {
		return err
	}
	want := manifest.BLAKE3.Piece(plain, 0, int64(n), true)
	jobs, got := []gpu.HashJob{{Memory: d.Slots, Len: n, Root: true}}, make([][32]byte, 1)
	err := w.Stream.ToDevice(d.Slots, 0, plain)
	if err == nil && d.Digests == nil {
		err = w.Hasher.Begin(w.Stream, jobs)
	}
	if err == nil {
		err = w.Wait()
	}
	switch {
	case err != nil:
		return err
	case d.Digests == nil:
		got[0] = w.Hasher.Digest(0)
	default:
		if err := d.Digests.Digest(jobs, got); err != nil {
			return err
		}
	}
	if got[0] != want {
		return fmt.Errorf("%w: GPU %d computes wrong digests", gpu.ErrUnsupported, d.memory.GPU)
	}
	return nil
}

// Digest stores the digest of job i in digests[i], for a Gatherer. It blocks until the
// copies that the Gatherer queued are done, and then until the digests are. A launch does
// not wait for the copies itself, because it may also have jobs of other sessions.
func (w *Worker) Digest(jobs []gpu.HashJob, digests [][32]byte) error {
	if d := w.Device; !d.Direct() || d.Private != nil {
		if err := w.Wait(); err != nil {
			return err
		}
	}
	return w.Device.Digests.Digest(jobs, digests)
}

// Wait blocks until the stream is idle. It waits for a mark, which sleeps, because the
// stream's own Wait may spin.
func (w *Worker) Wait() error {
	if err := w.Stream.Record(w.done); err != nil {
		return err
	}
	return w.done.Wait()
}

// tryDigestBytes is more than one block of threads digests, so that both kernels run.
const tryDigestBytes = 160 << 10

// drain waits for the stream's remaining work.
func (w *Worker) drain() error {
	if w.Stream == nil {
		return nil
	}
	return w.Stream.Drain()
}

// close closes everything, after the streams of all workers have been drained.
func (w *Worker) close() error {
	var errs []error
	if w.Stream != nil {
		errs = append(errs, w.Stream.Close())
	}
	if w.Hasher != nil {
		errs = append(errs, w.Hasher.Close())
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
		// A hung GPU may still use the memory that it can access.
		if b.Mem != nil && w.Device.gpu.Lost() == nil {
			errs = append(errs, unix.Munmap(b.Mem))
		}
		b.Mem = nil // closing again must not unmap memory that another session has mapped there since
	}
	return errors.Join(errs...)
}

// At returns the offset of a slot in the GPU's memory, in bytes.
func (w *Worker) At(slot int) int { return slot * w.slotBytes }

// HashJob returns the job that digests an extent as wire.Terms.DigestOf does. The extent's
// chunk begins at byte at of mem. fileBytes is the size of the extent's file.
func HashJob(mem *gpu.Memory, at int, x *wire.Extent, p *wire.Terms, fileBytes int64) gpu.HashJob {
	j := gpu.HashJob{Memory: mem, Offset: at + int(x.SlotOff), Len: int(x.Length), Root: fileBytes <= p.PieceBytes}
	if !j.Root {
		j.Counter = uint64(x.Off) / blake3ChunkBytes
	}
	return j
}

// blake3ChunkBytes is BLAKE3's chunk size, in which the counter of its tree counts.
const blake3ChunkBytes = 1024
