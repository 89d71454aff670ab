package xfer

import (
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/link"
)

// newTestLink returns a first link on a rail that ends with the test.
func newTestLink(t *testing.T) *link.Link {
	t.Helper()
	rail, err := tcp.New().Open("tcp", railConfig(1, 2, MinChunkBytes, false, false, rdma.Wire{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { rail.Close() })
	return link.NewFurther(1, rail, nil, 1)
}
