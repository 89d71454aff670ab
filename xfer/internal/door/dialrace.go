package door

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

// attemptDelay is how long one address may take before the next is tried
// concurrently: some addresses drop all packets.
const attemptDelay = 300 * time.Millisecond

// dialRace authenticates concurrently at the TCP addresses of one server (happy
// eyeballs, RFC 8305).
type dialRace struct {
	client   *Client
	provider rdma.Provider
	ctx      context.Context
	cancel   context.CancelFunc
	// addrs are the addresses that have not been tried. running is the number
	// of running attempts.
	addrs   []netip.AddrPort
	running int
	results chan raceResult
	waits   chan struct{}
	won     *Granted
	problem error
}

type raceResult struct {
	granted *Granted
	err     error
}

// Race authenticates at the first address that answers, with a provider of TCP.
// Each address gets a lead of attemptDelay over the next. The caller closes the
// result. The error is the most specific one: see MostSpecificError.
func (c *Client) Race(ctx context.Context, p rdma.Provider, addrs []netip.AddrPort) (*Granted, error) {
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%w: the server has no TCP address", rdma.ErrUnsupported)
	}
	r := dialRace{client: c, provider: p, addrs: addrs, results: make(chan raceResult), waits: make(chan struct{}, len(addrs))}
	r.ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	next := time.NewTicker(attemptDelay)
	defer next.Stop()
	r.begin()
	for r.running > 0 {
		select {
		case <-next.C:
			r.begin()
		case <-r.waits:
			// If a server has no room, do not try its other addresses: each
			// attempt would wait for a place of its own, and get one.
			r.addrs = nil
		case res := <-r.results:
			r.take(res)
		}
	}
	if r.won != nil {
		return r.won, nil
	}
	return nil, r.problem
}

// begin tries the next address, if one is left.
func (r *dialRace) begin() {
	if len(r.addrs) == 0 {
		return
	}
	addr := r.addrs[0]
	r.addrs = r.addrs[1:]
	r.running++
	go func() {
		g, err := r.client.Authenticate(r.ctx, r.provider, "tcp", addr, func() { r.waits <- struct{}{} })
		r.results <- raceResult{g, err}
	}()
}

// take handles the result of an attempt. An answer ends all other attempts.
func (r *dialRace) take(res raceResult) {
	r.running--
	switch {
	case res.err == nil && r.won == nil:
		r.won = res.granted
		r.addrs = nil
		r.cancel()
	case res.err == nil:
		_ = res.granted.Close() // another attempt succeeded at the same time
	case r.ctx.Err() == nil && IsAnswered(res.err):
		r.problem, r.addrs = res.err, nil
		r.cancel()
	case r.won == nil && !IsAnswered(r.problem):
		r.problem = MostSpecificError(r.problem, res.err)
		r.begin()
	}
}

// MostSpecificError selects the error to report from those of several addresses
// of one host. A server's answer takes precedence, then the first error that is
// not a refused connection. A host refuses connections at addresses that its
// server does not use.
func MostSpecificError(before, err error) error {
	if before == nil || IsAnswered(err) || (errors.Is(before, syscall.ECONNREFUSED) && !errors.Is(err, syscall.ECONNREFUSED)) {
		return err
	}
	return before
}

// IsAnswered reports whether a server gave an answer that applies to all its
// addresses. A lack of resources may affect only one device.
func IsAnswered(err error) bool {
	var rejected *rdma.RejectedError
	return errors.As(err, &rejected) && rejected.Code != rdma.RejectResources || errors.As(err, new(*RefusedError)) || errors.Is(err, trust.ErrRefused)
}
