package tcp

import (
	"net/netip"
	"os"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

func TestMain(m *testing.M) { os.Exit(rdmatest.Main(m, New())) }

func TestConformance(t *testing.T) {
	rdmatest.Run(t, rdmatest.Config{
		Provider:   New(),
		Device:     deviceName,
		ListenAddr: netip.MustParseAddrPort("127.0.0.1:0"),
		ImmKind:    rdma.ImmWrite,
		AccessTold: rdmatest.TellInitiator | rdmatest.TellOwner,
	})
}
