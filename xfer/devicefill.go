package xfer

import (
	"context"

	"gdrcp/xfer/internal/wire"
)

// deviceFiller is a worker whose slots are in GPU memory: it reads chunks into
// bounce buffers and has them copied to their slots, several at once; the GPU
// digests them there in one launch; and only when its stream has come that far
// are they posted, because an RDMA device does not wait for it.
type deviceFiller struct {
	*source
	gpu   *deviceWorker
	pack  *packer
	batch []*outSlot
	asked []hashedExtent // by job of the launch
}

// hashedExtent names an extent whose digest the GPU makes.
type hashedExtent struct {
	chunk  *outChunk
	extent int
}

// fillDevice is fill for slots in GPU memory.
func (s *source) fillDevice(ctx context.Context, worker int, pack *packer) error {
	if worker >= len(s.ring.device.workers) {
		return nil
	}
	f := deviceFiller{source: s, gpu: s.ring.device.workers[worker], pack: pack, batch: make([]*outSlot, 0, s.ring.device.batch)}
	for {
		slot, err := s.nextFill(ctx)
		if slot == nil || err != nil {
			return err
		}
		f.collect(slot)
		if err := f.fill(); err != nil {
			return err
		}
		for _, slot := range f.batch {
			if err := s.handOver(ctx, slot); err != nil {
				return err
			}
		}
	}
}

// collect makes a batch of a slot and what else waits to be filled.
func (f *deviceFiller) collect(first *outSlot) {
	f.batch = append(f.batch[:0], first)
	for len(f.batch) < cap(f.batch) {
		select {
		case slot := <-f.jobs:
			if slot == nil {
				return // there is no more
			}
			f.batch = append(f.batch, slot)
		default:
			return
		}
	}
}

// fill brings the batch into its slots and gets its digests.
func (f *deviceFiller) fill() error {
	w := f.gpu
	w.jobs, f.asked = w.jobs[:0], f.asked[:0]
	for n, slot := range f.batch {
		b := &w.bounces[n%len(w.bounces)]
		if n >= len(w.bounces) {
			if err := b.mark.Wait(); err != nil {
				return err
			}
		}
		if err := f.bring(slot, b); err != nil {
			return err
		}
	}
	if len(w.jobs) > 0 {
		if err := w.hasher.Begin(w.stream, w.jobs); err != nil {
			return err
		}
	}
	if err := w.wait(); err != nil {
		return err
	}
	for n, a := range f.asked {
		f.digested(a.chunk, a.extent, w.hasher.Digest(n))
		if a.chunk.tries > 0 {
			a.chunk.files[a.extent].mark(&a.chunk.Extents[a.extent])
		}
	}
	for _, slot := range f.batch {
		c := &slot.chunk
		c.Codec, c.StoredBytes = wire.CodecPlain, c.PlainBytes
		if !w.device.direct() {
			c.Codec, c.StoredBytes = f.pack.pack(f.ring.slot(slot.index), int(c.PlainBytes))
		}
	}
	return nil
}

// bring reads a chunk into a bounce buffer and begins to copy it to its slot,
// and from there, where the RDMA device does not reach it, to the host's.
func (f *deviceFiller) bring(slot *outSlot, b *bounce) error {
	w, c := f.gpu, &slot.chunk
	at := w.at(slot.index)
	f.fillChunk(c, b.mem, func(i int) {
		if w.hasher == nil {
			f.digested(c, i, f.digestOf(c, i, b.mem))
			return
		}
		w.jobs = append(w.jobs, hashJob(w.device.slots, at, &c.Extents[i], &f.terms, c.files[i].Size))
		f.asked = append(f.asked, hashedExtent{c, i})
	})
	err := w.stream.ToDevice(w.device.slots, at, b.mem[:c.PlainBytes])
	if err == nil && !w.device.direct() {
		err = w.stream.ToHost(f.ring.slot(slot.index)[:c.PlainBytes], w.device.slots, at)
	}
	if err != nil {
		return err
	}
	return w.stream.Record(b.mark)
}
