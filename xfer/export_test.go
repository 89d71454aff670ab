package xfer

import (
	"os"
	"testing"
)

// OnHost skips a test that has nothing to do with devices where devices are
// tested: an emulated machine has nothing to add to it.
func OnHost(t testing.TB) {
	t.Helper()
	if os.Getenv("GDRCP_TEST_RDMA") != "" {
		t.Skip("has nothing to do with RDMA devices: run on the host")
	}
}
