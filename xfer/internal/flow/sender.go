package flow

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"gdrcp/internal/numa"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// Chunk is a chunk to send: the contents of its header, and what the source keeps of the files that
// its extents come from.
type Chunk[C any] struct {
	wire.ChunkHeader
	Of C
	// Again says that the chunk was posted before. tries counts how often its pieces arrived
	// damaged since one of them arrived intact, and HeaderTries the same for its header. A chunk
	// that was lost with its link is not counted.
	Again              bool
	Tries, HeaderTries int
	// committed says that its digests are booked.
	committed bool
}

// Slot is one slot of the source's own ring, with the chunk in it.
type Slot[C any] struct {
	Index int
	Chunk Chunk[C]
	// target is the place at the sink, once the chunk has one. headerSent says that the header was
	// posted on lane but the payload was not.
	target     credit.Place
	lane       *link.Lane
	headerSent bool
	// postedOn is the link that reads the slot, until it has finished.
	postedOn *link.Link
}

// sentChunk is what the source keeps of a chunk until its slot comes back: enough to send it, or
// parts of it, again.
type sentChunk[C any] struct {
	chunk Chunk[C]
	busy  bool
	lane  *link.Lane
}

// Sender is the sending half of the chunk path. Several workers fill chunks in parallel. Chunks are
// posted in the order of their ids, as far as the sink has granted slots, each over the lane with
// the least in flight for its rate. The goroutine that makes a chunk ready or receives a grant
// posts what can be posted. No goroutine waits while it holds a slot.
type Sender[C any] struct {
	Session *Session
	seals   *trust.Chunks // nil if chunks are not encrypted
	// Commit is called in order of chunk ids, immediately before a chunk that is no repair is
	// posted for the first time. It may change flags of extents.
	Commit func(c *Chunk[C])
	// Lost is called with a chunk that must be sent again: all of it, or the extents in Bad. It
	// must not block.
	Lost func(c *Chunk[C], r *wire.ReturnedSlot) error
	// Moved is called with a chunk that was lost with its link and must be sent again unchanged. It
	// must not block.
	Moved func(c *Chunk[C])
	// Returned is called when the sink has finished with a chunk.
	Returned func(c *Chunk[C])

	Mu      sync.Mutex
	Cond    *sync.Cond
	links   []*link.Link // links that may carry chunks
	Granted credit.Source
	Slots   []Slot[C]
	Free    []int          // source slots; the most recently used is on top, because it is in the cache
	Filled  int            // slots in Ready and again
	Under   int            // slots that were posted and are not completed
	Ready   []*Slot[C]     // by id modulo len: filled, waiting for their turn
	again   []*Slot[C]     // filled chunks to send again
	NextID  uint64         // id of the chunk to post next
	Packed  uint64         // number of ids given out
	posted  []sentChunk[C] // by sink slot
	missing []uint64       // ids of chunks of which a part must be sent again
	turn    int            // round robin over lanes with equal load
	// uncounted says that a goroutine waits for room and that its time does not count as anything
	// yet.
	uncounted bool
	wrs       [2]rdma.WR
	badBuf    []uint16
	Started   func() // called at the first post
	reset     func(*C)
}

// NewSender returns the sender of a session. reset clears what a slot's chunk had before.
func NewSender[C any](s *Session, reset func(*C)) *Sender[C] {
	n := SourceSlots(s.Terms.Slots)
	o := &Sender[C]{
		reset:   reset,
		Session: s, seals: s.chunkSeals(true), Slots: make([]Slot[C], n), Free: make([]int, 0, n), Ready: make([]*Slot[C], n),
		posted: make([]sentChunk[C], s.Terms.Slots), badBuf: make([]uint16, 0, wire.MaxExtents),
	}
	o.Cond = sync.NewCond(&o.Mu)
	for i := range o.Slots {
		o.Slots[i].Index = i
		o.Free = append(o.Free, i)
	}
	return o
}

// SourceSlots is the number of slots in a source's own ring: one more than the sink's. The extra
// slot is for chunks that must be sent again, so that chunks waiting for their turn never take the
// last slot.
func SourceSlots(slots int) int { return slots + 1 }

