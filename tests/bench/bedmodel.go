package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
)

// digesting is a competitor that measures how many MiB a second each processor digests, while
// all do: a processor of a virtual machine may be slower when the others are busy.
func digesting() *competitor {
	const mib = 64
	return &competitor{name: "digests", run: func(context.Context) (float64, error) {
		rates := make(chan float64)
		for range runtime.NumCPU() {
			go func() { rates <- digestRate(mib, 1) }()
		}
		sum := 0.0
		for range runtime.NumCPU() {
			sum += <-rates
		}
		return sum / float64(runtime.NumCPU()), nil
	}}
}

// moving is a competitor that reads and writes a file, without a network, in as many parts at
// once as there are processors, for how long these are busy with that. Each part is a file: one
// file in memory is written by one process at a time.
func (o options) moving(source, to string) *competitor {
	parts := runtime.NumCPU()
	var commands [][]string
	var copies []string
	for i := range parts {
		part := o.bedFileMiB / parts
		copies = append(copies, fmt.Sprintf("%s-%d", to, i))
		commands = append(commands, []string{"dd", "status=none", "bs=1M", fmt.Sprintf("count=%d", part), fmt.Sprintf("skip=%d", i*part), "if=" + source, "of=" + copies[i]})
	}
	remove := func() (err error) {
		for _, name := range copies {
			err = errors.Join(err, os.RemoveAll(name))
		}
		return err
	}
	return &competitor{name: "files", run: func(ctx context.Context) (float64, error) {
		took, err := together(ctx, commands...)
		return rate(o.bedFileMiB, took), err
	}, check: func(context.Context, bool) error { return remove() }}
}

// deviceCosts are what the stages of copies over a device of the bed take, measured each by
// itself.
type deviceCosts struct {
	wire       float64 // what ib_write_bw moves, in MiB/s
	engineBusy float64 // of the processors, for a MiB from memory to memory without digests
	share      float64 // of the time for which such a copy keeps them busy: its threads wait for each other
	digestBusy float64 // for a MiB, at one end
	filesBusy  float64 // for reading and writing a MiB, without a network
	start      float64 // seconds that a copy of nearly nothing takes
}

// wireIsFull is the part of ib_write_bw's rate from which a copy is taken to fill the wire.
const wireIsFull = 0.95

// shareOf is for how much of the time a copy from memory to memory of such a rate keeps the
// processors busy. Where it fills the wire, that does not tell how busy they can be.
func (c deviceCosts) shareOf(mibPerSecond float64) float64 {
	if mibPerSecond >= wireIsFull*c.wire {
		return 1
	}
	return min(c.engineBusy*mibPerSecond/float64(runtime.NumCPU()), 1)
}

// memory are the costs of a bench, which does not time its start. ends is how many ends digest.
func (c deviceCosts) memory(mib, ends int) copyCosts {
	return steady(float64(mib), 0, stage{"wire", 1, 1 / c.wire}, processors(c.share, c.engineBusy+float64(ends)*c.digestBusy))
}

// file are the costs of a copy of a file.
func (c deviceCosts) file(mib int) copyCosts {
	return steady(float64(mib), c.start, stage{"wire", 1, 1 / c.wire}, processors(c.share, c.engineBusy+2*c.digestBusy+c.filesBusy))
}

// modelRows hold the copies over a device against the model. values and b are of the
// competitors, and wire of ib_write_bw.
func (o options) modelRows(d bedDevice, wire []float64, values map[string][]float64, b busyTime) []row {
	c := deviceCosts{
		wire:       median(wire),
		engineBusy: (median(b["half"]) - median(b["one chunk"])) / float64(d.memoryMiB/2-1),
		digestBusy: 1 / median(values["digests"]),
		filesBusy:  median(b["files"]) / float64(o.bedFileMiB),
		start:      median(values["kibibyte"]),
	}
	c.share = c.shareOf(median(values["half"]))
	held := func(name, of string, costs copyCosts) row {
		return o.modelRow(d.kind+": "+name, values[of], "MiB/s", costs)
	}
	return []row{
		held("memory, no digests", "none", c.memory(d.memoryMiB, 0)),
		held("memory, XXH3 at both ends", "xxh3", c.memory(d.memoryMiB, 2)),
		held("file to file, verified", "gdrcp", c.file(o.bedFileMiB)),
	}
}
