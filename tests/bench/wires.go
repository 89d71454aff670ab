package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// wireRate is the rate of a wire between two guests, in the syntax of tc(8): far below
// what an emulated processor can transfer, so that the wires are the bottleneck.
const wireRate = "20mbit"

// twoRailsGoal is the required speed of two rails relative to one of the same rate.
const twoRailsGoal = 1.8

// wireSlots is small: a whole ring is sent over the first rail before the second has
// joined, which takes long over such a slow wire.
const wireSlots = "4"

// wiredDevices are two rails of a kind, each with its own wire (tests/bed/bed), and the
// other guest's address on the first.
type wiredDevices struct{ kind, first, wires, address string }

var wired = []wiredDevices{
	{"rxe (RoCEv2)", "rxe0", "eth0 eth2", "10.7.0.2"},
	{"siw (iWARP)", "siw0", "eth1 eth3", "10.8.0.2"},
}

// Files that two guests of the bed write for each other, in a shared directory.
const (
	sharedKey  = "key"     // the key that both use
	serving    = "serving" // written by the sink, when a source can begin
	copiesMade = "copied"  // written by the source, at the end
)

// say writes a file atomically.
func say(folder, name, text string) error {
	path := filepath.Join(folder, name)
	return errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path))
}

// hear waits for such a file. If the other guest fails, the bed's timeout ends the wait.
func hear(ctx context.Context, folder, name string) (text []byte, err error) {
	for {
		if text, err = os.ReadFile(filepath.Join(folder, name)); err == nil {
			return text, nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the other guest's file %q: %w", name, ctx.Err())
		}
	}
}

// benchWires compares copies over two devices with copies over one of them, and copies to
// a distant server, between two guests: guest a is the source, the other the sink.
func benchWires(ctx context.Context, o options, node, shared string) error {
	folder, err := os.MkdirTemp(o.folder, "gdrcp-bench.")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	sources := map[string]int{"wires": o.wiresMiB, "far": o.farMiB}
	for name, mib := range sources {
		if err := writeRandom(filepath.Join(folder, name), int64(mib)<<20); err != nil {
			return err
		}
	}
	if node != "a" {
		return o.beSink(ctx, shared, folder, sources)
	}
	rows, err := o.beSource(ctx, shared, folder)
	if err = errors.Join(err, say(shared, copiesMade, "")); err != nil {
		return err
	}
	fmt.Printf("\nBed: two guests with emulated CPUs, files in /dev/shm. Two wires of %s between them, and then one that takes %s.\n", wireRate, farDelay)
	return o.print(rows)
}

// beSource runs the comparisons at the source.
func (o options) beSource(ctx context.Context, shared, folder string) (rows []row, err error) {
	key, err := os.ReadFile(os.Getenv("GDRCP_KEY_FILE"))
	if err = errors.Join(err, say(shared, sharedKey, string(key))); err != nil {
		return nil, err
	}
	if _, err := hear(ctx, shared, serving); err != nil {
		return nil, err
	}
	for _, d := range wired {
		r, err := o.compareWires(ctx, d, filepath.Join(folder, "wires"))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.kind, err)
		}
		rows = append(rows, r)
	}
	r, err := o.compareFar(ctx, filepath.Join(folder, "far"))
	return append(rows, r), err
}

// beSink serves until the source has finished, and verifies the last copy of each file.
func (o options) beSink(ctx context.Context, shared, folder string, sources map[string]int) error {
	key, err := hear(ctx, shared, sharedKey)
	dst := filepath.Join(folder, "dst")
	if err = errors.Join(err, os.WriteFile(os.Getenv("GDRCP_KEY_FILE"), key, 0o600), os.Mkdir(dst, 0o755)); err != nil {
		return err
	}
	s, err := o.serve(ctx, dst, "0.0.0.0:7473", "verbs siw1")
	if err != nil {
		return err
	}
	defer s.stop()
	err = say(shared, serving, "")
	if _, e := hear(ctx, shared, copiesMade); err != nil || e != nil {
		return errors.Join(err, e)
	}
	for name := range sources {
		err = errors.Join(err, compare(ctx, filepath.Join(folder, name), filepath.Join(dst, name), true))
	}
	return err
}

// toOtherGuest returns a competitor that copies a file to the other guest, under the same
// name.
func (o options) toOtherGuest(title, transport, source, address string, extra ...string) *competitor {
	return &competitor{name: title, cold: true, run: func(ctx context.Context) (float64, error) {
		return seconds(ctx, o.copyArgs(transport, extra, source, address, filepath.Base(source))...)
	}}
}

// compareWires times copies over one wire and over two.
func (o options) compareWires(ctx context.Context, d wiredDevices, source string) (r row, err error) {
	fmt.Fprintf(o.log, "bed: two wires of %s, %s, seconds\n", wireRate, d.kind)
	for wire := range strings.FieldsSeq(d.wires) {
		if _, err := output(ctx, "tc", "qdisc", "replace", "dev", wire, "root", "tbf", "rate", wireRate, "burst", "128kb", "limit", "1mb"); err != nil {
			return r, err
		}
	}
	verbs := []string{"--require", "verbs", "--slots", wireSlots}
	const one, two = "one rail", "two rails"
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{
		o.toOtherGuest(one, "verbs", source, d.address, append(verbs, "--rails", "1", "--rail", d.first)...),
		o.toOtherGuest(two, "verbs", source, d.address, append(verbs, "--rails", "2")...),
	})
	name := fmt.Sprintf("%s: %d MiB over two wires of %s", d.kind, o.wiresMiB, wireRate)
	return row{name: name, unit: "s", ours: values[two], peer: "one of them", peers: values[one], goal: twoRailsGoal}, err
}

const (
	// farWire is the wire between two guests that simulate a long distance, farAddress the
	// sink's address on it, and farDelay the delay of each packet to the sink.
	farWire, farAddress, farDelay = "eth0", "10.7.0.2", "100ms"
	// farPackets is the maximum number of packets in flight: more than TCP ever sends.
	farPackets = "100000"
	// farGoal is the required speed relative to the sizes for a near server. It is low,
	// because an emulated processor, and not the wire, limits a copy over many
	// connections.
	farGoal = 1.2
)

// compareFar times copies over TCP to a distant guest: with gdrcp's defaults, and with one
// connection and a ring as for a near server.
func (o options) compareFar(ctx context.Context, source string) (r row, err error) {
	fmt.Fprintf(o.log, "bed: a wire that takes %s, seconds\n", farDelay)
	if _, err := output(ctx, "tc", "qdisc", "replace", "dev", farWire, "root", "netem", "delay", farDelay, "limit", farPackets); err != nil {
		return r, err
	}
	const ours, single = "gdrcp", "gdrcp, as for a near server"
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{
		o.toOtherGuest(ours, "tcp", source, farAddress), o.toOtherGuest(single, "tcp", source, farAddress, "--qps", "1", "--slots", "16"),
	})
	name := fmt.Sprintf("TCP: %d MiB over a wire that takes %s", o.farMiB, farDelay)
	return row{name: name, unit: "s", ours: values[ours], peer: "--qps 1 --slots 16", peers: values[single], goal: farGoal}, err
}
