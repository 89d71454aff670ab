package xfer

// chunkFiles is what a source keeps of a chunk's extents.
type chunkFiles struct {
	files []*srcEntry // one for each extent; nil in a bench
	holes []pieceRun  // digests of the pieces of all holes, in order
}

type (
	chunkSender = Sender[chunkFiles]
	outChunk    = Chunk[chunkFiles]
	outSlot     = Slot[chunkFiles]
)

func newChunkSender(s *session) *chunkSender {
	return NewSender(s, func(c *chunkFiles) { c.files, c.holes = c.files[:0], c.holes[:0] })
}
