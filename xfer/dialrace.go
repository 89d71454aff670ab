package xfer

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
)

// attemptDelay is how long one address is waited for before the next is tried
// beside it: some drop what is sent to them.
const attemptDelay = 300 * time.Millisecond

// dialRace authenticates at the TCP addresses of one server, side by side (happy eyeballs,
// RFC 8305).
type dialRace struct {
	client *Client
	key    trust.Key
	o      *Options
	ctx    context.Context
	cancel context.CancelFunc
	// addrs are those that are left to be tried, and running those that are.
	addrs   []netip.AddrPort
	running int
	results chan raceResult
	waits   chan struct{}
	won     *grantedSession
	problem error
}

type raceResult struct {
	a   *grantedSession
	err error
}

// raceTCP shows the key at the first address that answers by TCP. Those that
// come first are preferred by what attemptDelay gives them.
func (c *Client) raceTCP(ctx context.Context, addrs []netip.AddrPort, key trust.Key, o *Options) (*grantedSession, error) {
	if len(addrs) == 0 {
		return nil, fmt.Errorf("%w: the server has no TCP address", rdma.ErrUnsupported)
	}
	k := dialRace{client: c, key: key, o: o, addrs: addrs, results: make(chan raceResult), waits: make(chan struct{}, len(addrs))}
	k.ctx, k.cancel = context.WithCancel(ctx)
	defer k.cancel()
	next := time.NewTicker(attemptDelay)
	defer next.Stop()
	k.begin()
	for k.running > 0 {
		select {
		case <-next.C:
			k.begin()
		case <-k.waits:
			// A server that has no room is not asked at its other addresses: each
			// would wait, and get, a place of its own.
			k.addrs = nil
		case r := <-k.results:
			k.take(r)
		}
	}
	if k.won != nil {
		return k.won, nil
	}
	return nil, k.problem
}

// begin tries the next address, if one is left.
func (k *dialRace) begin() {
	if len(k.addrs) == 0 {
		return
	}
	addr := k.addrs[0]
	k.addrs = k.addrs[1:]
	k.running++
	go func() {
		a, err := k.client.authenticate(k.ctx, k.client.TCP, "tcp", addr, k.key, k.o, func() { k.waits <- struct{}{} })
		k.results <- raceResult{a, err}
	}()
}

// take looks at how a try ended. With an answer all others end.
func (k *dialRace) take(r raceResult) {
	k.running--
	switch {
	case r.err == nil && k.won == nil:
		k.won = r.a
		k.addrs = nil
		k.cancel()
	case r.err == nil:
		_ = r.a.close() // the second of two that came through at once
	case k.ctx.Err() == nil && isAnswered(r.err):
		k.problem, k.addrs = r.err, nil
		k.cancel()
	case k.won == nil && !isAnswered(k.problem):
		k.problem = mostSpecificError(k.problem, r.err)
		k.begin()
	}
}
