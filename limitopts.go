package main

import (
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"

	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// limitFlags are the bounds of a copy.
func limitFlags(o *xfer.Options) []cli.Flag {
	return about(topicLimits,
		bwlimitFlag("what is sent or received takes at most that much of the network", &o.BytesPerSecond),
	)
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
