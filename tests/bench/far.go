package main

import (
	"context"
	"fmt"
	"strings"
)

const (
	// farWire is the wire between two guests that are to be far from each other, with their
	// address on it, and farDelay how long it takes each packet to the sink.
	farWire, farAddress, farDelay = "eth0", "10.7.0.2", "100ms"
	// farPackets are as many packets as may be on their way: more than TCP ever has.
	farPackets = "100000"
	// farGoal is how many times as fast as with the sizes for a near server gdrcp is. It is
	// low: an emulated processor, and not the wire, bounds a copy by many connections.
	farGoal = 1.2
	// farPrefix begins the names of the copies of the file that goes far.
	farPrefix = "far-"
)

// compareFar times copies over TCP to a guest far away: as gdrcp makes them, and with one
// connection and a ring as they are for a server nearby. It returns the names of all.
func (o options) compareFar(ctx context.Context, source string) (rows []row, names []string, err error) {
	fmt.Fprintf(o.log, "bed: a wire that takes %s, seconds\n", farDelay)
	if _, err := output(ctx, "tc", "qdisc", "replace", "dev", farWire, "root", "netem", "delay", farDelay, "limit", farPackets); err != nil {
		return nil, nil, err
	}
	copying := func(name string, extra ...string) *competitor {
		return &competitor{name: name, cold: true, run: func(ctx context.Context) (float64, error) {
			copied := fmt.Sprintf("%s%d", farPrefix, len(names))
			names = append(names, copied)
			return seconds(ctx, o.copyArgs("tcp", extra, source, farAddress, copied)...)
		}}
	}
	const ours, near = "gdrcp", "gdrcp, as for a near server"
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{copying(ours), copying(near, "--qps", "1", "--slots", "16")})
	name := fmt.Sprintf("TCP: %d MiB over a wire that takes %s", o.farMiB, farDelay)
	return []row{{name: name, unit: "s", ours: values[ours], peer: "--qps 1 --slots 16", peers: values[near], goal: farGoal}}, names, err
}

// sourceOf is which of the files a copy of that name is of.
func sourceOf(name, source, far string) string {
	if strings.HasPrefix(name, farPrefix) {
		return far
	}
	return source
}
