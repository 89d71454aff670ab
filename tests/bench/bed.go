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

// bedDevice is a device of the guest with the goals that hold on it.
type bedDevice struct {
	name, kind, address string
	// memoryMiB is how much a bandwidth test moves: some seconds' worth.
	memoryMiB int
	// The goals, as ratios to ib_write_bw. fileBeyond is that of a file without what a copy of
	// nearly nothing takes: ib_write_bw does not time its own start.
	plain, hashed, file, fileBeyond float64
}

var bedDevices = []bedDevice{
	{name: "rxe0", kind: "rxe (RoCEv2)", address: "10.7.0.1", memoryMiB: 256, plain: 1, hashed: 1, file: 0.85, fileBeyond: 0.85},
	{name: "siw0", kind: "siw (iWARP)", address: "10.8.0.1", memoryMiB: 512, plain: 1, hashed: 0.75, file: 0.35, fileBeyond: 0.35},
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
	kibibyte := filepath.Join(folder, "kibibyte")
	if err := writeRandom(kibibyte, 1<<10); err != nil {
		return err
	}
	rows := []row{}
	perftest := "ib_write_bw refuses -e for writes, so it ran without."
	for _, d := range bedDevices {
		if !o.wants(d.name) {
			continue
		}
		d.memoryMiB /= o.bedMemoryParts
		events, err := takesEvents(ctx, d)
		if err != nil {
			return fmt.Errorf("%s: %w", d.name, err)
		}
		if events {
			perftest = "Of ib_write_bw with and without -e the better is the peer."
		}
		more, err := o.compareDevice(ctx, d, events, source, kibibyte, dst)
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
		"which takes an emulated CPU from the emulated NIC. %s\n%s\n", o.bedFileMiB, perftest, modelNote())
	return o.print(rows)
}

// compareDevice runs all competitors on one device in turn.
func (o options) compareDevice(ctx context.Context, d bedDevice, events bool, source, kibibyte, dst string) ([]row, error) {
	fmt.Fprintf(o.log, "bed: %s, MiB/s\n", d.kind)
	// Not the loopback address: a server that listens there offers no RDMA.
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
	memory := func(hash string, mib int) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			return o.memoryToMemory(ctx, "verbs", []string{"--rail", d.name}, d.address, hash, mib)
		}
	}
	copyingOf := func(source, name string, argv ...string) *competitor {
		copied := filepath.Join(dst, name)
		return &competitor{name: name, prepare: removal(copied),
			run: func(ctx context.Context) (float64, error) { return seconds(ctx, argv...) },
			check: func(ctx context.Context, thorough bool) error {
				defer os.RemoveAll(copied)
				return compare(ctx, source, copied, thorough)
			},
		}
	}
	copying := func(name string, argv ...string) *competitor {
		c := copyingOf(source, name, argv...)
		c.run = func(ctx context.Context) (float64, error) {
			took, err := seconds(ctx, argv...)
			return rate(o.bedFileMiB, took), err
		}
		return c
	}
	theirs := copying("rcopy", "rcopy", source, d.address+":"+filepath.Join(dst, "rcopy"), "-p", rcopyPort)
	theirs.run = o.connecting(theirs.run)
	file := o.copyArgs("verbs", []string{"--require", "verbs", "--rail", d.name}, source, d.address, "gdrcp")
	perftest := func(events bool) func(context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return ibWriteBW(ctx, d, events) }
	}
	busy := busyTime{}
	competitors := []*competitor{
		{name: "ib_write_bw", run: perftest(false)},
		busy.watch(&competitor{name: "none", run: memory("none", d.memoryMiB)}),
		busy.watch(&competitor{name: "xxh3", run: memory("xxh3", d.memoryMiB)}),
		// What the engine takes for a MiB is the difference of these two.
		busy.watch(&competitor{name: "half", run: memory("none", d.memoryMiB/2)}),
		busy.watch(&competitor{name: "one chunk", run: memory("none", 1)}),
		digesting(),
		busy.watch(copying("gdrcp", file...)),
		copyingOf(kibibyte, "kibibyte", o.copyArgs("verbs", []string{"--require", "verbs", "--rail", d.name}, kibibyte, d.address, "kibibyte")...),
		theirs,
		// What reading and writing the file costs this guest without any network.
		copying("dd", "dd", "status=none", "bs=1M", "if="+source, "of="+filepath.Join(dst, "dd")),
		busy.watch(o.moving(source, filepath.Join(dst, "files"))),
	}
	if events {
		competitors = append(competitors, &competitor{name: "ib_write_bw -e", run: perftest(true)})
	}
	values, err := alternate(ctx, o.log, o.rounds, competitors)
	if err != nil {
		return nil, err
	}
	wire := values["ib_write_bw"]
	if events && median(values["ib_write_bw -e"]) > median(wire) {
		wire = values["ib_write_bw -e"]
	}
	against := func(name, ours, peer string, peers []float64, goal float64) row {
		return row{name: d.kind + ": " + name, ours: values[ours], unit: "MiB/s", peer: peer, peers: peers, goal: goal}
	}
	return append([]row{
		against("memory, no digests", "none", "ib_write_bw", wire, d.plain),
		against("memory, XXH3 at both ends", "xxh3", "ib_write_bw", wire, d.hashed),
		against("file to file, verified", "gdrcp", "ib_write_bw", wire, d.file),
		{name: d.kind + ": file to file, verified, beyond 1 KiB", ours: beyondStart(values["gdrcp"], values["kibibyte"], o.bedFileMiB), unit: "MiB/s",
			peer: "ib_write_bw", peers: wire, goal: d.fileBeyond},
		against("file to file, verified", "gdrcp", "rcopy", values["rcopy"], 1.2),
		against("file to file, verified", "gdrcp", "dd, no network", values["dd"], 0),
	}, o.modelRows(d, wire, values, busy)...), nil
}