// RoomLocked reports whether a new chunk may be begun.
func (o *Sender[C]) RoomLocked() bool { return len(o.Free) > 1 }

// Open records the place of the sink's ring on the rail of a link. The first link's grants every
// slot. Chunks may have been filled before.
func (o *Sender[C]) Open(l *link.Link, info wire.RingInfo) error {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	slots, had := int(info.Slots), o.Granted.Slots()
	switch {
	case l.Target.Slots != 0:
		return fmt.Errorf("%w: a second ring of %d slots over link %d, where it has %d", fault.ErrProtocol, slots, l.Number, l.Target.Slots)
	case had == 0 && l.Number != 1, had != 0 && slots != had:
		return fmt.Errorf("%w: a ring of %d slots over link %d, and of %d over the first", fault.ErrProtocol, slots, l.Number, had)
	case slots > o.Session.Terms.Slots:
		return fmt.Errorf("%w: a ring of %d slots, agreed were %d", fault.ErrProtocol, slots, o.Session.Terms.Slots)
	}
	l.Target = info
	if had == 0 {
		o.Granted, o.posted = credit.NewSource(slots), o.posted[:slots]
		l.Ready = true // chunks come from this end's ring
	}
	o.useLocked(l)
	return nil
}

// WakeOn wakes every goroutine that waits on cond when ctx ends, which it always does. It must
// remain in force until then, because those goroutines outlive the talk that started them.
func (o *Sender[C]) WakeOn(ctx context.Context) {
	context.AfterFunc(ctx, func() {
		o.Mu.Lock()
		o.Cond.Broadcast()
		o.Mu.Unlock()
	})
}

// TakeSlotLocked takes a free source slot and clears its chunk.
func (o *Sender[C]) TakeSlotLocked() *Slot[C] {
	s := &o.Slots[o.Free[len(o.Free)-1]]
	o.Free = o.Free[:len(o.Free)-1]
	c := &s.Chunk
	c.Extents = c.Extents[:0]
	o.reset(&c.Of)
	c.committed = false
	c.Repair, c.Again, c.Tries, c.HeaderTries = false, false, 0, 0
	c.StoredBytes, c.PlainBytes, c.Codec = 0, 0, wire.CodecPlain
	return s
}

// NumberLocked gives a slot's chunk the next id.
func (o *Sender[C]) NumberLocked(s *Slot[C]) {
	s.Chunk.ID = o.Packed
	o.Packed++
}

// Submit takes a filled slot and posts what can be posted.
func (o *Sender[C]) Submit(s *Slot[C]) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	o.Filled++
	if s.Chunk.Again {
		o.again = append(o.again, s)
	} else {
		o.Ready[s.Chunk.ID%uint64(len(o.Ready))] = s
	}
	o.pumpLocked()
	o.recountLocked()
}

// pumpLocked posts chunks in order, while it has chunks and grants for them.
func (o *Sender[C]) pumpLocked() {
	for {
		s, resend := o.nextLocked()
		if s == nil {
			return
		}
		if s.lane == nil {
			if !o.addressLocked(s) {
				return // until a link joins
			}
			if !resend && !s.Chunk.committed && o.Commit != nil {
				o.Commit(&s.Chunk)
			}
			s.Chunk.committed = true
		}
		if !o.postLocked(s) {
			return
		}
		o.Filled--
		o.Under++
		if resend {
			o.again = o.again[1:]
			o.missing = slices.DeleteFunc(o.missing, func(id uint64) bool { return id == s.Chunk.ID })
		} else {
			o.Ready[s.Chunk.ID%uint64(len(o.Ready))] = nil
			o.NextID++
		}
		p := &o.posted[s.target.Slot]
		p.chunk, s.Chunk = s.Chunk, p.chunk
		p.busy = true
	}
}

// nextLocked returns the chunk to post now, or nil.
func (o *Sender[C]) nextLocked() (s *Slot[C], resend bool) {
	if len(o.again) > 0 {
		s, resend = o.again[0], true
	} else {
		s = o.Ready[o.NextID%uint64(len(o.Ready))]
	}
	// After a damaged header, or in a stream any damaged chunk, the sink holds back every later
	// chunk until that chunk has arrived again. Keep a sink slot for each chunk that must be sent
	// again.
	kept := 0
	if !resend {
		kept = len(o.missing)
	}
	if s == nil || (s.lane == nil && o.Granted.Grants() <= kept) {
		return nil, false
	}
	return s, resend
}

