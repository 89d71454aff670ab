package door

import (
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

// An unauthenticated client costs one control region of at most 4 KiB. For a
// door's configuration rdma/verbs allocates a region of receives and sends,
// each with its tag in whole cache lines (rdma/verbs/qp.c and rail.go), and
// rdma/tcp, which registers nothing, a buffer for each message.
func TestDoorFitsAPage(t *testing.T) {
	const tagBytes, lineBytes, moreReceives, greeting = 8, 64, 4, 1
	c := RailConfig(Depth, rdma.Wire{})
	stride := (c.MsgBytes + tagBytes + lineBytes - 1) / lineBytes * lineBytes
	if n := c.Conns * (c.RecvDepth + moreReceives + c.SendDepth + greeting) * stride; n > 4096 {
		t.Errorf("verbs registers %d bytes", n)
	}
	if n := c.Conns * (c.RecvDepth + c.SendDepth) * c.MsgBytes; n > 4096 {
		t.Errorf("tcp makes buffers of %d bytes", n)
	}
	if c.Loopbacks != 0 || c.WriteBytes > 1 {
		t.Errorf("a door has loopbacks or long writes: %+v", c)
	}
	if c.MsgBytes < trust.MaxOpeningBytes || c.MsgBytes < trust.AnswerBytes {
		t.Errorf("the handshake does not fit %d bytes", c.MsgBytes)
	}
}
