package rdmatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"gdrcp/rdma"
)

// connectCases cover Dial, Listen and Accept.
var connectCases = []testCase{
	{"Devices", testDevices},
	{"PrivateData", testPrivateData},
	{"Reject", testReject},
	{"DialNobody", testDialNobody},
	{"DialCancelled", testDialCancelled},
	{"AcceptCancelled", testAcceptCancelled},
	{"ListenerClose", testListenerClose},
	{"AcceptMany", testAcceptMany},
}

func testDevices(t *testing.T, s *suite) {
	devices, err := s.Provider.Devices()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, d := range devices {
		found = found || (d.Name == s.Device && d.Usable())
	}
	if !found {
		t.Errorf("%q is not among the usable devices %+v", s.Device, devices)
	}
	if _, err := s.Provider.Open("no such device", s.railConfig()); !errors.Is(err, rdma.ErrNoDevice) {
		t.Errorf("open a device that is not there: %v", err)
	}
	device, local, err := s.Provider.Route(context.Background(), s.ListenAddr)
	if err != nil || device == "" || !local.IsValid() {
		t.Errorf("route to %s: %q, %s, %v", s.ListenAddr, device, local, err)
	}
}

// request dials p.listener with private data and returns the request, and a
// function that ends the dialling.
func (p *pair) request(t *testing.T, privateData []byte) (rdma.Request, func() error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), p.a.s.patience())
	t.Cleanup(cancel)
	dialled := make(chan error, 1)
	go func() {
		_, err := p.a.rail.Dial(ctx, p.listener.Addr(), privateData)
		dialled <- err
	}()
	req, err := p.listener.Accept(ctx)
	if err != nil {
		t.Fatalf("accept: %v (dial: %v)", err, <-dialled)
	}
	return req, func() error { return <-dialled }
}

func testPrivateData(t *testing.T, s *suite) {
	p := s.unconnected(t, s.layout())
	for _, n := range []int{0, 1, rdma.MaxPrivateDataBytes} {
		data := make([]byte, n)
		fill(data, uint64(n))
		req, dialled := p.request(t, data)
		got := req.PrivateData()
		if !bytes.HasPrefix(got, data) || len(bytes.Trim(got[n:], "\x00")) > 0 {
			t.Errorf("%x arrived as %x", data, got)
		}
		if req.Device() == "" || !req.Remote().IsValid() {
			t.Errorf("request of %s on %q", req.Remote(), req.Device())
		}
		if err := req.Reject(rdma.RejectBusy); err != nil {
			t.Errorf("reject: %v", err)
		}
		if err := dialled(); err == nil {
			t.Error("Dial that was rejected succeeded")
		}
	}
	tooLong := make([]byte, rdma.MaxPrivateDataBytes+1)
	if _, err := p.a.rail.Dial(context.Background(), p.listener.Addr(), tooLong); err == nil {
		t.Errorf("Dial took %d bytes of private data", len(tooLong))
	}
}

func testReject(t *testing.T, s *suite) {
	p := s.unconnected(t, s.layout())
	for code := rdma.RejectUnknown; code <= rdma.RejectResources; code++ {
		req, dialled := p.request(t, nil)
		if err := req.Reject(code); err != nil {
			t.Errorf("reject with %d: %v", code, err)
		}
		err := dialled()
		var rejected *rdma.RejectedError
		if !errors.As(err, &rejected) || rejected.Code != code || rejected.Peer != p.listener.Addr() {
			t.Errorf("Dial rejected with %d: %v", code, err)
		}
	}
	// A rail without room for another Conn still answers requests.
	l := s.layout()
	l.cfg.Conns = 1
	full := s.side(t, "full", s.AcceptDevice, l)
	p.b = full
	p.connect(t)
	req, dialled := p.request(t, nil)
	if _, err := req.Accept(context.Background(), full.rail); err == nil {
		t.Error("a rail for one Conn took two")
	}
	if err := dialled(); err == nil {
		t.Error("Dial to a rail without room succeeded")
	}
}

