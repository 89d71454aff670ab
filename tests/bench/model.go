package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"text/tabwriter"
	"time"

	"gdrcp/manifest"
)

// The model says how fast a machine would copy that is not here, by costs that are measured here.

// costs are what a sink's stages take. The source's take no more.
type costs struct {
	digestGBs  float64       // what one processor digests in a second
	chunkTaken time.Duration // processor time of the engine for a chunk
}

// What the model assumes of a machine that is not here.
const (
	// modelPacket is the payload of a packet of RoCEv2 if frames have 9000 bytes. Beside it a packet has
	// headers of Ethernet, IPv4, UDP, the base transport and its checksum (InfiniBand Architecture, annex
	// A17), and preamble, checksum and the gap between frames.
	modelPacket  = 4096
	payloadShare = modelPacket / (modelPacket + 14 + 20 + 8 + 12 + 4 + 8 + 4 + 12.)
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

// stage is a part of a copy: so many rails, processors or requests work at once, and each takes
// so long for a MiB. Every byte passes each stage, the stages work side by side, and so the copy
// is as fast as the slowest.
type stage struct {
	name                  string
	atOnce, secondsPerMiB float64
}

// sink is what the model says of a sink with rails.
type sink struct {
	slowest                  string  // stage
	rateGBs                  float64 // of the copy
	processors, moved, disks float64 // that it takes: moved is in GB/s
}

// sinkOf works out what a sink takes in over its rails.
func sinkOf(c costs, rails int, railGbps float64) (s sink) {
	const perMiB = modelChunk / 1e9 // GB
	busy := perMiB/c.digestGBs + c.chunkTaken.Seconds()
	for _, of := range []stage{
		{"wire", float64(rails), perMiB / (railGbps / 8 * payloadShare)},
		{"workers that compute", computing, busy},
		{"writes under way", underWay, busy + writeTime.Seconds()},
		{"memory", float64(min(rails, mostSockets)), perMiB * directPasses / memoryGBs},
	} {
		if rate := of.atOnce / of.secondsPerMiB * perMiB; s.slowest == "" || rate < s.rateGBs {
			s.slowest, s.rateGBs = of.name, rate
		}
	}
	s.processors, s.moved, s.disks = s.rateGBs/perMiB*busy, s.rateGBs*directPasses, s.rateGBs/diskGBs
	return s
}

// measureCosts measures what the model takes from this machine, with the server of the
// other comparisons.
func (h *host) measureCosts(ctx context.Context) (c costs, err error) {
	const benchMiB, benchChunk = 1024, 64 << 10
	c.digestGBs = digestRate(256, 5) * modelChunk / 1e9
	printed, err := output(ctx, h.program, "bench", "--json", "--transport", "tcp", "--hash", "none", "--chunk-size", fmt.Sprint(benchChunk),
		"--bytes", fmt.Sprint(benchMiB<<20), "--rounds", "0", "rdma://"+h.gdrcp)
	if err != nil {
		return c, err
	}
	perGiB, err := eventField(printed, "bandwidth", nil, "remote_cost.cpu_seconds_per_gib") // the server of a bench is the sink
	c.chunkTaken = time.Duration(perGiB / (1 << 30 / benchChunk) * float64(time.Second))
	return c, err
}

// digestRate is how many MiB of so many one processor digests in a second, by the best of some
// rounds: what else the machine does only makes it slower. They are more than a cache holds.
func digestRate(mib, rounds int) float64 {
	memory := make([]byte, mib<<20)
	random := rand.NewChaCha8([32]byte{3})
	_, _ = random.Read(memory) // never fails
	best := 0.0
	for range rounds {
		start := time.Now()
		for at := 0; at < len(memory); at += modelChunk {
			manifest.XXH3.Piece(memory[at:at+modelChunk], uint64(at/modelChunk), modelChunk, false)
		}
		best = max(best, rate(mib, time.Since(start).Seconds()))
	}
	return best
}

// printModel prints what the model says of machines that are not here.
func (c costs) printModel(w io.Writer) error {
	fmt.Fprintf(w, "\nModel: a sink with chunks of 1 MiB in host memory, XXH3, and files that are written past the page cache. Measured here:\n"+
		"%.1f GB/s digested by a processor, %.1f µs of processor time for a chunk (over TCP with chunks of 64 KiB, the sockets' copies\n"+
		"included, so RDMA takes less). Assumed: packets with %d bytes of payload, a disk takes %v for one of several writes under way and\n"+
		"writes %d GB/s, the memory of each of two sockets moves %g GB/s. Stages work side by side.\n", c.digestGBs, float64(c.chunkTaken)/1e3, modelPacket, writeTime, diskGBs, memoryGBs)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "rails\tslowest\tGB/s\tprocessors busy\tGB/s of memory\tdisks\t")
	for _, gbps := range []float64{100, 400} {
		for _, rails := range []int{1, 2, 4, 8} {
			f := sinkOf(c, rails, gbps)
			fmt.Fprintf(t, "%d of %g Gb/s\t%s\t%.0f\t%.1f\t%.0f\t%.0f\t\n", rails, gbps, f.slowest, f.rateGBs, f.processors, f.moved, f.disks)
		}
	}
	return t.Flush()
}
