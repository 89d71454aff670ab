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

// The model computes how fast a machine that we do not have would copy, from costs
// measured on this one.

// costs are the costs of a sink's stages. The source's are not higher.
type costs struct {
	digestGBs  float64       // rate of digesting on one processor
	chunkTaken time.Duration // processor time of the engine per chunk
}

// The assumptions of the model.
const (
	// modelPacket is the payload of a RoCEv2 packet with frames of 9000 bytes. In addition
	// a packet has headers of Ethernet, IPv4, UDP, the base transport and its checksum
	// (InfiniBand Architecture, annex A17), and preamble, checksum and the gap between
	// frames.
	modelPacket  = 4096
	payloadShare = modelPacket / (modelPacket + 14 + 20 + 8 + 12 + 4 + 8 + 4 + 12.)
	// writeTime is how long an NVMe disk takes to write a chunk with O_DIRECT while others
	// are in flight.
	writeTime = 500 * time.Microsecond
	// diskGBs is the write rate of such a disk.
	diskGBs = 6
	// memoryGBs is the memory bandwidth of one socket. The machine has two, and several
	// rails are spread over both, with the ring. directPasses is how often a byte of a
	// chunk is transferred to or from memory: the NIC writes it, the digest reads it, the
	// disk reads it.
	memoryGBs, mostSockets, directPasses = 250.0, 2, 3
	// computing and underWay are chunker.Workers and chunker.DiskWorkers on a machine with
	// many processors.
	computing, underWay = 24, 96
	modelChunk          = 1 << 20
)

// stage is a part of a copy: a number of rails, processors or requests work concurrently,
// and each takes a certain time per MiB. Every byte passes through each stage, the stages
// run concurrently, and so the copy is as fast as the slowest.
type stage struct {
	name                  string
	atOnce, secondsPerMiB float64
}

// sink is the model's result for a sink.
type sink struct {
	slowest                  string  // the slowest stage
	rateGBs                  float64 // rate of the copy
	processors, moved, disks float64 // resources that it uses: moved is in GB/s
}

// sinkOf computes how fast a sink receives over its rails.
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

// measureCosts measures the model's costs on this machine, with the server of the other
// comparisons.
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

// digestRate measures how many MiB one processor digests in a second, as the best of
// several rounds, because disturbances only make it slower. The data exceeds the cache.
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

// printModel prints the model's results for other machines.
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
