package remote

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// muxPair returns both ends of a pipe.
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
// other, because the suite has both in one process.
type bothEnds struct {
	rdma.Provider // the origin's
	far           *tcp.Provider
}

func (p bothEnds) Listen(at netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	return p.far.Listen(at, w)
}

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

// A far end that opens streams ends the pipe: otherwise the origin would have
// to buffer the data that arrives over them.
func TestStreamsOfAFarEnd(t *testing.T) {
	origin, far := muxPair(t)
	// The origin may close the pipe before Dial returns.
	if _, err := far.Dial(t.Context()); err != nil && !errors.Is(err, ErrPipe) {
		t.Fatal(err)
	}
	select {
	case <-origin.Done():
	case <-time.After(10 * time.Second):
		t.Error("the origin goes on")
	}
}

// Streams that nobody accepts are closed, and so are those of a listener that closes.
func TestStreamsThatNobodyTakes(t *testing.T) {
	origin, far := muxPair(t)
	if _, err := origin.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := far.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	ended := func() {
		t.Helper()
		s, err := origin.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		if err := s.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("%d, %v", n, err)
		}
	}
	ended()
	l, err := far.Listen()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Listen(); err == nil {
		t.Error("two listen on one pipe")
	}
	time.AfterFunc(50*time.Millisecond, func() { l.Close() })
	ended()
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept after close: %v", err)
	}
}

// Unread data of one stream does not block others, and the end of the pipe ends them all.
func TestOneStreamThatIsNotRead(t *testing.T) {
	origin, far := muxPair(t)
	l, err := far.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := origin.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	stuck, err := origin.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() {
		_, err := stuck.Write(make([]byte, 4*windowBytes))
		wrote <- err
	}()
	if _, err := l.Accept(); err != nil {
		t.Fatal(err)
	}
	other, err := origin.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	go func() { _, _ = theirs.Write([]byte("here")) }()
	if err := other.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, 4)
	if _, err := io.ReadFull(other, got); err != nil || string(got) != "here" {
		t.Errorf("%q, %v", got, err)
	}
	select {
	case err := <-wrote:
		t.Errorf("a stream that nobody reads took all: %v", err)
	default:
	}
	far.Close()
	if err := <-wrote; err == nil {
		t.Error("a write ended well after the pipe did")
	}
}
