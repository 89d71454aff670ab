package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"text/tabwriter"
	"time"

	"gdrcp/manifest"
)

// The model of a copy: every byte passes each stage, the stages work side by side, and the
// copy is as fast as the stage that is full first. What a stage takes is measured in the
// run that prints the model, or assumed and printed.

// costs are what a sink's stages take. The source's take no more.
type costs struct {
	digestGBs  float64       // what one processor digests in a second
	chunkTaken time.Duration // processor time of the engine for a chunk
}

// What the model assumes of a machine that is not here.
const (
	// wireShare is the part of a rail's rate that is left for chunks.
	wireShare = 0.97
	// writeTime is what an NVMe disk takes to write a chunk past the page cache while
	// others are under way.
	writeTime = 500 * time.Microsecond
	// diskGBs is what such a disk writes.
	diskGBs = 6
	// memoryGBs is what the memory of one socket moves. The machine has two, and several
	// rails are on both, with the ring. directPasses is how often a byte of a chunk is
	// moved to or from it: the NIC writes it, the digest reads it, the disk reads it.
	memoryGBs, mostSockets, directPasses = 250.0, 2, 3
	// computing and underWay are chunker.Workers and chunker.DiskWorkers where there are
	// many processors.
	computing, underWay = 24, 96
	modelChunk          = 1 << 20
)

// forecast is what the model says of a sink with rails.
type forecast struct {
	rails                    int
	railGbps                 float64
	full                     string  // the stage that is full first
	rateGBs                  float64 // of the copy
	processors, moved, disks float64 // that it takes: moved is in GB/s
}

// forecastOf works out what a sink takes in over its rails.
func forecastOf(c costs, rails int, railGbps float64) forecast {
	perChunk := modelChunk / 1e9 // GB
	busy := perChunk/c.digestGBs + c.chunkTaken.Seconds()
	f := forecast{rails: rails, railGbps: railGbps}
	for _, s := range []struct {
		name string
		gbs  float64
	}{
		{"wire", float64(rails) * railGbps / 8 * wireShare},
		{"workers that compute", computing * perChunk / busy},
		{"writes under way", underWay * perChunk / (busy + writeTime.Seconds())},
		{"memory", memoryGBs * float64(min(rails, mostSockets)) / directPasses},
	} {
		if f.full == "" || s.gbs < f.rateGBs {
			f.full, f.rateGBs = s.name, s.gbs
		}
	}
	f.processors, f.moved, f.disks = f.rateGBs/perChunk*busy, f.rateGBs*directPasses, f.rateGBs/diskGBs
	return f
}

// measureCosts measures what the model takes from this machine, with the server of the
// other comparisons.
func (h *host) measureCosts(ctx context.Context) (c costs, err error) {
	const benchMiB, benchChunk = 1024, 64 << 10
	c.digestGBs = digestRate()
	printed, err := output(ctx, h.program, "bench", "--json", "--transport", "tcp", "--hash", "none", "--chunk-size", fmt.Sprint(benchChunk),
		"--bytes", fmt.Sprint(benchMiB<<20), "--rounds", "0", "rdma://"+h.gdrcp)
	if err != nil {
		return c, err
	}
	perGiB, err := costOf(printed)
	c.chunkTaken = time.Duration(perGiB / (1 << 30 / benchChunk) * float64(time.Second))
	return c, err
}

// digestRate is how many GB of memory that no cache holds one processor digests in a
// second, by the best of some rounds: what else the machine does only makes it slower.
func digestRate() float64 {
	const bytes, rounds = 256 << 20, 5
	memory := make([]byte, bytes)
	random := rand.NewChaCha8([32]byte{3})
	_, _ = random.Read(memory) // never fails
	best := 0.0
	for range rounds {
		start := time.Now()
		for at := 0; at < bytes; at += modelChunk {
			manifest.XXH3.Piece(memory[at:at+modelChunk], uint64(at/modelChunk), modelChunk, false)
		}
		best = max(best, bytes/1e9/time.Since(start).Seconds())
	}
	return best
}

// costOf finds what gdrcp bench says that the server's processors took for a GiB, in
// seconds: the server of a bench is the sink.
func costOf(events string) (float64, error) {
	for line := range strings.Lines(events) {
		var e struct {
			Event string
			Cost  struct {
				PerGiB float64 `json:"cpu_seconds_per_gib"`
			} `json:"remote_cost"`
		}
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			return 0, fmt.Errorf("decode event %q: %w", line, err)
		}
		if e.Event == "bandwidth" && e.Cost.PerGiB > 0 {
			return e.Cost.PerGiB, nil
		}
	}
	return 0, fmt.Errorf("no processor time of a bench in: %s", tail(events))
}

// printModel prints what the model says of machines that are not here.
func (c costs) printModel(w io.Writer) error {
	fmt.Fprintf(w, "\nModel: a sink with chunks of 1 MiB in host memory, XXH3, and files that are written past the page cache. Measured here:\n"+
		"%.1f GB/s digested by a processor, %.1f µs of processor time for a chunk (over TCP with chunks of 64 KiB, the sockets' copies\n"+
		"included, so RDMA takes less). Assumed: %g of a rail's rate is chunks, a disk takes %v for one of several writes under way and\n"+
		"writes %d GB/s, the memory of each of two sockets moves %g GB/s. Stages work side by side.\n", c.digestGBs, float64(c.chunkTaken)/1e3, wireShare, writeTime, diskGBs, memoryGBs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rails\tfull first\tGB/s\tprocessors busy\tGB/s of memory\tdisks\t")
	for _, gbps := range []float64{100, 400} {
		for _, rails := range []int{1, 2, 4, 8} {
			f := forecastOf(c, rails, gbps)
			fmt.Fprintf(t, "%d of %g Gb/s\t%s\t%.0f\t%.1f\t%.0f\t%.0f\t\n", f.rails, f.railGbps, f.full, f.rateGBs, f.processors, f.moved, f.disks)
		}
	}
	return t.Flush()
}
