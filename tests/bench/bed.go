package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const (
	writeBytes = 1 << 20 // of ib_write_bw
	rcopyPort  = "7571"
)

// bedDevice is a device of the guest, with the goals for it.
type bedDevice struct {
	name, kind, address string
	// memoryMiB is how much a bandwidth test transfers: enough for some seconds.
	memoryMiB           int
	plain, hashed, file float64 // goals, as ratios to ib_write_bw
}

var bedDevices = []bedDevice{
	{name: "rxe0", kind: "rxe (RoCEv2)", address: "10.7.0.1", memoryMiB: 256, plain: 1, hashed: 1, file: 0.85},
	{name: "siw0", kind: "siw (iWARP)", address: "10.8.0.1", memoryMiB: 512, plain: 1, hashed: 0.75, file: 0.35},
}

// benchBed compares transfers over the guest's RDMA devices and prints the table.
func benchBed(ctx context.Context, o options) error {
	folder, err := os.MkdirTemp(o.folder, "gdrcp-bench.")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	source, dst := filepath.Join(folder, "source"), filepath.Join(folder, "dst")
	if err := os.Mkdir(dst, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	if err := writeRandom(source, int64(o.bedFileMiB)<<20); err != nil {
		return err
	}
	rows := []row{}
	for _, d := range bedDevices {
		if !o.wants(d.name) {
			continue
		}
		d.memoryMiB /= o.bedMemoryParts
		more, err := o.compareDevice(ctx, d, source, dst)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		rows = append(rows, more...)
	}
	if len(rows) == 0 {
		return fmt.Errorf("no comparison of the bed is called %q", o.only)
	}
	fmt.Printf("\nBed: one guest with emulated CPUs, both ends in it; only ratios mean anything. Files are in /dev/shm, %d MiB, times from\n"+
		"start to exit of the client; gdrcp verifies them, rcopy verifies nothing, and dd is one local copy. Ratios above 1 come from perftest's busy polling,\n"+
		"which takes an emulated CPU from the emulated NIC.\n", o.bedFileMiB)
	return o.print(rows)
}

// compareDevice runs all competitors on one device, in turn.
func (o options) compareDevice(ctx context.Context, d bedDevice, source, dst string) ([]row, error) {
	fmt.Fprintf(o.log, "bed: %s, MiB/s\n", d.kind)
	// Not the loopback address: a server that listens on it offers no RDMA.
	serve, err := o.serve(ctx, dst, d.address+":7473", "verbs "+d.name+" "+d.address)
	if err != nil {
		return nil, err
	}
	defer serve.stop()
	rcopy, err := startServer(ctx, "waiting for connection", "stdbuf", "-o0", "rcopy", "-p", rcopyPort)
	if err != nil {
		return nil, err
	}
	defer rcopy.stop()
	memory := func(hash string) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			return o.memoryToMemory(ctx, "verbs", []string{"--rail", d.name}, d.address, hash, d.memoryMiB)
		}
	}
	to := func(name string) string { return filepath.Join(dst, name) }
	toFile := func(name string, argv ...string) *competitor {
		return atRate(o.bedFileMiB, copying(name, source, to(name), argv...))
	}
	theirs := toFile("rcopy", "rcopy", source, d.address+":"+to("rcopy"), "-p", rcopyPort)
	theirs.run = o.again("rconnect failed", theirs.run)
	file := o.copyArgs("verbs", []string{"--require", "verbs", "--rail", d.name}, source, d.address, "gdrcp")
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{
		{name: "ib_write_bw", run: o.again("Can't produce a report", func(ctx context.Context) (float64, error) { return writeBW(ctx, d) })},
		{name: "none", run: memory("none")}, {name: "xxh3", run: memory("xxh3")},
		toFile("gdrcp", file...),
		theirs,
		// The cost of reading and writing the file in this guest, without a network.
		toFile("dd", "dd", "status=none", "bs=1M", "if="+source, "of="+to("dd")),
	})
	if err != nil {
		return nil, err
	}
	wire := values["ib_write_bw"]
	against := func(name, ours, peer string, peers []float64, goal float64) row {
		return row{name: d.kind + ": " + name, ours: values[ours], unit: "MiB/s", peer: peer, peers: peers, goal: goal}
	}
	return []row{
		against("memory, no digests", "none", "ib_write_bw", wire, d.plain),
		against("memory, XXH3 at both ends", "xxh3", "ib_write_bw", wire, d.hashed),
		against("file to file, verified", "gdrcp", "ib_write_bw", wire, d.file),
		against("file to file, verified", "gdrcp", "rcopy", values["rcopy"], 1.2),
		against("file to file, verified", "gdrcp", "dd, no network", values["dd"], 0),
	}, nil
}

// again retries run if its error contains a text that marks a temporary error: rcopy
// sometimes does not connect over Soft-iWARP, and perftest cannot determine the clock rate
// on a busy machine.
func (o options) again(text string, run func(context.Context) (float64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (value float64, err error) {
		for range 5 {
			if value, err = run(ctx); err == nil || !strings.Contains(err.Error(), text) {
				break
			}
			fmt.Fprintf(o.log, "  again: %v\n", err)
		}
		return value, err
	}
}

// writeBW runs perftest's bandwidth test of RDMA writes between two processes and returns the
// average in MiB/s.
func writeBW(ctx context.Context, d bedDevice) (float64, error) {
	argv := []string{"ib_write_bw", "-R", "-s", strconv.Itoa(writeBytes), "-n", strconv.Itoa(d.memoryMiB << 20 / writeBytes), "-d", d.name}
	s, err := startServer(ctx, "Waiting for client to connect", append([]string{"stdbuf", "-o0"}, argv...)...)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	time.Sleep(300 * time.Millisecond) // it reports that it waits before it listens
	printed, err := output(ctx, append(argv, d.address)...)
	if err != nil {
		return 0, err
	}
	return parsePerftest(printed)
}

// parsePerftest extracts the average bandwidth from the output of ib_write_bw: the fourth
// column of the line that begins with the message size. Its MB are MiB.
func parsePerftest(printed string) (float64, error) {
	for line := range strings.Lines(printed) {
		fields := strings.Fields(line)
		if len(fields) < 5 || fields[0] != strconv.Itoa(writeBytes) {
			continue
		}
		average, err := strconv.ParseFloat(fields[3], 64)
		if err != nil || average <= 0 {
			return 0, fmt.Errorf("ib_write_bw: no bandwidth in %q", line)
		}
		return average, nil
	}
	return 0, fmt.Errorf("ib_write_bw: no result in: %s", tail(printed))
}