// addressLocked gives a chunk a sink slot and a lane. It returns false while there is no link.
func (o *Sender[C]) addressLocked(s *Slot[C]) bool {
	l := o.laneLocked(o.Session.Link.Ring.SpreadTo(s.Index))
	if l == nil {
		return false
	}
	s.lane, s.target = l, o.Granted.AddressNear(l.Link.Number, l.Link.Target.NearFrom, l.Link.Target.NearSlots)
	o.Session.Trace.Step(credit.Step{Kind: credit.StepAddressed, Link: l.Link.Number, Place: s.target, Chunk: s.Chunk.ID})
	l.OutBytes += int64(s.Chunk.StoredBytes) + wire.HopBytes
	o.posted[s.target.Slot].lane = l
	return true
}

// laneLocked returns the lane with the least in flight for its rate, among the links that are best
// for chunks. Among equals, links and their lanes take turns. In a ring on several NUMA nodes, far
// lanes have a handicap (farLocked). node is that of this end's slot, or nil.
func (o *Sender[C]) laneLocked(node *numa.Node) (best *link.Lane) {
	o.turn++
	least, leastRank := 0.0, 0
	for n := range o.links {
		link := o.links[(o.turn+n)%len(o.links)]
		rank, lanes := link.Rank(), link.Snapshot()
		if best != nil && rank > leastRank {
			continue
		}
		far := o.farLocked(link, node)
		for i := range lanes {
			l := lanes[(o.turn/len(o.links)+i)%len(lanes)]
			if load := float64(l.OutBytes+far) / link.Rate; best == nil || rank < leastRank || load < least {
				best, least, leastRank = l, load, rank
			}
		}
	}
	return best
}

// postLocked posts a chunk's header and payload. ok is false if the queue was full. The rest is
// then posted later, on the same lane.
func (o *Sender[C]) postLocked(s *Slot[C]) (ok bool) {
	wrs, link := o.wrs[:], s.lane.Link
	if s.headerSent {
		wrs = o.wrs[1:]
	} else {
		o.wrs[0] = o.headerWR(s)
	}
	o.wrs[1] = rdma.WR{
		Op: rdma.OpWriteImm, ID: uint64(s.Index), Len: int(s.Chunk.StoredBytes),
		Local: link.Payload, Offset: s.Index * o.Session.Link.Ring.Stride(),
		RemoteAddr: link.Target.PayloadAddr + uint64(s.target.Slot)*uint64(link.Target.SlotBytes), RKey: link.Target.PayloadKey,
		Imm: wire.Immediate(int(s.target.Slot), s.target.Generation),
	}
	n, _ := s.lane.Conn.Post(wrs)
	if n == len(wrs) {
		s.headerSent, s.lane, s.postedOn = false, nil, link
		if o.Started != nil {
			o.Started()
			o.Started = nil
		}
		return true
	}
	// The queue is full, or the connection is dead and the poller reports why.
	s.headerSent = s.headerSent || n == 1
	return false
}

// headerWR writes a chunk's header to its source slot and describes its Write.
func (o *Sender[C]) headerWR(s *Slot[C]) rdma.WR {
	c, target := &s.Chunk, &s.lane.Link.Target
	c.Session = o.Session.SessionTag()
	c.Link, c.Slot, c.Generation = target.Link, s.target.Slot, s.target.Generation
	b := o.Session.Link.Ring.HeaderSlot(s.Index)
	n := o.sealHeader(b, c.Encode(b), &c.ChunkHeader)
	return rdma.WR{
		Op: rdma.OpWrite, Quiet: true, Local: s.lane.Link.Header, Offset: s.Index * wire.HeaderStride, Len: n,
		RemoteAddr: target.HeaderAddr + uint64(s.target.Slot)*wire.HeaderStride, RKey: target.HeaderKey,
	}
}

