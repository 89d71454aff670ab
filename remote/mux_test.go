package remote

import (
	"net"
	"net/netip"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// muxPair is both ends of a pipe.
func muxPair(t *testing.T) (origin, far *Mux) {
	t.Helper()
	a, b := net.Pipe()
	origin, err := NewMux(a, true)
	if err != nil {
		t.Fatal(err)
	}
	if far, err = NewMux(b, false); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		origin.Close()
		far.Close()
	})
	return origin, far
}

// bothEnds is a provider that dials at one end of a pipe and listens at the
// other, as the suite has both in one process.
type bothEnds struct {
	rdma.Provider // of the origin
	far           *tcp.Provider
}

func (p bothEnds) Listen(at netip.AddrPort) (rdma.Listener, error) { return p.far.Listen(at) }

func TestConformanceOverAPipe(t *testing.T) {
	origin, far := muxPair(t)
	if _, err := origin.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	rdmatest.Run(t, rdmatest.Config{
		Provider: bothEnds{tcp.NewOver(origin), tcp.NewOver(far)},
		Device:   "tcp", ListenAddr: origin.Addr(), ImmKind: rdma.ImmWrite,
		AccessTold: rdmatest.TellInitiator | rdmatest.TellOwner,
		OneProcess: true,
	})
}
