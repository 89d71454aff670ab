package xfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"gdrcp/rdma"

	"golang.org/x/sync/errgroup"
)

// serverListener is where a server is reached.
type serverListener struct {
	provider   rdma.Provider
	l          rdma.Listener
	device     string
	pciAddress string
	rateGbps   float64
	refusals   chan struct{} // a token for each that is under way
	err        error         // why it failed, and is closed; guarded by Server.mu
}

func newListener(p rdma.Provider, l rdma.Listener, device rdma.Device) *serverListener {
	return &serverListener{
		provider: p, l: l, device: device.Name, pciAddress: device.PCIAddress, rateGbps: device.RateGbps(),
		refusals: make(chan struct{}, maxRefusing),
	}
}

// acceptors are the goroutines of a server that serves, and what ends them.
type acceptors struct {
	ctx context.Context
	g   *errgroup.Group
}

// Listening is one place where a server listens.
type Listening struct {
	Device string // empty for TCP
	Addr   netip.AddrPort
	// Err is why it failed: it is closed, and no client is told of it any more.
	Err error
}

// Listen begins to listen at addr, also while the server serves; device, for
// verbs, is whose address that is. It returns where it listens, or rdma.ErrClosed
// of a server that has ended.
func (v *Server) Listen(p rdma.Provider, addr netip.AddrPort, device rdma.Device) (netip.AddrPort, error) {
	l, err := p.Listen(addr, v.cfg.Wire)
	if err != nil {
		if device.Name != "" {
			v.noteNoRails(fmt.Sprintf("the server cannot listen on %s: %v", device.Name, err))
		}
		return addr, err
	}
	place := newListener(p, l, device)
	v.mu.Lock()
	ended := v.closed
	if !ended {
		v.listeners = append(v.listeners, place)
		v.attend(place)
	}
	v.mu.Unlock()
	if ended {
		return addr, errors.Join(rdma.ErrClosed, l.Close())
	}
	return l.Addr(), nil
}

// attend has a listener's clients served, if the server serves. The caller has
// locked mu, and closed is not set: so nobody waits for the goroutines yet.
func (v *Server) attend(place *serverListener) {
	if s := v.serving; s != nil {
		s.g.Go(func() error { return v.accept(s.ctx, s.g, place) })
	}
}

// Listening lists where the server listens, and which of its listeners failed.
func (v *Server) Listening() []Listening {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := make([]Listening, 0, len(v.listeners))
	for _, l := range v.listeners {
		list = append(list, Listening{l.device, l.l.Addr(), l.err})
	}
	return list
}

// Drop stops listening at an address of a device: clients are not told of it any
// more, and who waits to be accepted there is refused. Sessions that came by it go
// on. Of a place where nobody listens it does nothing.
func (v *Server) Drop(device string, at netip.AddrPort) error {
	v.mu.Lock()
	i := slices.IndexFunc(v.listeners, func(l *serverListener) bool { return l.device == device && l.l.Addr() == at })
	if i < 0 {
		v.mu.Unlock()
		return nil
	}
	place := v.listeners[i]
	v.listeners = slices.Delete(v.listeners, i, i+1)
	v.mu.Unlock()
	return place.l.Close()
}

// TellNoRails says what a client is told from now on where the server listens on
// no device.
func (v *Server) TellNoRails(why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.noRails = why
}

// noteNoRails is TellNoRails where nothing was said yet.
func (v *Server) noteNoRails(why string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.noRails = cmp.Or(v.noRails, why)
}

func (v *Server) whyNoRails() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.noRails
}

// Serve accepts clients until ctx ends, then stops listening, ends the
// sessions that run, and returns nil. That the last listener fails is an error.
func (v *Server) Serve(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	v.mu.Lock()
	v.serving = &acceptors{gctx, g}
	for _, l := range v.listeners {
		v.attend(l)
	}
	v.mu.Unlock()
	<-gctx.Done()
	closing := v.Close()
	err := g.Wait()
	if ctx.Err() != nil {
		err = nil
	}
	return errors.Join(closing, err)
}

// Close ends the listeners. Serve does it, too: it is for a server that is not
// going to.
func (v *Server) Close() error {
	v.mu.Lock()
	v.closed = true
	listeners := v.listeners
	v.listeners = nil
	v.mu.Unlock()
	var errs []error
	for _, l := range listeners {
		errs = append(errs, l.l.Close())
	}
	return errors.Join(errs...)
}

func (v *Server) accept(ctx context.Context, g *errgroup.Group, l *serverListener) error {
	for {
		req, err := l.l.Accept(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, rdma.ErrClosed) {
				return nil
			}
			return v.failed(l, err)
		}
		serve := v.handle(ctx, l, req)
		g.Go(func() error {
			serve()
			return nil
		})
	}
}

// failed closes a listener that accepts no more: it holds its device, which can
// not go before. The others and TCP go on. It returns the error where nobody is
// left to go on.
func (v *Server) failed(l *serverListener, err error) error {
	err = fmt.Errorf("accept on %s: %w", l.l.Addr(), err)
	v.mu.Lock()
	l.err = err
	if l.device != "" {
		v.noRails = fmt.Sprintf("the server cannot listen on %s any more: %v", l.device, err)
	}
	left := slices.ContainsFunc(v.listeners, func(other *serverListener) bool { return other.err == nil })
	v.mu.Unlock()
	closing := l.l.Close()
	switch {
	case l.device != "" && v.cfg.Followed:
		return nil
	case left:
		v.log(SessionEnd{Peer: l.l.Addr().String(), What: "listener", Err: errors.Join(err, closing)})
		return nil
	}
	return errors.Join(err, closing)
}
