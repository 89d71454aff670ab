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
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// benchSource sends chunks of memory and reads no file. The chunks go through the same
// slots, credits, headers and digests as those of a copy.
type benchSource struct {
	session *session
	sender  *chunkSender
	chunks  uint64 // to send
	back    uint64 // returned by the sink, guarded by sender.mu
	jobs    chan *outSlot
	start   time.Time
	took    time.Duration
	bytes   int64
}

func newBenchSource(s *session, bytes int64) *benchSource {
	b := &benchSource{session: s, sender: newChunkSender(s), jobs: make(chan *outSlot, s.terms.Slots)}
	b.chunks = uint64((bytes + int64(s.terms.ChunkBytes) - 1) / int64(s.terms.ChunkBytes))
	b.bytes = int64(b.chunks) * int64(s.terms.ChunkBytes)
	b.sender.returned = func(*outChunk) { b.back++ }
	b.sender.lost = func(c *outChunk, _ *wire.ReturnedSlot) error {
		return fmt.Errorf("%w: chunk %d arrived damaged", ErrIntegrity, c.ID)
	}
	return b
}

func (b *benchSource) Fast(f *wire.Frame) (bool, error) {
	if f.Type == wire.MsgCredit {
		return true, b.sender.credit(f.Body)
	}
	return false, nil
}

// The session tells these of the way of the chunks. They belong to its sender.

func (b *benchSource) Done(l *link.Link, id uint64)             { b.sender.done(l, id) }
func (b *benchSource) Immediate(_ *link.Link, imm uint32) error { return b.sender.immediate(imm) }
func (b *benchSource) Opened()                                  { b.sender.opened() }

func (b *benchSource) release() error { return nil }

// benchWorkers is how many workers a bench has at each end: as many as compute, and no more than
// there are slots.
func benchWorkers(p *wire.Terms) int { return min(chunker.Workers(), p.Slots) }

func (b *benchSource) talk(ctx context.Context, g *errgroup.Group) error {
	b.sender.wakeOn(ctx)
	b.session.workers.Store(int32(benchWorkers(&b.session.terms)))
	var r link.Role = b
	b.session.Role.Store(&r)
	if err := b.session.makeRing(ctx, sourceSlots(b.session.terms.Slots), rdma.LocalRead); err != nil {
		return err
	}
	b.sender.fitRing()
	// The bytes do not compress and are not all alike.
	random := rand.NewChaCha8([32]byte{1})
	if _, err := random.Read(b.session.Link.Ring.Payload); err != nil {
		return err
	}
	err := b.session.Expect(ctx, wire.MsgRing, "ring", func(body []byte) error {
		info, err := wire.DecodeRing(body, b.session.terms.Slots, b.session.terms.ChunkBytes)
		if err != nil {
			return err
		}
		b.start = time.Now()
		return b.sender.open(b.session.Link, info)
	})
	if err != nil {
		return err
	}
	for range benchWorkers(&b.session.terms) {
		g.Go(func() error { return b.fill(ctx) })
	}
	if err := b.feed(ctx); err != nil {
		return err
	}
	b.took = time.Since(b.start)
	if err := b.session.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, b.chunks)); err != nil {
		return err
	}
	return b.session.Expect(ctx, wire.MsgDone, "end", func(body []byte) error { return nil })
}

// feed hands out slots until every chunk has come back.
func (b *benchSource) feed(ctx context.Context) error {
	defer close(b.jobs)
	b.sender.mu.Lock()
	defer b.sender.mu.Unlock()
	for b.back < b.chunks {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !b.sender.roomLocked() || b.sender.packed == b.chunks {
			b.sender.awaitLocked(b.sender.packed < b.chunks)
			continue
		}
		slot := b.sender.takeSlotLocked()
		b.sender.numberLocked(slot)
		n := int64(b.session.terms.ChunkBytes)
		slot.chunk.StoredBytes, slot.chunk.PlainBytes = uint32(n), uint32(n)
		slot.chunk.Extents = append(slot.chunk.Extents, wire.Extent{Off: int64(slot.chunk.ID) * n, Length: n})
		b.jobs <- slot // never blocks: the channel is as long as the ring
	}
	return nil
}

