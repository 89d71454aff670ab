package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// benchSource sends chunks of memory and reads no file. The chunks use the same slots, credits,
// headers and digests as those of a copy.
type benchSource struct {
	Session *flow.Session
	sender  *chunkSender
	chunks  uint64 // to send
	back    uint64 // returned by the sink, guarded by the Sender's lock
	jobs    chan *outSlot
	start   time.Time
	took    time.Duration
	bytes   int64
}

func newBenchSource(s *flow.Session, bytes int64) *benchSource {
	b := &benchSource{Session: s, sender: newChunkSender(s), jobs: make(chan *outSlot, s.Terms.Slots)}
	b.chunks = uint64((bytes + int64(s.Terms.ChunkBytes) - 1) / int64(s.Terms.ChunkBytes))
	b.bytes = int64(b.chunks) * int64(s.Terms.ChunkBytes)
	b.sender.Returned = func(*outChunk) { b.back++ }
	b.sender.Lost = func(c *outChunk, _ *wire.ReturnedSlot) error {
		return fmt.Errorf("%w: chunk %d arrived damaged", ErrIntegrity, c.ID)
	}
	return b
}

func (b *benchSource) Fast(f *wire.Frame) (bool, error) {
	if f.Type == wire.MsgCredit {
		return true, b.sender.Credit(f.Body)
	}
	return false, nil
}

// The session calls these about the progress of chunks. They belong to its sender.

func (b *benchSource) Done(l *link.Link, id uint64)             { b.sender.Done(l, id) }
func (b *benchSource) Immediate(_ *link.Link, imm uint32) error { return b.sender.Immediate(imm) }
func (b *benchSource) Opened()                                  { b.sender.Opened() }

func (b *benchSource) release() error { return nil }

// benchWorkers is the number of workers of a bench at each end: as many as can compute, and no more
// than there are slots.
func benchWorkers(p *wire.Terms) int { return min(chunker.Workers(), p.Slots) }

func (b *benchSource) talk(ctx context.Context, g *errgroup.Group) error {
	b.sender.WakeOn(ctx)
	b.Session.Workers.Store(int32(benchWorkers(&b.Session.Terms)))
	var r link.Role = b
	b.Session.Role.Store(&r)
	if err := b.Session.MakeRing(ctx, flow.SourceSlots(b.Session.Terms.Slots), rdma.LocalRead); err != nil {
		return err
	}
	b.sender.FitRing()
	// The bytes do not compress and are not all alike.
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(b.Session.Link.Ring.Payload); err != nil {
		return err
	}
	err := b.Session.Expect(ctx, wire.MsgRing, "ring", func(body []byte) error {
		info, err := wire.DecodeRing(body, b.Session.Terms.Slots, b.Session.Terms.ChunkBytes)
		if err != nil {
			return err
		}
		b.start = time.Now()
		return b.sender.Open(b.Session.Link, info)
	})
	if err != nil {
		return err
	}
	for range benchWorkers(&b.Session.Terms) {
		g.Go(func() error { return b.fill(ctx) })
	}
	if err := b.feed(ctx); err != nil {
		return err
	}
	b.took = time.Since(b.start)
	if err := b.Session.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, b.chunks)); err != nil {
		return err
	}
	return b.Session.Expect(ctx, wire.MsgDone, "end", func(body []byte) error { return nil })
}

// feed passes out slots until every chunk has come back.
func (b *benchSource) feed(ctx context.Context) error {
	defer close(b.jobs)
	b.sender.Mu.Lock()
	defer b.sender.Mu.Unlock()
	for b.back < b.chunks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !b.sender.RoomLocked() || b.sender.Packed == b.chunks {
			b.sender.AwaitLocked(b.sender.Packed < b.chunks)
			continue
		}
		slot := b.sender.TakeSlotLocked()
		b.sender.NumberLocked(slot)
		n := int64(b.Session.Terms.ChunkBytes)
		slot.Chunk.StoredBytes, slot.Chunk.PlainBytes = uint32(n), uint32(n)
		slot.Chunk.Extents = append(slot.Chunk.Extents, wire.Extent{Off: int64(slot.Chunk.ID) * n, Length: n})
		b.jobs <- slot // never blocks: the channel is as long as the ring
	}
	return nil
}

