package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
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