// fill makes the digests, where they are wanted, and submits the slots.
func (b *benchSource) fill(ctx context.Context) error {
	for {
		select {
		case slot, ok := <-b.jobs:
			if !ok {
				return nil
			}
			if b.session.terms.Hash != 0 {
				from := stat.Now()
				slot.chunk.Extents[0].Digest = benchDigest(b.session.terms.Hash, b.session.Link.Ring.Slot(slot.index))
				b.session.spent(stat.Digests, from)
			}
			if err := b.session.limit.Wait(ctx, int64(slot.chunk.StoredBytes), nil); err != nil {
				return err
			}
			b.sender.sealPayload(slot)
			b.sender.submit(slot)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func benchDigest(a manifest.Algorithm, mem []byte) manifest.Digest {
	return a.Piece(mem, 0, manifest.DefaultPieceBytes, true)
}

// benchSink takes chunks and verifies them where they have digests. It writes them
// nowhere.
type benchSink struct {
	session  *session
	tally    *Tally
	receiver *chunkReceiver
	first    sync.Once // the first chunk
}

func (k *benchSink) Fast(*wire.Frame) (bool, error) { return false, nil }
func (k *benchSink) release() error                 { return nil }

// The session tells these of the way of the chunks. They belong to its receiver.

func (k *benchSink) Done(*link.Link, uint64) { k.receiver.done() }
func (k *benchSink) Opened()                 { k.receiver.opened() }

// Immediate takes a chunk. What was waited for before the first one is not what is measured.
func (k *benchSink) Immediate(l *link.Link, imm uint32) error {
	k.first.Do(k.receiver.countFromNow)
	return k.receiver.immediate(l, imm)
}

func (k *benchSink) talk(ctx context.Context, g *errgroup.Group) error {
	k.session.workers.Store(int32(benchWorkers(&k.session.terms)))
	var r link.Role = k
	k.session.Role.Store(&r)
	if err := k.receiver.grantRing(ctx); err != nil {
		return err
	}
	for range benchWorkers(&k.session.terms) {
		g.Go(func() error { return k.drainSlots(ctx) })
	}
	// The message of the end comes when every chunk has been returned.
	err := k.session.Receive(ctx, func(f *wire.Frame) error {
		if f.Type != wire.MsgEnd {
			return fmt.Errorf("%w: message %d in a bench", ErrProtocol, f.Type)
		}
		if err := k.session.tellCost(ctx); err != nil {
			return err
		}
		return k.session.SayLast(ctx, wire.MsgDone, nil)
	})
	if err != nil {
		return err
	}
	return k.session.Linger(ctx)
}

func (k *benchSink) drainSlots(ctx context.Context) error {
	priv := make([]byte, wire.HeaderStride)
	var h wire.ChunkHeader
	var u unpacker
	for {
		a, err := k.receiver.awaitSlot(ctx, nil)
		if err != nil {
			return err
		}
		if err := k.receiver.readHeader(a, priv, &h); err != nil {
			return err
		}
		if len(h.Extents) != 1 || h.Codec != wire.CodecPlain {
			return fmt.Errorf("%w: a chunk of %d extents in a bench", ErrProtocol, len(h.Extents))
		}
		payload, err := u.unseal(k.receiver.seals, &h, k.session.Link.Ring.Slot(a.slot)[:h.StoredBytes], k.session.terms.ChunkBytes)
		from := stat.Now()
		if err != nil || (k.session.terms.Hash != 0 && benchDigest(k.session.terms.Hash, payload) != h.Extents[0].Digest) {
			return fmt.Errorf("%w: chunk %d arrived damaged", ErrIntegrity, h.ID)
		}
		k.session.spent(stat.Digests, from)
		if err := k.session.limit.Wait(ctx, int64(h.StoredBytes), nil); err != nil {
			return err
		}
		k.tally.AddWireBytes(int64(h.StoredBytes))
		k.receiver.giveBack(wire.ReturnedSlot{Slot: uint32(a.slot), Generation: a.generation})
	}
}

// Bandwidth is the result of one bench run.
type Bandwidth struct {
	Link    Link
	Hash    manifest.Algorithm // 0: no digests
	Bytes   int64
	Seconds float64
	// LocalCost is what it cost this end, and RemoteCost the server. It is nil where the
	// server does not tell.
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
	d, err := c.benchSession(ctx, ep, &o, h, func(ctx context.Context, s *session, g *errgroup.Group) error {
		b = newBenchSource(s, bytes)
		return b.talk(ctx, g)
	})
	if err != nil {
		return nil, err
	}
	return &Bandwidth{
		Link: d.link, Hash: o.Hash, Bytes: b.bytes, Seconds: b.took.Seconds(),
		LocalCost: b.session.localCost(), RemoteCost: b.session.costs.theirs.Load(),
	}, nil
}

// benchHello is the hello of a client that measures. It holds nothing of what the
// options say about files.
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

// benchSession connects to the server, agrees with it on terms, and runs talk.
func (c *Client) benchSession(ctx context.Context, ep Endpoint, o *Options, h *wire.Hello, talk func(context.Context, *session, *errgroup.Group) error) (*firstConn, error) {
	d, err := c.connect(ctx, ep, o)
	if err != nil {
		return nil, err
	}
	s := newSession(d, d.link.Remote, true, o.Timeouts)
	s.tally, s.ringWish.Shrinks = o.Tally, true
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
