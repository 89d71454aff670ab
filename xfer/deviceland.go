package xfer

import (
	"context"

	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
)

// deviceWriter is a worker whose slots are in GPU memory. It copies gathered chunks to the host,
// and writes those that are intact. While one writer waits for the disk, others copy.
type deviceWriter struct {
	sink   *sink
	lander lander
	gpu    *ring.Worker
}

// drainDevice is drainSlots for slots in GPU memory. The first workers are gatherers.
func (k *sink) drainDevice(ctx context.Context, worker int) error {
	r := k.Session.Link.Ring
	d := r.Device
	if worker >= len(d.Gatherers)+len(d.Workers) {
		return nil
	}
	r.NodeOf(0).Stay()
	if worker < len(d.Gatherers) {
		return k.gatherDevice(ctx, d.Gatherers[worker])
	}
	w := &deviceWriter{sink: k, lander: lander{sink: k, writers: k.Session.RingWorkers()}, gpu: d.Workers[worker-len(d.Gatherers)]}
	defer w.lander.unpack.Close()
	for {
		select {
		case l := <-k.device.gathered:
			if err := w.land(ctx, l); err != nil {
				return err
			}
			r := l.r
			k.device.idle <- l
			k.receiver.GiveBack(r)
			if err := w.lander.drain(); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// land writes a gathered chunk. Its slot is free afterwards.
func (w *deviceWriter) land(ctx context.Context, l *deviceLanding) error {
	mem, err := w.fetch(l)
	if err != nil {
		return err
	}
	h := &l.chunk.header
	err = w.lander.landExtents(h, &l.r, func(e *sinkEntry, i int) ([]byte, bool) {
		if l.damaged {
			return nil, false
		}
		x := &h.Extents[i]
		data := mem[x.SlotOff : int64(x.SlotOff)+x.Length]
		if w.digests() {
			return data, w.sink.Session.Terms.DigestOf(x, e.fileBytes(), data) == x.Digest
		}
		return data, l.jobs[i] != noJob && l.digests[i] == x.Digest
	})
	if err != nil {
		return err
	}
	return w.sink.Session.Limit.Wait(ctx, int64(h.StoredBytes), w.sink.tally.Step)
}

// digests reports whether the processor digests, not the GPU.
func (w *deviceWriter) digests() bool { return w.gpu.Device.Digests == nil }

// fetch copies a chunk's plain bytes to the host. That counts as a part of writing them.
func (w *deviceWriter) fetch(l *deviceLanding) (mem []byte, err error) {
	if w.digests() {
		if err := w.sink.stage(w.gpu, &w.lander.unpack, l); err != nil {
			return nil, err
		}
	}
	if l.damaged {
		return nil, nil
	}
	b := &w.gpu.Bounces[0]
	if err := w.gpu.Stream.ToHost(b.Mem[:l.chunk.header.PlainBytes], l.mem, l.at); err != nil {
		return nil, err
	}
	if err := w.gpu.Stream.Record(b.Mark); err != nil {
		return nil, err
	}
	from := stat.Now()
	err = b.Mark.Wait()
	w.lander.spent(stat.Disk, from)
	return b.Mem, err
}
