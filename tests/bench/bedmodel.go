package main

import (
	"fmt"
	"runtime"
)

const (
	// modelWithin is how far a copy may be from what the model says of it.
	modelWithin = 0.15
	// busyShare is how busy a copy keeps the processors at most: threads wait for each
	// other. It was found in the bed.
	busyShare = 0.9
)

// bedCosts are what the stages of a copy in the bed cost, measured each by itself.
type bedCosts struct {
	fixedSeconds       float64 // what a copy of nearly nothing takes
	fixedBusy          float64 // for one chunk from memory to memory
	memoryMiB, fileMiB int
	memoryBusy         float64 // for memoryMiB from memory to memory, with digests
	memoryRate         float64 // of that, in MiB/s
	filesBusy          float64 // for reading and writing fileMiB, without a network
	processors         int
}

// fileRate is the rate of a file that the model predicts, in MiB/s: either the processors are
// as busy as can be, or the wire is.
func (c bedCosts) fileRate() float64 {
	busy := (c.memoryBusy-c.fixedBusy)/float64(c.memoryMiB) + c.filesBusy/float64(c.fileMiB)
	perMiB := max(busy/(busyShare*float64(c.processors)), 1/c.memoryRate)
	return float64(c.fileMiB) / (c.fixedSeconds + float64(c.fileMiB)*perMiB)
}

// modelRow holds a copy of a file on a device against the model. values and b are of the
// competitors.
func (o options) modelRow(d bedDevice, values map[string][]float64, b busyTime) row {
	c := bedCosts{
		fixedSeconds: median(values["kibibyte"]), fixedBusy: median(b["one chunk"]), memoryMiB: d.memoryMiB, fileMiB: o.bedFileMiB,
		memoryBusy: median(b["xxh3"]), memoryRate: median(values["xxh3"]), filesBusy: median(b["dd"]), processors: runtime.NumCPU(),
	}
	fmt.Fprintf(o.log, "  model: %+v\n  busy: %v\n", c, b)
	return row{name: d.kind + ": file to file, verified", ours: values["gdrcp"], unit: "MiB/s", peer: "the model", peers: []float64{c.fileRate()}, within: modelWithin}
}