// beyondStart returns the rates of a file of mib MiB without the seconds that a copy of nearly
// nothing takes in the same round.
func beyondStart(rates, starts []float64, mib int) []float64 {
	beyond := make([]float64, len(rates))
	for i, r := range rates {
		beyond[i] = rate(mib, float64(mib)/r-starts[i])
	}
	return beyond
}

// connecting runs what is run again where it did not connect: rcopy now and then
// does not over Soft-iWARP, and says so before anything moves.
func (o options) connecting(run func(context.Context) (float64, error)) func(context.Context) (float64, error) {
	return func(ctx context.Context) (value float64, err error) {
		for range 3 {
			value, err = run(ctx)
			if err == nil || !strings.Contains(err.Error(), "rconnect failed") {
				break
			}
			fmt.Fprintf(o.log, "  again: %v\n", err)
		}
		return value, err
	}
}

// takesEvents tells whether ib_write_bw takes -e for writes; perftest 4.5 does not.
func takesEvents(ctx context.Context, d bedDevice) (bool, error) {
	_, err := ibWriteBW(ctx, d, true)
	if err != nil && strings.Contains(err.Error(), "Events feature not available") {
		return false, nil
	}
	return err == nil, err
}

// ibWriteBW runs perftest's bandwidth test of RDMA writes between two
// processes and returns the average in MiB/s. With events it sleeps for
// completions rather than polling (-e). perftest gives up where it cannot find
// out how fast its clock ticks, as now and then on a busy machine. It then runs again.
func ibWriteBW(ctx context.Context, d bedDevice, events bool) (mibPerSecond float64, err error) {
	for range 5 {
		mibPerSecond, err = tryWriteBW(ctx, d, events)
		if err == nil || !strings.Contains(err.Error(), "Can't produce a report") {
			break
		}
	}
	return mibPerSecond, err
}

func tryWriteBW(ctx context.Context, d bedDevice, events bool) (float64, error) {
	argv := []string{"ib_write_bw", "-R", "-s", strconv.Itoa(writeBytes), "-n", strconv.Itoa(d.memoryMiB << 20 / writeBytes), "-d", d.name}
	if events {
		argv = append(argv, "-e")
	}
	s, err := startServer(ctx, "Waiting for client to connect", append([]string{"stdbuf", "-o0"}, argv...)...)
	if err != nil {
		return 0, err
	}
	defer s.stop()
	time.Sleep(300 * time.Millisecond) // it says that it waits before it listens
	printed, err := output(ctx, append(argv, d.address)...)
	if err != nil {
		return 0, err
	}
	return parsePerftest(printed)
}

// parsePerftest finds the average bandwidth in what ib_write_bw prints: the
// fourth column of the line that begins with the message size. Its MB are MiB.
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
