package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
)

const (
	// modelWithin is how far a copy may be from what the model says of it.
	modelWithin = 0.15
	// busyShare is how busy a copy keeps the processors at most: threads wait for each
	// other. It was found in the bed.
	busyShare = 0.9
)

// busyTime notes how long the processors of this machine were busy while competitors ran,
// in seconds of one processor: the kernel's own work counts, which no process is charged
// with.
type busyTime map[string][]float64

// watch has a competitor's runs noted, but not the first, which warms up.
func (b busyTime) watch(c *competitor) *competitor {
	run, warm := c.run, false
	c.run = func(ctx context.Context) (float64, error) {
		before, err := processorsBusy()
		if err != nil {
			return 0, err
		}
		value, err := run(ctx)
		after, e := processorsBusy()
		if warm {
			b[c.name] = append(b[c.name], after-before)
		}
		warm = true
		return value, errors.Join(err, e)
	}
	return c
}

// processorsBusy is how long the processors were busy since the machine was started.
func processorsBusy() (float64, error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0, err
	}
	return parseBusy(string(text))
}

// parseBusy reads the first line of /proc/stat (proc_stat(5)): times in hundredths of a
// second.
func parseBusy(text string) (float64, error) {
	const idle, ioWait, guest = 3, 4, 8 // guest time and what follows are parts of user time
	line, _, _ := strings.Cut(text, "\n")
	fields := strings.Fields(line)
	if len(fields) < guest || fields[0] != "cpu" {
		return 0, fmt.Errorf("/proc/stat begins with %q", line)
	}
	busy := 0.0
	for i, field := range fields[1:min(len(fields), guest+1)] {
		n, err := strconv.ParseUint(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("/proc/stat begins with %q", line)
		}
		if i != idle && i != ioWait {
			busy += float64(n) / 100
		}
	}
	return busy, nil
}

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
