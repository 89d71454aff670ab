package xfer

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// deviceLander is a worker whose slots are in GPU memory. It verifies chunks there,
// many to a launch. Only good chunks go on to the files.
type deviceLander struct {
	sink   *sink
	lander lander // of one chunk of the batch at a time
	gpu    *ring.Worker
	batch  []deviceLanding // cap: the largest batch
}

// deviceLanding is one chunk of a batch. Its bytes are in mem, from offset at on.
type deviceLanding struct {
	chunk   landing
	a       filledSlot
	r       wire.ReturnedSlot
	mem     *gpu.Memory
	at      int
	damaged bool // the payload did not decode
	jobs    []int
}

// noJob is an extent that the GPU does not digest.
const noJob = -1

func newDeviceLander(k *sink, worker int) *deviceLander {
	n := k.session.link.ring.Device.Batch
	d := &deviceLander{sink: k, lander: lander{sink: k}, gpu: k.session.link.ring.Device.Workers[worker], batch: make([]deviceLanding, 0, n)}
	for i := range d.batch[:n] {
		l := &d.batch[:n][i]
		l.chunk.init()
		l.jobs = make([]int, 0, wire.MaxExtents)
	}
	return d
}

// drainDevice is drainSlots for slots in GPU memory.
func (k *sink) drainDevice(ctx context.Context, worker int) error {
	if worker >= len(k.session.link.ring.Device.Workers) {
		return nil
	}
	d := newDeviceLander(k, worker)
	defer d.lander.unpack.close()
	for {
		a, err := k.receiver.awaitSlot(ctx)
		if err != nil {
			return err
		}
		d.batch = d.batch[:0]
		for more := true; more; {
			if err := d.add(a); err != nil {
				return err
			}
			if len(d.batch) == cap(d.batch) {
				break
			}
			select {
			case a = <-k.receiver.work:
			default:
				more = false
			}
		}
		if len(d.batch) == 0 {
			continue
		}
		if err := d.landBatch(ctx); err != nil {
			return err
		}
	}
}

// add takes a chunk into the batch, if the chunk's turn has come and its header is
// whole.
func (d *deviceLander) add(a filledSlot) error {
	n := len(d.batch)
	l := &d.batch[:n+1][n]
	l.a, l.r, l.damaged = a, wire.ReturnedSlot{Slot: uint32(a.slot), Generation: a.generation}, false
	done, err := d.sink.open(&l.chunk, a, &l.r)
	if err != nil || !done {
		return err
	}
	if l.r.Again {
		d.sink.receiver.giveBack(l.r)
		return nil
	}
	d.batch = d.batch[:n+1]
	return nil
}

// landBatch verifies the batch and writes it. While it writes one chunk, the next is
// copied to the host, and other workers can use the GPU.
func (d *deviceLander) landBatch(ctx context.Context) error {
	if err := d.bring(ctx); err != nil {
		return err
	}
	if err := d.hash(); err != nil {
		return err
	}
	w := d.gpu
	for i := range min(len(d.batch), len(w.Bounces)) {
		if err := d.fetch(i); err != nil {
			return err
		}
	}
	for i := range d.batch {
		l, b := &d.batch[i], &w.Bounces[i%len(w.Bounces)]
		// The stream reaches this mark after the digests too.
		from := stat.Now()
		if err := b.Mark.Wait(); err != nil {
			return err
		}
		d.sink.session.spent(stat.Digests, from)
		if err := d.landFetched(l, b.Mem); err != nil {
			return err
		}
		if err := d.sink.session.limit.Wait(ctx, int64(l.chunk.header.StoredBytes), d.sink.tally.Step); err != nil {
			return err
		}
		d.sink.receiver.giveBack(l.r)
		if err := d.lander.drain(); err != nil {
			return err
		}
		if next := i + len(w.Bounces); next < len(d.batch) {
			if err := d.fetch(next); err != nil {
				return err
			}
		}
	}
	return nil
}

