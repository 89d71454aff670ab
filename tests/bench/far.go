package main

import (
	"context"
	"errors"
	"fmt"
	"os"
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
	// farPrefix begins the names of the copies of the file that goes far, and startPrefix
	// those of the file of 1 KiB.
	farPrefix, startPrefix = "far-", "start-"
)

// compareFar times copies over TCP to a guest far away: as gdrcp makes them, and with one
// connection and a ring as they are for a server nearby. It returns the names of all.
func (o options) compareFar(ctx context.Context, files wireFiles) (rows []row, names []string, err error) {
	fmt.Fprintf(o.log, "bed: a wire that takes %s, seconds\n", farDelay)
	if _, err := output(ctx, "tc", "qdisc", "replace", "dev", farWire, "root", "netem", "delay", farDelay, "limit", farPackets); err != nil {
		return nil, nil, err
	}
	copying := func(name, source, prefix string, extra ...string) *competitor {
		return &competitor{name: name, cold: true, run: func(ctx context.Context) (float64, error) {
			copied := fmt.Sprintf("%s%d", prefix, len(names))
			names = append(names, copied)
			return seconds(ctx, o.copyArgs("tcp", extra, source, farAddress, copied)...)
		}}
	}
	busy, written := busyTime{}, files.far+"-written"
	const ours, single, start, memory, writing = "gdrcp", "gdrcp, as for a near server", "gdrcp, 1 KiB", "memory, MiB/s", "writes"
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{
		copying(ours, files.far, farPrefix), copying(single, files.far, farPrefix, "--qps", "1", "--slots", "16"),
		copying(start, files.kibibyte, startPrefix),
		{name: memory, cold: true, run: func(ctx context.Context) (float64, error) {
			return o.memoryToMemory(ctx, "tcp", nil, farAddress, "xxh3", o.farMiB)
		}},
		busy.watch(&competitor{name: writing, prepare: removal(written), run: func(ctx context.Context) (float64, error) {
			return seconds(ctx, "dd", "status=none", "bs=1M", fmt.Sprintf("count=%d", o.farMiB), "if=/dev/zero", "of="+written)
		}}),
	})
	if err = errors.Join(err, os.RemoveAll(written)); err != nil {
		return nil, names, err
	}
	name := fmt.Sprintf("TCP: %d MiB over a wire that takes %s", o.farMiB, farDelay)
	return []row{
		{name: name, unit: "s", ours: values[ours], peer: "--qps 1 --slots 16", peers: values[single], goal: farGoal},
		o.modelRow(name, values[ours], "s", farCosts(o.farMiB, median(values[start]), median(values[memory]), median(busy[writing]))),
	}, names, nil
}

// farCosts are the costs of a copy to a guest far away. memory is what goes from memory to memory
// over the same wire, and writeBusy for how long writing the file keeps a processor busy. The sink
// has one, which takes in what comes and writes it, and nothing here tells the wire from that.
func farCosts(mib int, start, memory, writeBusy float64) copyCosts {
	return steady(float64(mib), start, stage{"wire", 1, 1 / memory}, stage{"the sink's processor", 1, 1/memory + writeBusy/float64(mib)})
}