func testDialNobody(t *testing.T, s *suite) {
	p := s.unconnected(t, s.layout())
	addr := p.closeListener()
	start := time.Now()
	if _, err := p.a.rail.Dial(context.Background(), addr, nil); err == nil {
		t.Error("Dial to nobody succeeded")
	}
	if took := time.Since(start); took > s.limit(11*time.Second) {
		t.Errorf("Dial to nobody took %s", took)
	}
	p.listener = s.listen(t)
	p.connect(t) // the rail still works
}

// testDialCancelled cancels a Dial to a listener that does not accept.
func testDialCancelled(t *testing.T, s *suite) {
	p := s.unconnected(t, s.layout())
	cause := errors.New("the cause")
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(s.scaled(50*time.Millisecond), func() { cancel(cause) })
	start := time.Now()
	if _, err := p.a.rail.Dial(ctx, p.listener.Addr(), nil); !errors.Is(err, cause) {
		t.Errorf("Dial that was cancelled: %v", err)
	}
	if took := time.Since(start); took > s.limit(time.Second) {
		t.Errorf("Dial ended %s after it was begun", took)
	}
	cancelled, cancel2 := context.WithCancel(context.Background())
	cancel2()
	if _, err := p.a.rail.Dial(cancelled, p.listener.Addr(), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("Dial with a context that had ended: %v", err)
	}
}

func testAcceptCancelled(t *testing.T, s *suite) {
	listener := s.listen(t)
	ctx, cancel := context.WithTimeout(context.Background(), s.scaled(10*time.Millisecond))
	defer cancel()
	if _, err := listener.Accept(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Accept past its deadline: %v", err)
	}
}

// testListenerClose checks that Close of a listener ends Accept, rejects waiting
// requests, and is idempotent.
func testListenerClose(t *testing.T, s *suite) {
	p := s.unconnected(t, s.layout())
	dialled := make(chan error, 1)
	go func() {
		_, err := p.a.rail.Dial(context.Background(), p.listener.Addr(), nil)
		dialled <- err
	}()
	time.Sleep(s.scaled(50 * time.Millisecond))
	if err := p.listener.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	select {
	case err := <-dialled:
		if err == nil {
			t.Error("Dial succeeded although nobody accepted")
		}
	case <-time.After(s.patience()):
		t.Fatal("Dial goes on although the listener was closed")
	}
	if _, err := p.listener.Accept(context.Background()); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}

	other := s.listen(t)
	accepted := make(chan error, 1)
	go func() {
		_, err := other.Accept(context.Background())
		accepted <- err
	}()
	time.Sleep(s.scaled(10 * time.Millisecond))
	for range 2 {
		if err := other.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	}
	if err := <-accepted; !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("Accept ended by Close: %v", err)
	}
}

func testAcceptMany(t *testing.T, s *suite) {
	const conns = 16
	l := s.layout()
	l.cfg.Conns = conns
	p := s.unconnected(t, l)
	ctx, cancel := context.WithTimeout(context.Background(), s.patience())
	defer cancel()
	type result struct {
		conn rdma.Conn
		err  error
	}
	dialled := make(chan result, conns)
	for i := range conns {
		go func() {
			c, err := p.a.rail.Dial(ctx, p.listener.Addr(), []byte{byte(i)})
			dialled <- result{c, err}
		}()
	}
	numbers := make(map[byte]bool)
	for range conns {
		req, err := p.listener.Accept(ctx)
		if err != nil {
			t.Fatalf("accept: %v", err)
		}
		numbers[req.PrivateData()[0]] = true
		if _, err := req.Accept(ctx, p.b.rail); err != nil {
			t.Fatalf("accept: %v", err)
		}
	}
	for i := range conns {
		got := <-dialled
		if got.err != nil {
			t.Fatalf("dial: %v", got.err)
		}
		p.a.postTo(got.conn, quiet(send(fmt.Appendf(nil, "%d", i))))
	}
	p.b.await("a message of each", func() bool { return len(p.b.seen) == conns })
	if len(numbers) != conns {
		t.Errorf("private data of %d dialled connections: %v", conns, numbers)
	}
}