// bring makes the batch's bytes readable in GPU memory.
func (d *deviceLander) bring(ctx context.Context) error {
	if !d.sink.session.link.ring.Device.Direct() {
		for i := range d.batch {
			if err := d.stage(&d.batch[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if err := d.flush(ctx); err != nil {
		return err
	}
	for i := range d.batch {
		l := &d.batch[i]
		if l.chunk.header.Codec != wire.CodecPlain {
			return fmt.Errorf("%w: chunk %d is compressed, which was not agreed", ErrProtocol, l.chunk.header.ID)
		}
		l.mem, l.at = d.gpu.Device.Slots, d.gpu.At(l.a.slot)
		if d.gpu.Private == nil {
			continue
		}
		if err := d.gpu.Stream.Copy(d.gpu.Private, d.gpu.At(i), l.mem, l.at, int(l.chunk.header.PlainBytes)); err != nil {
			return err
		}
		l.mem, l.at = d.gpu.Private, d.gpu.At(i)
	}
	return nil
}

// flush makes the bytes of the batch that arrived visible to the GPU.
func (d *deviceLander) flush(ctx context.Context) error {
	for i := range slices.Backward(d.batch) {
		// A chunk of empty files brings no bytes. The chunks before it may bring some.
		if l := &d.batch[i]; l.chunk.header.StoredBytes > 0 {
			return d.sink.session.link.ring.Flush(ctx, l.a.slot, int(l.chunk.header.StoredBytes))
		}
	}
	return nil
}

// stage copies a chunk from the host's slot to the GPU's, where the peer can no longer
// reach it.
func (d *deviceLander) stage(l *deviceLanding) error {
	h, slot := &l.chunk.header, d.sink.session.link.ring.Slot(l.a.slot)
	plain, err := d.lander.unpack.unseal(d.sink.receiver.seals, h, slot[:h.StoredBytes], d.sink.session.terms.ChunkBytes)
	if err == nil {
		plain, err = d.lander.unpack.unpack(h.Codec, plain, h.PlainBytes, d.sink.session.terms.ChunkBytes)
	}
	if l.damaged = errors.Is(err, errPayload); l.damaged {
		return nil
	}
	if err != nil {
		return err
	}
	if h.Codec != wire.CodecPlain || d.sink.receiver.seals != nil {
		// The GPU copies from the slot, because the slot is pinned.
		plain = slot[:copy(slot, plain)]
	}
	l.mem, l.at = d.gpu.Device.Slots, d.gpu.At(l.a.slot)
	return d.gpu.Stream.ToDevice(l.mem, l.at, plain)
}

// hash begins to digest every extent of the batch that brings bytes.
func (d *deviceLander) hash() error {
	w := d.gpu
	w.Jobs = w.Jobs[:0]
	for i := range d.batch {
		l := &d.batch[i]
		l.jobs = l.jobs[:0]
		plain := int64(0)
		for j := range l.chunk.header.Extents {
			x := &l.chunk.header.Extents[j]
			job, err := d.jobOf(l, x)
			if err != nil {
				return err
			}
			if job != noJob {
				plain += x.Length
			}
			l.jobs = append(l.jobs, job)
		}
		if plain > int64(d.sink.session.terms.ChunkBytes) {
			return fmt.Errorf("%w: chunk %d has extents of %d bytes", ErrProtocol, l.chunk.header.ID, plain)
		}
	}
	if len(w.Jobs) == 0 {
		return nil
	}
	return w.Hasher.Begin(w.Stream, w.Jobs)
}

// jobOf adds the digest of an extent to the launch and returns its index there.
func (d *deviceLander) jobOf(l *deviceLanding, x *wire.Extent) (int, error) {
	if d.gpu.Hasher == nil || l.damaged {
		return noJob, nil
	}
	e, err := d.sink.entry(x.Entry)
	if err != nil || e == nil {
		return noJob, err
	}
	if brings, err := d.sink.checkExtent(&l.chunk.header, e, x); err != nil || !brings {
		return noJob, err
	}
	if x.SlotOff%extentAlign != 0 {
		return noJob, fmt.Errorf("%w: an extent at byte %d of its chunk", ErrProtocol, x.SlotOff)
	}
	d.gpu.Jobs = append(d.gpu.Jobs, ring.HashJob(l.mem, l.at, x, &d.sink.session.terms, e.Size))
	return len(d.gpu.Jobs) - 1, nil
}

// fetch begins to copy a chunk of the batch to its bounce buffer.
func (d *deviceLander) fetch(i int) error {
	l, b := &d.batch[i], &d.gpu.Bounces[i%len(d.gpu.Bounces)]
	if !l.damaged {
		if err := d.gpu.Stream.ToHost(b.Mem[:l.chunk.header.PlainBytes], l.mem, l.at); err != nil {
			return err
		}
	}
	return d.gpu.Stream.Record(b.Mark)
}

// landFetched lands a chunk whose plain bytes are in mem.
func (d *deviceLander) landFetched(l *deviceLanding, mem []byte) error {
	h := &l.chunk.header
	return d.lander.landExtents(h, &l.r, func(e *sinkEntry, i int) ([]byte, bool) {
		if l.damaged {
			return nil, false
		}
		x := &h.Extents[i]
		data := mem[x.SlotOff : int64(x.SlotOff)+x.Length]
		if d.gpu.Hasher == nil {
			return data, d.sink.session.terms.DigestOf(x, e.Size, data) == x.Digest
		}
		j := l.jobs[i]
		return data, j != noJob && d.gpu.Hasher.Digest(j) == x.Digest
	})
}
