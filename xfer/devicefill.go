package xfer

import (
	"context"

	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// deviceFiller is a worker whose slots are in GPU memory. It reads chunks into bounce buffers, and
// the GPU copies several of them to their slots and digests them there in one launch. The worker
// posts the chunks only when its stream is done, because an RDMA device does not wait for a stream.
type deviceFiller struct {
	src   *source
	gpu   *ring.Worker
	pack  *flow.Packer
	batch []*outSlot
	asked []hashedExtent // in the order of the launch's jobs
	own   pieceBuffer
}

// hashedExtent names an extent that the GPU digests.
type hashedExtent struct {
	chunk  *outChunk
	extent int
}

// fillDevice is fill for slots in GPU memory.
func (s *source) fillDevice(ctx context.Context, worker int, pack *flow.Packer) error {
	if worker >= len(s.Session.Link.Ring.Device.Workers) {
		return nil
	}
	f := deviceFiller{src: s, gpu: s.Session.Link.Ring.Device.Workers[worker], pack: pack, batch: make([]*outSlot, 0, s.Session.Link.Ring.Device.Batch)}
	for {
		slot, err := s.nextFill(ctx, nil)
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

// collect makes a batch of a slot and the others that wait to be filled.
func (f *deviceFiller) collect(first *outSlot) {
	f.batch = append(f.batch[:0], first)
	for len(f.batch) < cap(f.batch) {
		select {
		case _, more := <-f.src.jobs.Ready:
			if !more {
				return
			}
			f.batch = append(f.batch, f.src.jobs.Next(nil))
		default:
			return
		}
	}
}

// fill copies the batch to its slots and gets its digests.
func (f *deviceFiller) fill() error {
	w := f.gpu
	w.Jobs, f.asked = w.Jobs[:0], f.asked[:0]
	for n, slot := range f.batch {
		b := &w.Bounces[n%len(w.Bounces)]
		if n >= len(w.Bounces) {
			if err := b.Mark.Wait(); err != nil {
				return err
			}
		}
		if err := f.bring(slot, b); err != nil {
			return err
		}
	}
	if len(w.Jobs) > 0 {
		if err := w.Hasher.Begin(w.Stream, w.Jobs); err != nil {
			return err
		}
	}
	from := stat.Now()
	if err := w.Wait(); err != nil {
		return err
	}
	f.src.Session.Spent(stat.Digests, from)
	for n, a := range f.asked {
		f.src.digested(a.chunk, a.extent, w.Hasher.Digest(n))
		if a.chunk.Again {
			a.chunk.Of.files[a.extent].mark(&a.chunk.Extents[a.extent])
		}
	}
	for _, slot := range f.batch {
		c := &slot.Chunk
		c.Codec, c.StoredBytes = wire.CodecPlain, c.PlainBytes
		if !w.Device.Direct() {
			c.Codec, c.StoredBytes = f.pack.Pack(f.src.Session.Link.Ring.Slot(slot.Index), int(c.PlainBytes))
		}
	}
	return nil
}

// bring reads a chunk into a bounce buffer and begins to copy it to its slot. If the RDMA device
// does not reach that slot, bring also begins to copy the chunk from there to the host's slot.
func (f *deviceFiller) bring(slot *outSlot, b *ring.Bounce) error {
	w, c := f.gpu, &slot.Chunk
	at := w.At(slot.Index)
	f.src.fillChunk(nil, c, b.Mem, &f.own, func(i int) {
		if w.Hasher == nil {
			f.src.digested(c, i, f.src.digestOf(c, i, b.Mem))
			return
		}
		w.Jobs = append(w.Jobs, ring.HashJob(w.Device.Slots, at, &c.Extents[i], &f.src.Session.Terms, c.Of.files[i].Size))
		f.asked = append(f.asked, hashedExtent{c, i})
	})
	err := w.Stream.ToDevice(w.Device.Slots, at, b.Mem[:c.PlainBytes])
	if err == nil && !w.Device.Direct() {
		err = w.Stream.ToHost(f.src.Session.Link.Ring.Slot(slot.Index)[:c.PlainBytes], w.Device.Slots, at)
	}
	if err != nil {
		return err
	}
	return w.Stream.Record(b.Mark)
}
