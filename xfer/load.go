package xfer

import (
	"cmp"
	"fmt"

	"gdrcp/chunker"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// takeBounces reserves, from the memory that all sessions share, what the workers of a session with
// slots in GPU memory pin besides its ring.
func takeBounces(s *flow.Session, host *door.Session) (giveBack func(), err error) {
	if s.RingWish.Placement.GPU == wire.GPUOff {
		return func() {}, nil
	}
	n := ring.BounceBytes(chunker.Workers(), s.Terms.ChunkBytes)
	giveBack, room, ok := host.Book(n, true)
	if !ok {
		err = fmt.Errorf("slots in GPU memory need %d MiB of host memory, too; of the %d MiB for all sessions %d MiB are left, and one key may not take all of them: take fewer slots, or smaller chunks",
			n>>20, room.AllBytes>>20, room.LeftBytes>>20)
	}
	return giveBack, err
}

// ringBytes is how many bytes a session may register: a source's ring, payload and headers, and the
// messages of all its queue pairs.
func ringBytes(qps, slots, chunkBytes int) int64 {
	c := railConfig(qps, slots, chunkBytes, true, false, rdma.Wire{})
	return int64(flow.SourceSlots(slots))*int64(chunkBytes+flow.SealPad+wire.HeaderStride) + messageBytes(&c)
}

// messageBytes is the memory for the messages that may be in flight on a rail.
func messageBytes(c *rdma.RailConfig) int64 {
	return int64(c.Conns) * int64(c.SendDepth+c.RecvDepth) * int64(c.MsgBytes)
}

// ServedBytes is how many bytes a server reserves at most for a session with these options,
// whatever devices the client has: a ring, messages, and host memory besides slots in a GPU.
func (o *Options) ServedBytes() int64 {
	chunkBytes := cmp.Or(o.ChunkBytes, DefaultChunkBytes)
	if o.chunksFollow() {
		chunkBytes = mostDefaultChunkBytes
	}
	n := ringBytes(cmp.Or(o.QPs, mostFarQPs), cmp.Or(o.Slots, o.mostSlots()), chunkBytes)
	if o.RemoteGPU != "" && o.RemoteGPU != "off" {
		n += ring.BounceBytes(ring.MaxDeviceWorkers, chunkBytes)
	}
	return n
}

// RingBytes is the size of this end's slots, payload and headers, at a source or at a sink. At the
// source of a stream it includes the memory that keeps the stream until it has arrived.
func (o *Options) RingBytes(source, stream bool) int64 {
	slots, chunkBytes := cmp.Or(o.Slots, DefaultSlots), int64(cmp.Or(o.ChunkBytes, DefaultChunkBytes))
	if !source {
		return int64(slots) * (chunkBytes + wire.HeaderStride)
	}
	n := int64(flow.SourceSlots(slots)) * (chunkBytes + wire.HeaderStride)
	if o.Encrypt {
		n += int64(flow.SourceSlots(slots)) * flow.SealPad
	}
	if stream {
		n += int64(streamBuffers(slots)) * chunkBytes
	}
	return n
}

// Limiter bounds how many bytes a second its users move together. Users get their turns in the
// order of their requests. Several goroutines may use it concurrently.
type Limiter = limit.Limiter

// NewLimiter returns a limiter of that many bytes a second, at least 512. For 0 and
// less it returns nil, which limits nothing.
func NewLimiter(bytesPerSecond int64) *Limiter { return limit.New(bytesPerSecond) }

// limits returns the limits of a copy.
func (o *Options) limits() limit.Limits { return limit.Of(limit.New(o.BytesPerSecond)) }