// Done frees the source slot of a chunk that completed on a link. The slots of a lost link are
// freed by Shut.
func (o *Sender[C]) Done(l *link.Link, id uint64) {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if s := &o.Slots[id]; s.postedOn == l && !l.Lost.Load() {
		s.postedOn = nil
		o.Under--
		o.Free = append(o.Free, s.Index)
		o.Cond.Broadcast()
	}
}

// Opened posts what waited for room in a send queue.
func (o *Sender[C]) Opened() {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	o.pumpLocked()
}

// Immediate refuses an immediate: the peer must not write to a source.
func (o *Sender[C]) Immediate(imm uint32) error {
	return fmt.Errorf("%w: immediate %#x at the source", fault.ErrProtocol, imm)
}

// Credit takes slots back from the sink.
func (o *Sender[C]) Credit(body []byte) error {
	o.Mu.Lock()
	defer o.Mu.Unlock()
	if err := wire.DecodeCredit(body, o.badBuf, o.returnedLocked); err != nil {
		return err
	}
	o.Cond.Broadcast()
	o.pumpLocked()
	return nil
}

// MaxResends is how often a piece or a header is sent again before the copy of its file, or the
// session, fails.
const MaxResends = 3

// MaxWaits is how often a piece is sent again because the sink could not open its file yet. The sink
// waits before each request. The source does not know why a piece is sent again.
const MaxWaits = 4096

func (o *Sender[C]) returnedLocked(r *wire.ReturnedSlot) error {
	news, err := o.Granted.Return(credit.Place{Slot: r.Slot, Generation: r.Generation})
	if err != nil {
		return fmt.Errorf("%w: %w", fault.ErrProtocol, err)
	}
	if !news {
		return nil
	}
	o.Session.Trace.Step(credit.Step{Kind: credit.StepCredited, Place: credit.Place{Slot: r.Slot, Generation: r.Generation}, Again: r.Again || len(r.Bad) > 0})
	p := &o.posted[r.Slot]
	if !p.busy {
		return fmt.Errorf("%w: slot %d returned, which was not written", fault.ErrProtocol, r.Slot)
	}
	p.lane.OutBytes -= int64(p.chunk.StoredBytes) + wire.HopBytes
	p.lane.Link.DoneBytes.Add(int64(p.chunk.StoredBytes))
	for _, i := range r.Bad {
		if int(i) >= len(p.chunk.Extents) {
			return fmt.Errorf("%w: extent %d of chunk %d wanted again, it has %d", fault.ErrProtocol, i, p.chunk.ID, len(p.chunk.Extents))
		}
	}
	if len(r.Bad) > 0 && p.chunk.Tries > 2*MaxResends+MaxWaits {
		return fmt.Errorf("%w: parts of chunk %d wanted again and again", fault.ErrProtocol, p.chunk.ID)
	}
	if r.Again && p.chunk.HeaderTries >= MaxResends {
		return fmt.Errorf("%w: the header of chunk %d did not arrive whole in %d tries", fault.ErrIntegrity, p.chunk.ID, p.chunk.HeaderTries+1)
	}
	p.busy = false
	if r.Again || len(r.Bad) > 0 {
		o.missing = append(o.missing, p.chunk.ID)
		return o.Lost(&p.chunk, r)
	}
	if o.Returned != nil {
		o.Returned(&p.chunk)
	}
	return nil
}

// SessionTag is the part of the session id that chunk headers carry.
func (s *Session) SessionTag() uint64 {
	var v uint64
	for i := range 8 {
		v |= uint64(s.ID[i]) << (8 * i)
	}
	return v
}

// farChunks is how many more chunks the other lanes must have in flight before a chunk goes over a
// lane that is far from this end's slot. It counts twice if the sink has no free slot that is near
// to the lane, because a sink moves each byte more often.
const farChunks = 4

// farLocked is the handicap of a link, in bytes in flight, for a chunk in a slot on a node. node is
// nil if the node does not matter.
func (o *Sender[C]) farLocked(l *link.Link, node *numa.Node) (bytes int64) {
	chunks := 0
	if node != nil && node.Number() != l.Node.Number() {
		chunks += farChunks
	}
	if near := l.Target.NearSlots; near > 0 && !o.Granted.HasNear(l.Target.NearFrom, near) {
		chunks += 2 * farChunks
	}
	return int64(chunks) * int64(l.Target.SlotBytes)
}
