package door

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"gdrcp/rdma"

	"golang.org/x/sync/errgroup"
)

// serverListener is one listener of a server.
type serverListener struct {
	provider rdma.Provider
	l        rdma.Listener
	device   Device        // without a name for TCP
	refusals chan struct{} // has a token for each refusal in progress
	err      error         // the reason why the listener failed and is closed; guarded by the set's mu
}

func newListener(p rdma.Provider, l rdma.Listener, device rdma.Device) *serverListener {
	return &serverListener{
		provider: p, l: l, device: DeviceOf(device), refusals: make(chan struct{}, maxRefusing),
	}
}

// acceptors are the goroutines of a server that serves, and the context that ends them.
type acceptors struct {
	ctx context.Context
	g   *errgroup.Group
}

// Listening describes one listener of a server.
type Listening struct {
	Device string // empty for TCP
	Addr   netip.AddrPort
	// Err is the reason why the listener failed. Then the listener is closed,
	// and its address is no longer sent to clients.
	Err error
}

// listenerSet holds all listeners of a server, and the goroutines that accept there.
type listenerSet struct {
	wire     rdma.Wire
	followed bool
	// handle decides on a request, and returns the function that serves it.
	handle func(ctx context.Context, l *serverListener, req rdma.Request) (serve func())
	log    func(peer, key, what string, err error)

	mu      sync.Mutex
	list    []*serverListener
	serving *acceptors // while serve runs
	closed  bool       // no more listeners may be added
	noRails string     // the reason why the server listens on no device
}

// listen implements Server.Listen.
func (s *listenerSet) listen(p rdma.Provider, addr netip.AddrPort, device rdma.Device) (netip.AddrPort, error) {
	l, err := p.Listen(addr, s.wire)
	if err != nil {
		if device.Name != "" {
			s.noteNoRails(fmt.Sprintf("the server cannot listen on %s: %v", device.Name, err))
		}
		return addr, err
	}
	place := newListener(p, l, device)
	s.mu.Lock()
	ended := s.closed
	if !ended {
		s.list = append(s.list, place)
		s.attend(place)
	}
	s.mu.Unlock()
	if ended {
		return addr, errors.Join(rdma.ErrClosed, l.Close())
	}
	return l.Addr(), nil
}

// attend starts a goroutine for a listener's clients, if the server is serving.
// The caller holds mu, and closed is not set, so nobody waits for the
// goroutines yet.
func (s *listenerSet) attend(place *serverListener) {
	if a := s.serving; a != nil {
		a.g.Go(func() error { return s.accept(a.ctx, a.g, place) })
	}
}

// listening implements Server.Listening.
func (s *listenerSet) listening() []Listening {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Listening, 0, len(s.list))
	for _, l := range s.list {
		list = append(list, Listening{l.device.Name, l.l.Addr(), l.err})
	}
	return list
}

// drop implements Server.Drop.
func (s *listenerSet) drop(device string, at netip.AddrPort) error {
	s.mu.Lock()
	i := slices.IndexFunc(s.list, func(l *serverListener) bool { return l.device.Name == device && l.l.Addr() == at })
	if i < 0 {
		s.mu.Unlock()
		return nil
	}
	place := s.list[i]
	s.list = slices.Delete(s.list, i, i+1)
	s.mu.Unlock()
	return place.l.Close()
}

// tellNoRails implements Server.TellNoRails.
func (s *listenerSet) tellNoRails(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noRails = why
}

// noteNoRails is tellNoRails, but only if no reason was set yet.
func (s *listenerSet) noteNoRails(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.noRails = cmp.Or(s.noRails, why)
}

func (s *listenerSet) whyNoRails() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.noRails
}

// serve implements Server.Serve.
func (s *listenerSet) serve(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	s.mu.Lock()
	s.serving = &acceptors{gctx, g}
	for _, l := range s.list {
		s.attend(l)
	}
	s.mu.Unlock()
	<-gctx.Done()
	closing := s.close()
	err := g.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(closing, err)
}

// close implements Server.Close.
func (s *listenerSet) close() error {
	s.mu.Lock()
	s.closed = true
	listeners := s.list
	s.list = nil
	s.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.l.Close())
	}
	return errors.Join(errs...)
}

// verbs returns the listeners on devices that have not failed.
func (s *listenerSet) verbs() []*serverListener {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.list), func(l *serverListener) bool { return l.provider.Name() != "verbs" || l.err != nil })
}

// devices returns the devices of verbs, each once.
func (s *listenerSet) devices() (devices []Device) {
	for _, l := range s.verbs() {
		if !slices.ContainsFunc(devices, func(d Device) bool { return d.Name == l.device.Name }) {
			devices = append(devices, l.device)
		}
	}
	return devices
}

func (s *listenerSet) accept(ctx context.Context, g *errgroup.Group, l *serverListener) error {
	for {
		req, err := l.l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, rdma.ErrClosed) {
				return nil
			}
			return s.failed(l, err)
		}
		serve := s.handle(ctx, l, req)
		g.Go(func() error {
			serve()
			return nil
		})
	}
}

// failed closes a listener that can no longer accept. An open listener would
// hold its device, and prevent its removal. Other listeners continue. failed
// returns the error if none is left.
func (s *listenerSet) failed(l *serverListener, err error) error {
	err = fmt.Errorf("accept on %s: %w", l.l.Addr(), err)
	s.mu.Lock()
	l.err = err
	if l.device.Name != "" {
		s.noRails = fmt.Sprintf("the server cannot listen on %s any more: %v", l.device.Name, err)
	}
	left := slices.ContainsFunc(s.list, func(other *serverListener) bool { return other.err == nil })
	s.mu.Unlock()
	closing := l.l.Close()
	switch {
	case l.device.Name != "" && s.followed:
		return nil
	case left:
		s.log(l.l.Addr().String(), "", "listener", errors.Join(err, closing))
		return nil
	}
	return errors.Join(err, closing)
}
