package xfer

import (
	"cmp"
	"fmt"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// Load is what running sessions need memory for, beside their rings.
type Load struct {
	Sessions   int
	Slots      int   // of their rings, together
	CodecBytes int64 // chunk sizes of those that compress, added up
}

// addLoad adds a load, or with sign -1 takes it off. It tells the new one under
// the lock, so that the last word is the right one.
func (v *Server) addLoad(l Load, sign int) {
	v.load.Sessions += sign * l.Sessions
	v.load.Slots += sign * l.Slots
	v.load.CodecBytes += int64(sign) * l.CodecBytes
	if v.cfg.Load != nil {
		v.cfg.Load(v.load)
	}
}

func (v *Server) adjustLoad(l Load, sign int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.addLoad(l, sign)
}

// bookLocked takes n bytes off what all sessions have, for one of a key, until they
// are given back, once. It takes none, and says so, where a key may not have so many
// (fitsLocked), or n is no amount: so what is booked is never below nothing and never
// above the bound.
func (v *Server) bookLocked(key string, n int64, least bool) (giveBack func(), ok bool) {
	if n <= 0 || !v.fitsLocked(key, n, least) {
		return func() {}, false
	}
	v.memory += n
	v.hold(key, held{bytes: n}, 1)
	return func() {
		v.mu.Lock()
		defer v.mu.Unlock()
		v.memory -= n
		v.hold(key, held{bytes: n}, -1)
		n = 0
	}, true
}

// takeBounces takes off the same the host memory that the workers of a session
// with slots in GPU memory pin beside its ring.
func (v *Server) takeBounces(s *session, key string) (giveBack func(), err error) {
	if s.ringWish.Placement.GPU == wire.GPUOff {
		return func() {}, nil
	}
	n := ring.BounceBytes(workers(), s.terms.ChunkBytes)
	v.mu.Lock()
	defer v.mu.Unlock()
	least := v.heldBy(key).sessions <= 1 && s.terms.Slots <= leastSlots
	giveBack, ok := v.bookLocked(key, n, least)
	if !ok {
		err = fmt.Errorf("slots in GPU memory need %d MiB of host memory, too; of the %d MiB for all sessions %d MiB are left, and one key may not take all of them: take fewer slots, or smaller chunks",
			n>>20, v.cfg.MaxMemory>>20, (v.cfg.MaxMemory-v.memory)>>20)
	}
	return giveBack, err
}

// ringBytes is what a session may register: a source's ring, payload and headers,
// and the messages of all its queue pairs.
func ringBytes(qps, slots, chunkBytes int) int64 {
	c := railConfig(qps, slots, chunkBytes, true, false, rdma.Wire{})
	return int64(sourceSlots(slots))*int64(chunkBytes+sealPad+wire.HeaderStride) + int64(qps)*int64(c.SendDepth+c.RecvDepth)*wire.MsgBytes
}

// ServedBytes is what a server books for a session of these options, at most: a
// ring, messages, and host memory beside slots in a GPU's.
func (o *Options) ServedBytes() int64 {
	chunkBytes := cmp.Or(o.ChunkBytes, DefaultChunkBytes)
	n := ringBytes(cmp.Or(o.QPs, 1), cmp.Or(o.Slots, DefaultSlots), chunkBytes)
	if o.RemoteGPU != "" && o.RemoteGPU != "off" {
		n += ring.BounceBytes(ring.MaxDeviceWorkers, chunkBytes)
	}
	return n
}

// RingBytes is how much memory this end's slots take: payload and headers, as
// one who sends or receives, and what a stream is kept in beside them until it
// has arrived.
func (o *Options) RingBytes(source, stream bool) int64 {
	slots, chunkBytes := cmp.Or(o.Slots, DefaultSlots), int64(cmp.Or(o.ChunkBytes, DefaultChunkBytes))
	if !source {
		return int64(slots) * (chunkBytes + wire.HeaderStride)
	}
	n := int64(sourceSlots(slots)) * (chunkBytes + wire.HeaderStride)
	if o.Encrypt {
		n += int64(sourceSlots(slots)) * sealPad
	}
	if stream {
		n += int64(streamBuffers(slots)) * chunkBytes
	}
	return n
}
