package xfer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gdrcp/gpu"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// gatherDeviceTime is how long a batch waits for more chunks while the writers are busy: a batch
// costs a flush, a part of a launch and the wait for both, however many chunks it has. A process
// that is otherwise idle may sleep for 1 ms instead.
const gatherDeviceTime = 200 * time.Microsecond

// deviceLanding is a chunk in GPU memory on its way to the files. Its bytes are in mem, from offset
// at on. It belongs first to the gatherer, then to one writer.
type deviceLanding struct {
	chunk   landing
	a       flow.Filled
	r       wire.ReturnedSlot
	mem     *gpu.Memory
	at      int
	damaged bool // the payload did not decode
	// jobs has for each extent the number of its job in the batch, or noJob, and digests the GPU's
	// results.
	jobs    []int
	digests []manifest.Digest
}

// noJob is an extent that the GPU does not digest.
const noJob = -1

// deviceLandings are the channels between the gatherers and the writers: to the writers, and back
// when a landing is free again. It is returned before its slot is given back, so there are never
// more landings than slots, and neither channel is ever full.
type deviceLandings struct {
	gathered, idle chan *deviceLanding
	// gathering is held by the gatherer that collects chunks.
	gathering chan struct{}
}

func newDeviceLandings(slots int) deviceLandings {
	return deviceLandings{make(chan *deviceLanding, slots), make(chan *deviceLanding, slots), make(chan struct{}, 1)}
}

// take returns a free landing.
func (d *deviceLandings) take() *deviceLanding {
	select {
	case l := <-d.idle:
		return l
	default:
	}
	l := &deviceLanding{}
	l.chunk.init()
	return l
}

// deviceGatherer collects chunks that arrive in GPU memory. One flush makes many of them readable,
// and the GPU's dispatcher digests them in one launch, with those of other sessions. While the
// gatherer waits for that, another one collects the chunks that arrive meanwhile. It passes the
// chunks to the writers, which run concurrently. If the processor digests, the writers do so, and
// the gatherer only passes the chunks on.
type deviceGatherer struct {
	sink    *sink
	gpu     *ring.Worker
	unpack  flow.Unpacker
	timer   *time.Timer
	batch   []*deviceLanding // cap: the largest batch
	digests [][32]byte       // results for the batch's jobs
}

// gatherDevice runs a gatherer.
func (k *sink) gatherDevice(ctx context.Context, w *ring.Worker) error {
	g := &deviceGatherer{sink: k, gpu: w, timer: time.NewTimer(gatherDeviceTime), batch: make([]*deviceLanding, 0, w.Device.Batch)}
	defer g.timer.Stop()
	defer g.unpack.Close()
	for {
		if err := g.begin(ctx); err != nil {
			return err
		}
		if err := g.end(); err != nil {
			return err
		}
		for _, l := range g.batch {
			k.device.gathered <- l
		}
	}
}

// begin gathers a batch, and makes the jobs for the GPU. Other gatherers wait meanwhile.
func (g *deviceGatherer) begin(ctx context.Context) error {
	select {
	case g.sink.device.gathering <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-g.sink.device.gathering }()
	a, err := g.sink.receiver.AwaitSlot(ctx, nil)
	if err != nil {
		return err
	}
	if err := g.gather(ctx, a); err != nil || len(g.batch) == 0 || g.gpu.Device.Digests == nil {
		return err
	}
	if err := g.bring(ctx); err != nil {
		return err
	}
	return g.ask()
}

