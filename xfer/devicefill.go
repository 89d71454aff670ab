package xfer

import (
	"context"
	"errors"
)

// fillDevice is a worker whose slots are in GPU memory. Chunks are read into
// bounce buffers and copied to their slots, several at once; the GPU digests
// them there in one launch; and only when the stream has come to its end are
// they posted: an RDMA device does not wait for it.
func (s *source) fillDevice(ctx context.Context, pack *packer) (err error) {
	w, err := newDeviceWorker(s.ring, s.params.touched() == nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	batch := make([]*outSlot, 0, deviceBatch(s.params.slots))
	for {
		slot, err := s.nextFill(ctx)
		if slot == nil || err != nil {
			return err
		}
		batch = s.moreToFill(append(batch[:0], slot))
		if err := s.fillBatch(w, batch, pack); err != nil {
			return err
		}
		for _, slot := range batch {
			if err := s.handOver(slot); err != nil {
				return err
			}
		}
	}
}

// moreToFill adds to a batch what waits to be filled.
func (s *source) moreToFill(batch []*outSlot) []*outSlot {
	for len(batch) < cap(batch) {
		select {
		case slot := <-s.jobs:
			if slot == nil {
				return batch
			}
			batch = append(batch, slot)
		default:
			return batch
		}
	}
	return batch
}

// hashedExtent names an extent whose digest the GPU makes.
type hashedExtent struct {
	chunk  *outChunk
	extent int
}

// fillBatch brings chunks into their slots and gets their digests.
func (s *source) fillBatch(w *deviceWorker, batch []*outSlot, pack *packer) error {
	onGPU := w.hasher != nil
	w.jobs = w.jobs[:0]
	asked := make([]hashedExtent, 0, cap(w.jobs))
	for n, slot := range batch {
		b, c := &w.bounces[n%len(w.bounces)], &slot.chunk
		if n >= len(w.bounces) {
			if err := b.mark.Wait(); err != nil {
				return err
			}
		}
		s.fillChunk(c, b.mem, func(i int) {
			if !onGPU {
				s.digested(c, i, s.digestOf(c, i, b.mem))
				return
			}
			w.jobs = append(w.jobs, hashJob(w.slots, w.at(slot.index), &c.extents[i], &s.params, c.files[i].Size))
			asked = append(asked, hashedExtent{c, i})
		})
		c.codec, c.storedBytes = codecPlain, c.plainBytes
		err := w.stream.ToDevice(w.slots, w.at(slot.index), b.mem[:c.plainBytes])
		if err == nil && !w.direct() {
			err = w.stream.ToHost(s.ring.slot(slot.index)[:c.plainBytes], w.slots, w.at(slot.index))
		}
		if err = errors.Join(err, w.stream.Record(b.mark)); err != nil {
			return err
		}
	}
	if len(w.jobs) > 0 {
		if err := w.hasher.Begin(w.stream, w.jobs); err != nil {
			return err
		}
	}
	// A mark is slept for; a stream's own Wait may spin.
	if err := errors.Join(w.stream.Record(w.done), w.done.Wait()); err != nil {
		return err
	}
	for n, a := range asked {
		s.digested(a.chunk, a.extent, w.hasher.Digest(n))
		if a.chunk.tries > 0 {
			a.chunk.files[a.extent].mark(&a.chunk.extents[a.extent])
		}
	}
	if s.params.codec == CompressOff {
		return nil
	}
	for _, slot := range batch {
		c := &slot.chunk
		c.codec, c.storedBytes = pack.pack(s.ring.slot(slot.index), int(c.plainBytes))
	}
	return nil
}
