package main

import (
	"cmp"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// limitFlags are the bounds of a copy.
func (c *copying) limitFlags() []cli.Flag {
	return about(topicLimits,
		bwlimitFlag("what is sent or received takes at most that much of the network", &c.options.BytesPerSecond),
		checkedFlag("timeout", "`SECONDS` without progress end the copy, though the other end is there; 0 is no limit (0)", seconds(&c.options.Stall)),
		checkedFlag("max-memory", "`SIZE` of this end's slots, at most: there are fewer where they would take more", size(&c.maxMemoryBytes, xfer.MinChunkBytes, 1<<50, 1)),
	)
}

// seconds is a whole number of seconds, or 0.
func seconds(to *time.Duration) *checked {
	var n int
	v := number(&n, 0, 1<<30)
	set := v.set
	v.set = func(s string) error {
		err := set(s)
		*to = time.Duration(n) * time.Second
		return err
	}
	return v
}

// fitMemory takes as many slots as --max-memory has room for.
func (c *copying) fitMemory(o *xfer.Options, source, stream bool) error {
	if c.maxMemoryBytes == 0 {
		return nil
	}
	wanted := cmp.Or(o.Slots, xfer.DefaultSlots)
	for o.Slots = wanted; o.RingBytes(source, stream) > c.maxMemoryBytes; o.Slots-- {
		if o.Slots == 1 {
			return usageError("--max-memory %s: the smallest ring, of slots of %s, takes %s here",
				sizeText(c.maxMemoryBytes), sizeText(int64(cmp.Or(o.ChunkBytes, xfer.DefaultChunkBytes))), bytesText(float64(o.RingBytes(source, stream)), 1))
		}
	}
	if o.Slots < wanted && c.verbose && !c.json {
		c.console.line("gdrcp: slots: %d of %d, as --max-memory has room for no more", o.Slots, wanted)
	}
	return nil
}

// bwlimitFlag is rsync's --bwlimit. usage says of what.
func bwlimitFlag(usage string, bytesPerSecond *int64) cli.Flag {
	return checkedFlag("bwlimit", "`RATE` in KiB a second, or with K, M or G as 1.5M: "+usage+"; 0 is no limit (0)", rate(bytesPerSecond))
}

// rateForm is what parse_size_arg of rsync's options.c takes.
var rateForm = regexp.MustCompile(`^([0-9]*(?:\.[0-9]*)?)(?:([bkmgtp])(ib|b)?)?([+-]1)?$`)

var errRate = errors.New("not a rate (write it like 500 for KiB a second, 1.5M or 100MB)")

// minRate is the lowest rate that rsync takes.
const minRate = 512

// parseRate reads bytes a second as rsync(1) does for --bwlimit: a number, also
// with a fraction, of KiB; or with B, K, M, G, T or P, small or capital, of
// powers of 1024, which "iB" behind it leaves as it is and "B" makes of 1000; +1
// and -1 at the end are bytes. 0 is no limit.
func parseRate(s string) (bytesPerSecond int64, err error) {
	m := rateForm.FindStringSubmatch(strings.ToLower(s))
	if m == nil || strings.Trim(m[1], ".") == "" {
		return 0, errRate
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		return 0, errRate
	}
	unit, base := m[2], 1024.0
	if unit == "" {
		unit = "k"
	}
	if m[3] == "b" {
		base = 1000
	}
	n *= math.Pow(base, float64(strings.Index("bkmgtp", unit)))
	switch m[4] {
	case "+1":
		n++
	case "-1":
		n--
	}
	switch {
	case n >= math.MaxInt64:
		return 0, errors.New("too large")
	case n < minRate && int64(n) != 0:
		return 0, errors.New("less than 512 bytes a second, and 0 is no limit")
	}
	return int64(n), nil
}

// rate is the value of --bwlimit.
func rate(to *int64) *checked {
	return &checked{set: func(s string) (err error) {
		*to, err = parseRate(s)
		return err
	}}
}
