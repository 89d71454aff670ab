package tcp

import (
	"errors"
	"io"
	"net"
	"syscall"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

// Streams within the process behave like sockets.
func TestPairsConform(t *testing.T) {
	pairs := &Pairs{}
	rdmatest.Run(t, rdmatest.Config{
		Provider: NewOver(pairs), Device: deviceName, ListenAddr: pairs.Addr(), ImmKind: rdma.ImmWrite,
		AccessTold: rdmatest.TellInitiator | rdmatest.TellOwner, OneProcess: true,
	})
}

// Only the one listener gets streams, and closing it ends those that wait.
func TestPairsHaveOneListener(t *testing.T) {
	pairs := &Pairs{}
	if _, err := pairs.Dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens: %v", err)
	}
	l, err := pairs.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := pairs.Listen(); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("a second listener: %v", err)
	}
	waits, err := pairs.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer waits.Close()
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := waits.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a stream that nobody took: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed listener: %v", err)
	}
	if _, err := pairs.Dial(t.Context()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("nobody listens any more: %v", err)
	}
}
