package xfer

import "gdrcp/xfer/internal/flow"

// chunkFiles is what a source keeps of a chunk's extents.
type chunkFiles struct {
	files []*srcEntry // one for each extent; nil in a bench
	holes []pieceRun  // digests of the pieces of all holes, in order
}

type (
	chunkSender = flow.Sender[chunkFiles]
	outChunk    = flow.Chunk[chunkFiles]
	outSlot     = flow.Slot[chunkFiles]
)

func newChunkSender(s *flow.Session) *chunkSender {
	return flow.NewSender(s, func(c *chunkFiles) { c.files, c.holes = c.files[:0], c.holes[:0] })
}
