package remote

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"
)

const (
	// reachTimeout is how long an address may take to answer.
	reachTimeout = 3 * time.Second
	// fasterTimeout is how long Reach waits for faster addresses once one has
	// answered, in addition to three times the duration of that answer.
	fasterTimeout = 10 * time.Millisecond
	// MaxAddresses bounds the addresses that a far end may offer.
	MaxAddresses = 64
)

// Address is an address at which a far end can be reached.
type Address struct {
	Transport string         `json:"transport"` // "verbs" or "tcp"
	Addr      netip.AddrPort `json:"addr"`
	Device    string         `json:"device"` // RDMA device, or network interface
	RateGbps  float64        `json:"rate_gbps,omitempty"`
}

// Way is an address that answers, and the local address of that connection.
type Way struct {
	Address
	Local netip.Addr
}

// Reach tries all TCP addresses at the same time, so that an address whose
// packets are dropped does not delay the others. It returns the addresses that
// answer, the fastest first. If none does, problem is the reason.
func Reach(ctx context.Context, addrs []Address) (reached []Way, problem error) {
	return reach(ctx, addrs, fasterTimeout)
}

// reach is Reach with another value of fasterTimeout.
func reach(ctx context.Context, addrs []Address, longer time.Duration) (reached []Way, problem error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	type result struct {
		index int
		local netip.Addr
		err   error
	}
	results := make(chan result, len(addrs)) // the last results may have no reader
	for i, a := range addrs {
		go func() {
			local, err := touch(ctx, a.Addr)
			results <- result{i, local, err}
		}()
	}
	begun := time.Now()
	var answered []result
	var problems []error
	enough := make(<-chan time.Time)
	for range addrs {
		select {
		case r := <-results:
			if r.err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", addrs[r.index].Addr, r.err))
				continue
			}
			if len(answered) == 0 {
				enough = time.After(longer + 3*time.Since(begun))
			}
			answered = append(answered, r)
			continue
		case <-enough:
		}
		break
	}
	slices.SortFunc(answered, func(a, b result) int {
		return cmp.Or(cmp.Compare(addrs[b.index].RateGbps, addrs[a.index].RateGbps), cmp.Compare(a.index, b.index))
	})
	for _, r := range answered {
		reached = append(reached, Way{addrs[r.index], r.local})
	}
	if len(reached) > 0 {
		return reached, nil
	}
	return nil, errors.Join(problems...)
}

// touch connects and disconnects.
func touch(ctx context.Context, addr netip.AddrPort) (local netip.Addr, err error) {
	var dialer net.Dialer
	sock, err := dialer.DialContext(ctx, "tcp", addr.String())
	if err == nil {
		local = sock.LocalAddr().(*net.TCPAddr).AddrPort().Addr().Unmap()
		return local, sock.Close()
	}
	if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return local, errors.New("no answer")
	}
	var op *net.OpError
	if errors.As(err, &op) {
		err = op.Err // without the address, which the caller has
	}
	return local, err
}