// fill makes the digests, if they are wanted, and submits the slots.
func (b *benchSource) fill(ctx context.Context) error {
	for {
		select {
		case slot, ok := <-b.jobs:
			if !ok {
				return nil
			}
			if b.Session.Terms.Hash != 0 {
				from := stat.Now()
				slot.Chunk.Extents[0].Digest = benchDigest(b.Session.Terms.Hash, b.Session.Link.Ring.Slot(slot.Index))
				b.Session.Spent(stat.Digests, from)
			}
			if err := b.Session.Limit.Wait(ctx, int64(slot.Chunk.StoredBytes), nil); err != nil {
				return err
			}
			b.sender.SealPayload(slot)
			b.sender.Submit(slot)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func benchDigest(a manifest.Algorithm, mem []byte) manifest.Digest {
	return a.Piece(mem, 0, manifest.DefaultPieceBytes, true)
}

// benchSink receives chunks and verifies those that have digests. It writes them nowhere.
type benchSink struct {
	Session  *flow.Session
	tally    *Tally
	receiver *flow.Receiver
	first    sync.Once // the first chunk
}

func (k *benchSink) Fast(*wire.Frame) (bool, error) { return false, nil }
func (k *benchSink) release() error                 { return nil }

// The session calls these about the progress of chunks. They belong to its receiver.

func (k *benchSink) Done(*link.Link, uint64) { k.receiver.Done() }
func (k *benchSink) Opened()                 { k.receiver.Opened() }

// Immediate receives a chunk. The wait for the first one is not measured.
func (k *benchSink) Immediate(l *link.Link, imm uint32) error {
	k.first.Do(k.receiver.CountFromNow)
	return k.receiver.Immediate(l, imm)
}

func (k *benchSink) talk(ctx context.Context, g *errgroup.Group) error {
	k.Session.Workers.Store(int32(benchWorkers(&k.Session.Terms)))
	var r link.Role = k
	k.Session.Role.Store(&r)
	if err := k.receiver.GrantRing(ctx); err != nil {
		return err
	}
	for range benchWorkers(&k.Session.Terms) {
		g.Go(func() error { return k.drainSlots(ctx) })
	}
	// The end message arrives when every chunk has been returned.
	err := k.Session.Receive(ctx, func(f *wire.Frame) error {
		if f.Type != wire.MsgEnd {
			return fmt.Errorf("%w: message %d in a bench", ErrProtocol, f.Type)
		}
		if err := k.Session.TellCost(ctx); err != nil {
			return err
		}
		return k.Session.SayLast(ctx, wire.MsgDone, nil)
	})
	if err != nil {
		return err
	}
	return k.Session.Linger(ctx)
}

func (k *benchSink) drainSlots(ctx context.Context) error {
	priv := make([]byte, wire.HeaderStride)
	var h wire.ChunkHeader
	var u flow.Unpacker
	for {
		a, err := k.receiver.AwaitSlot(ctx, nil)
		if err != nil {
			return err
		}
		if err := k.receiver.ReadHeader(a, priv, &h); err != nil {
			return err
		}
		if len(h.Extents) != 1 || h.Codec != wire.CodecPlain {
			return fmt.Errorf("%w: a chunk of %d extents in a bench", ErrProtocol, len(h.Extents))
		}
		payload, err := u.Unseal(k.receiver.Seals, &h, k.Session.Link.Ring.Slot(a.Slot)[:h.StoredBytes], k.Session.Terms.ChunkBytes)
		from := stat.Now()
		if err != nil || (k.Session.Terms.Hash != 0 && benchDigest(k.Session.Terms.Hash, payload) != h.Extents[0].Digest) {
			return fmt.Errorf("%w: chunk %d arrived damaged", ErrIntegrity, h.ID)
		}
		k.Session.Spent(stat.Digests, from)
		if err := k.Session.Limit.Wait(ctx, int64(h.StoredBytes), nil); err != nil {
			return err
		}
		k.tally.AddWireBytes(int64(h.StoredBytes))
		k.receiver.GiveBack(wire.ReturnedSlot{Slot: uint32(a.Slot), Generation: a.Generation})
	}
}

// Bandwidth is the result of one bench run.
type Bandwidth struct {
	Link    Link
	Hash    manifest.Algorithm // 0: no digests
	Bytes   int64
	Seconds float64
	// LocalCost is the cost at this end, and RemoteCost at the server. RemoteCost is nil if the
	// server does not report it.
	LocalCost  Cost
	RemoteCost *Cost
}

// MiBPerSecond is the bandwidth in MiB/s.
func (b Bandwidth) MiBPerSecond() float64 { return float64(b.Bytes) / (1 << 20) / b.Seconds }

// BenchBandwidth sends bytes of memory to a server. It measures the time from the first
// chunk to the return of the last. With Options.Hash 0, chunks have no digests.
func (c *Client) BenchBandwidth(ctx context.Context, ep Endpoint, bytes int64, o Options) (*Bandwidth, error) {
	o.Tally = nil // each measurement has its own
	c.complete(&o)
	h, err := o.benchHello(wire.ModeBench)
	if err != nil {
		return nil, err
	}
	h.Terms.Hash = o.Hash
	var b *benchSource
	d, err := c.benchSession(ctx, ep, &o, h, func(ctx context.Context, s *flow.Session, g *errgroup.Group) error {
		b = newBenchSource(s, bytes)
		return b.talk(ctx, g)
	})
	if err != nil {
		return nil, err
	}
	return &Bandwidth{
		Link: d.link, Hash: o.Hash, Bytes: b.bytes, Seconds: b.took.Seconds(),
		LocalCost: b.Session.LocalCost(), RemoteCost: b.Session.Costs.Theirs.Load(),
	}, nil
}

// benchHello is the hello of a client that measures. It contains nothing of the options about
// files.
func (o *Options) benchHello(m wire.Mode) (*wire.Hello, error) {
	h, err := o.hello(m)
	if err != nil {
		return nil, err
	}
	h.Terms.Flags &= wire.FlagEncrypt
	h.Terms.Codec, h.GPU, h.GPUName, h.Terms.MaxDelete, h.Terms.Sizes = CompressOff, 0, "", 0, wire.FileSizes{}
	h.Terms.IO, h.Terms.Transfers, h.Terms.Stage = fileset.IOAuto, 0, fileset.StageID{}
	return h, nil
}

// benchSession connects to the server, agrees on terms with it, and runs talk.
func (c *Client) benchSession(ctx context.Context, ep Endpoint, o *Options, h *wire.Hello, talk func(context.Context, *flow.Session, *errgroup.Group) error) (*firstConn, error) {
	d, err := c.connect(ctx, ep, o)
	if err != nil {
		return nil, err
	}
	s := newSession(d, d.link.Remote, true, o.Timeouts)
	s.Tally, s.RingWish.Shrinks = o.Tally, true
	err = s.Run(ctx, func(ctx context.Context, g *errgroup.Group) error {
		if err := agree(ctx, s, h, d, o); err != nil {
			return err
		}
		if err := joinLanes(ctx, s, d); err != nil {
			return err
		}
		return talk(ctx, s, g)
	})
	d.link.Imm = d.conn.ImmKind()
	return d, errors.Join(err, d.close())
}
