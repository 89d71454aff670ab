package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"
)

const (
	// reachTimeout is when an address that has not answered is given up.
	reachTimeout = 3 * time.Second
	// fasterTimeout is how long faster addresses are waited for once one has
	// answered, beside as long as that took, three times.
	fasterTimeout = 10 * time.Millisecond
	// MaxAddresses bounds what a far end may offer.
	MaxAddresses = 64
)

// Address is where a far end can be reached.
type Address struct {
	Transport string         `json:"transport"` // "verbs" or "tcp"
	Addr      netip.AddrPort `json:"addr"`
	Device    string         `json:"device"` // RDMA device, or network interface
	RateGbps  float64        `json:"rate_gbps,omitempty"`
}

// Reach tries TCP addresses all at the same time, so that one whose packets are
// dropped holds up none, and returns those that answer, the fastest first. Where
// none does, problem says why.
func Reach(ctx context.Context, addrs []Address) (reached []Address, problem error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	type result struct {
		index int
		err   error
	}
	results := make(chan result, len(addrs)) // nobody may read the last ones
	for i, a := range addrs {
		go func() { results <- result{i, touch(ctx, a.Addr)} }()
	}
	begun := time.Now()
	var indices []int
	var problems []error
	enough := make(<-chan time.Time)
	for range addrs {
		select {
		case r := <-results:
			if r.err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", addrs[r.index].Addr, r.err))
				continue
			}
			if len(indices) == 0 {
				enough = time.After(fasterTimeout + 3*time.Since(begun))
			}
			indices = append(indices, r.index)
			continue
		case <-enough:
		}
		break
	}
	slices.SortFunc(indices, func(a, b int) int {
		return cmp.Or(cmp.Compare(addrs[b].RateGbps, addrs[a].RateGbps), cmp.Compare(a, b))
	})
	for _, i := range indices {
		reached = append(reached, addrs[i])
	}
	if len(reached) > 0 {
		return reached, nil
	}
	return nil, errors.Join(problems...)
}

// touch connects and hangs up.
func touch(ctx context.Context, addr netip.AddrPort) error {
	var dialer net.Dialer
	sock, err := dialer.DialContext(ctx, "tcp", addr.String())
	if err == nil {
		return sock.Close()
	}
	if ctx.Err() != nil {
		return errors.New("no answer")
	}
	var op *net.OpError
	if errors.As(err, &op) {
		return op.Err // without the address, which the caller has
	}
	return err
}
