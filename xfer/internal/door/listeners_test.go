package door

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
)

// removable is a provider whose listeners fail once removed is closed.
type removable struct {
	namedVerbs
	removed chan struct{}
	closed  func() // called when such a listener is closed
}

type removableListener struct {
	rdma.Listener
	p removable
}

var errRemoved = errors.New("the device was removed")

func (p removable) Listen(at netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	l, err := p.namedVerbs.Listen(at, w)
	return removableListener{l, p}, err
}

func (l removableListener) Accept(ctx context.Context) (rdma.Request, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-l.p.removed:
			cancel(errRemoved)
		case <-ctx.Done():
		}
	}()
	return l.Listener.Accept(ctx)
}

func (l removableListener) Close() error {
	l.p.closed()
	return l.Listener.Close()
}

// serveDoor runs a server until the test ends, or until end is called. wait
// waits until it has ended.
func serveDoor(t *testing.T, d *Server) (end func(), wait func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- d.Serve(ctx) }()
	t.Cleanup(cancel)
	return cancel, func() error {
		select {
		case err := <-ended:
			return err
		case <-time.After(20 * time.Second):
			t.Fatal("the server does not end")
			return nil
		}
	}
}

// reached returns the error of connecting to an address, or nil if a server
// answers.
func reached(at netip.AddrPort) error {
	rail, err := tcp.New().Open("tcp", RailConfig(ClientDepth, rdma.Wire{}))
	if err != nil {
		return err
	}
	defer rail.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = rail.Dial(ctx, at, []byte("not a preamble"))
	if errors.As(err, new(*rdma.RejectedError)) {
		return nil // a server accepted
	}
	if err == nil {
		err = errors.New("it was let in")
	}
	return err
}

// A server adds listeners while it serves, drops them, and listens again.
func TestListenersComeAndGo(t *testing.T) {
	d := NewServer(Config{NoRails: "none yet", Followed: true})
	end, wait := serveDoor(t, d)
	any, device := netip.MustParseAddrPort("127.0.0.1:0"), rdma.Device{Name: "rail0"}
	for range 2 {
		at, err := d.Listen(namedVerbs{tcp.New()}, any, device)
		if err != nil {
			t.Fatal(err)
		}
		if err := reached(at); err != nil {
			t.Errorf("a listener that came later: %v", err)
		}
		if told := d.railsFor(&Session{}, nil, netip.Addr{}); len(told) != 1 || told[0].l.Addr() != at {
			t.Errorf("clients are told %v, want %s", told, at)
		}
		if err := d.Drop("another", at); err != nil || len(d.Listening()) != 1 {
			t.Errorf("dropping another device's: %v, %v", err, d.Listening())
		}
		if err := d.Drop("rail0", at); err != nil {
			t.Error(err)
		}
		if err := reached(at); err == nil || len(d.Listening()) > 0 || len(d.railsFor(&Session{}, nil, netip.Addr{})) > 0 {
			t.Errorf("after it was dropped: %v, %v", err, d.Listening())
		}
	}
	end()
	if err := wait(); err != nil {
		t.Error(err)
	}
	if at, err := d.Listen(tcp.New(), any, rdma.Device{}); !errors.Is(err, rdma.ErrClosed) {
		t.Errorf("a server that has ended listens at %s: %v", at, err)
	}
}

// A listener whose device is removed is closed immediately, and its address is
// no longer sent to clients. A followed server continues to serve; another ends
// with its last listener.
func TestListenerFails(t *testing.T) {
	for _, followed := range []bool{true, false} {
		closed := make(chan struct{})
		p := removable{namedVerbs{tcp.New()}, make(chan struct{}), sync.OnceFunc(func() { close(closed) })}
		d := NewServer(Config{Followed: followed})
		at, err := d.Listen(p, netip.MustParseAddrPort("127.0.0.1:0"), rdma.Device{Name: "rail0"})
		if err != nil {
			t.Fatal(err)
		}
		end, wait := serveDoor(t, d)
		close(p.removed)
		select {
		case <-closed:
		case <-time.After(20 * time.Second):
			t.Fatal("a listener that failed stays open")
		}
		if !followed {
			if err := wait(); !errors.Is(err, errRemoved) {
				t.Errorf("a server whose last listener failed ended with %v", err)
			}
			continue
		}
		list := d.Listening()
		if len(list) != 1 || list[0].Addr != at || !errors.Is(list[0].Err, errRemoved) || len(d.railsFor(&Session{}, nil, netip.Addr{})) > 0 {
			t.Errorf("it listens at %v", list)
		}
		if why := d.listeners.whyNoRails(); !strings.Contains(why, "rail0") || !strings.Contains(why, errRemoved.Error()) {
			t.Errorf("clients are told %q", why)
		}
		again, err := d.Listen(namedVerbs{tcp.New()}, netip.AddrPortFrom(at.Addr(), 0), rdma.Device{Name: "rail0"})
		if err == nil {
			err = reached(again)
		}
		if err != nil {
			t.Errorf("the device is back: %v", err)
		}
		end()
		if err := wait(); err != nil {
			t.Error(err)
		}
	}
}