// gather fills the batch, beginning with a, with the chunks that have arrived. While the writers
// are busy it waits for more, until the batch is full, or gatherDeviceTime is over, or nothing can
// arrive.
func (g *deviceGatherer) gather(ctx context.Context, a flow.Filled) error {
	g.batch = g.batch[:0]
	g.timer.Reset(gatherDeviceTime)
	for {
		if err := g.add(a); err != nil {
			return err
		}
		if len(g.batch) == cap(g.batch) {
			return nil
		}
		select {
		case <-g.sink.receiver.Work.Ready:
			a = g.sink.receiver.Work.Next(nil)
			continue
		default:
		}
		if g.gpu.Device.Digests == nil || len(g.sink.device.gathered) == 0 || g.sink.receiver.IsFull() {
			return nil
		}
		select {
		case <-g.sink.receiver.Work.Ready:
			a = g.sink.receiver.Work.Next(nil)
		case <-g.timer.C:
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// add adds a chunk to the batch, if the chunk's turn has come and its header is intact.
func (g *deviceGatherer) add(a flow.Filled) error {
	l := g.sink.device.take()
	l.a, l.r, l.damaged = a, wire.ReturnedSlot{Slot: uint32(a.Slot), Generation: a.Generation}, false
	done, err := g.sink.open(&l.chunk, a, &l.r)
	switch {
	case err != nil:
		return err
	case done && !l.r.Again:
		g.batch = append(g.batch, l)
		return nil
	}
	r := l.r
	g.sink.device.idle <- l
	if done {
		g.sink.receiver.GiveBack(r)
	}
	return nil
}

// end makes the GPU digest the batch, and collects the digests.
func (g *deviceGatherer) end() error {
	if len(g.batch) == 0 || g.gpu.Device.Digests == nil {
		return nil
	}
	from := stat.Now()
	g.digests = slices.Grow(g.digests[:0], len(g.gpu.Jobs))[:len(g.gpu.Jobs)]
	if err := g.gpu.Digest(g.gpu.Jobs, g.digests); err != nil {
		return err
	}
	g.sink.tally.Spend(stat.Digests, from, len(g.gpu.Device.Gatherers))
	for _, l := range g.batch {
		l.digests = l.digests[:0]
		for _, job := range l.jobs {
			var d manifest.Digest
			if job != noJob {
				d = g.digests[job]
			}
			l.digests = append(l.digests, d)
		}
	}
	return nil
}

// bring makes the batch's bytes readable in GPU memory.
func (g *deviceGatherer) bring(ctx context.Context) error {
	if !g.gpu.Device.Direct() {
		for _, l := range g.batch {
			if err := g.sink.stage(g.gpu, &g.unpack, l); err != nil {
				return err
			}
		}
		return nil
	}
	if err := g.flush(ctx); err != nil {
		return err
	}
	for _, l := range g.batch {
		if l.chunk.header.Codec != wire.CodecPlain {
			return fmt.Errorf("%w: chunk %d is compressed, which was not agreed", ErrProtocol, l.chunk.header.ID)
		}
		l.mem, l.at = g.gpu.Device.Slots, g.gpu.At(l.a.Slot)
		private := g.gpu.Device.Private
		if private == nil {
			continue
		}
		if err := g.gpu.Stream.Copy(private, l.at, l.mem, l.at, int(l.chunk.header.PlainBytes)); err != nil {
			return err
		}
		l.mem = private
	}
	return nil
}

// flush makes the received bytes of the batch visible to the GPU.
func (g *deviceGatherer) flush(ctx context.Context) error {
	for _, l := range slices.Backward(g.batch) {
		// A chunk of empty files has no bytes. The chunks before it may have some.
		if n := l.chunk.header.StoredBytes; n > 0 {
			return g.sink.Session.Link.Ring.Flush(ctx, l.a.Slot, int(n))
		}
	}
	return nil
}

// stage begins to copy a chunk from the host's slot to the GPU's, out of the peer's reach.
func (k *sink) stage(w *ring.Worker, u *flow.Unpacker, l *deviceLanding) error {
	h, slot := &l.chunk.header, k.Session.Link.Ring.Slot(l.a.Slot)
	plain, err := u.Unseal(k.receiver.Seals, h, slot[:h.StoredBytes], k.Session.Terms.ChunkBytes)
	if err == nil {
		plain, err = u.Unpack(h.Codec, plain, h.PlainBytes, k.Session.Terms.ChunkBytes)
	}
	if l.damaged = errors.Is(err, flow.ErrPayload); l.damaged {
		return nil
	}
	if err != nil {
		return err
	}
	if h.Codec != wire.CodecPlain || k.receiver.Seals != nil {
		// The GPU copies from the slot, because the slot is pinned.
		plain = slot[:copy(slot, plain)]
	}
	l.mem, l.at = w.Device.Slots, w.At(l.a.Slot)
	return w.Stream.ToDevice(l.mem, l.at, plain)
}

// ask makes a job for every extent of the batch that has bytes.
func (g *deviceGatherer) ask() error {
	w := g.gpu
	w.Jobs = w.Jobs[:0]
	for _, l := range g.batch {
		l.jobs = l.jobs[:0]
		plain := int64(0)
		for i := range l.chunk.header.Extents {
			x := &l.chunk.header.Extents[i]
			job, err := g.jobOf(l, x)
			if err != nil {
				return err
			}
			if job != noJob {
				plain += x.Length
			}
			l.jobs = append(l.jobs, job)
		}
		if plain > int64(g.sink.Session.Terms.ChunkBytes) {
			return fmt.Errorf("%w: chunk %d has extents of %d bytes", ErrProtocol, l.chunk.header.ID, plain)
		}
	}
	return nil
}

// jobOf adds the digest of an extent to the jobs and returns its number there.
func (g *deviceGatherer) jobOf(l *deviceLanding, x *wire.Extent) (int, error) {
	if l.damaged {
		return noJob, nil
	}
	e, err := g.sink.entryOfData(x.Entry)
	if err != nil || e == nil {
		return noJob, err
	}
	if brings, err := g.sink.checkExtent(&l.chunk.header, e, x); err != nil || !brings {
		return noJob, err
	}
	if x.SlotOff%extentAlign != 0 {
		return noJob, fmt.Errorf("%w: an extent at byte %d of its chunk", ErrProtocol, x.SlotOff)
	}
	g.gpu.Jobs = append(g.gpu.Jobs, ring.HashJob(l.mem, l.at, x, &g.sink.Session.Terms, e.fileBytes()))
	return len(g.gpu.Jobs) - 1, nil
}
