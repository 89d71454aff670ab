package cli

import (
	"cmp"
	"errors"
	"math"
	"strconv"
	"strings"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// limitFlags returns the options that limit a copy.
func (c *copyRun) limitFlags() []cli.Flag {
	return about(topicLimits,
		bwlimitFlag("the copy sends and receives no faster", &c.options.BytesPerSecond),
		checkedFlag("timeout", "`SECONDS` end the copy after SECONDS without progress, even if the other end still answers; 0 is no limit (0)", seconds(&c.options.Stall)),
		checkedFlag("retries", "`N` go on with the copy up to N times by itself if its connection is lost; 0 is never (3)", number(&c.retries, 0, 1<<30)),
		checkedFlag("max-memory", "`SIZE` the most memory that this end's slots may take: the ring gets fewer slots if need be", size(&c.maxMemoryBytes, xfer.MinChunkBytes, 1<<50, 1)),
	)
}

// seconds is an option's value: a whole number of seconds, or 0.
func seconds(to *time.Duration) *checkedValue {
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

// fitMemory sets the number of slots that fit into --max-memory: at this end or, if
// both ends are on this machine, at both together.
func (c *copyRun) fitMemory(o *xfer.Options, source, stream, both bool) error {
	if c.maxMemoryBytes == 0 {
		return nil
	}
	takes := func() int64 {
		n := o.RingBytes(source, stream)
		if both {
			n += o.RingBytes(!source, false)
		}
		return n
	}
	wanted, isDefault := cmp.Or(o.Slots, xfer.DefaultSlots), o.Slots == 0
	for o.Slots = wanted; takes() > c.maxMemoryBytes; o.Slots-- {
		if o.Slots == 1 {
			return args.UsageErrorf("--max-memory %s is too small: the smallest ring, of slots of %s, takes %s here",
				sizeText(c.maxMemoryBytes), sizeText(int64(cmp.Or(o.ChunkBytes, xfer.DefaultChunkBytes))), bytesText(float64(takes()), 1))
		}
	}
	if isDefault && o.Slots == wanted {
		// A fast link needs more slots.
		for o.Slots < xfer.MaxSlots && takes() <= c.maxMemoryBytes {
			o.Slots++
		}
		if takes() > c.maxMemoryBytes {
			o.Slots--
		}
		o.Slots, o.MostSlots = 0, o.Slots
		return nil
	}
	if o.Slots < wanted && c.verbose && !c.json {
		c.console.line("gdrcp: slots: %d instead of %d, for --max-memory has no room for more", o.Slots, wanted)
	}
	return nil
}

// bwlimitFlag returns rsync's --bwlimit. usage describes what it limits.
func bwlimitFlag(usage string, bytesPerSecond *int64) cli.Flag {
	return checkedFlag("bwlimit", "`RATE` a limit in KiB a second, or with K, M or G, like 1.5M: "+usage+"; 0 is no limit (0)", rate(bytesPerSecond))
}

var errSize = errors.New("not a size (write it like 500, 1.5M or 100MB)")

var errRate = errors.New("not a rate (write it like 500 for KiB a second, 1.5M or 100MB)")

// minRate is the lowest rate that rsync accepts.
const minRate = 512

// parseRate parses bytes per second as rsync(1) does for --bwlimit: without a unit, in
// KiB. 0 means no limit.
func parseRate(s string) (bytesPerSecond int64, err error) {
	n, ok := parseAmount(s, 1)
	switch {
	case !ok:
		return 0, errRate
	case n >= math.MaxInt64:
		return 0, errors.New("too large")
	case n < minRate && int64(n) != 0:
		return 0, errors.New("less than 512 bytes a second (0 is no limit)")
	}
	return int64(n), nil
}

// parseAmount parses a number of bytes as rsync(1) does (parse_size_arg in its options.c). The
// number may have a fraction. Its unit is B, K, M, G, T or P, in either case, for powers of 1024;
// without a letter, the given power of 1024. "iB" after the letter has no effect, and "B" makes the
// unit a power of 1000. A final +1 or -1 adds or subtracts a byte.
func parseAmount(s string, power int) (bytes float64, ok bool) {
	s = strings.ToLower(s)
	unit := strings.TrimLeft(s, "0123456789.")
	n, err := strconv.ParseFloat(s[:len(s)-len(unit)], 64)
	if err != nil {
		return 0, false
	}
	bytesPerUnit, end := bytesOfUnit(unit, power)
	n *= bytesPerUnit
	switch end {
	case "":
	case "+1":
		n++
	case "-1":
		n--
	default:
		return 0, false
	}
	return n, true
}

// bytesOfUnit removes a unit in lower case from the beginning of text. Without a unit,
// it returns the given power of 1024.
func bytesOfUnit(text string, power int) (bytesPerUnit float64, rest string) {
	base := 1024.0
	if text != "" {
		if i := strings.IndexByte("bkmgtp", text[0]); i >= 0 {
			power, text = i, text[1:]
			if after, ok := strings.CutPrefix(text, "ib"); ok {
				text = after
			} else if after, ok := strings.CutPrefix(text, "b"); ok {
				text, base = after, 1000
			}
		}
	}
	return math.Pow(base, float64(power)), text
}

// fileSize is the value of --max-size and --min-size: rsync's sizes, in bytes if there is no unit.
func fileSize(set func(bytes int64)) *checkedValue {
	return &checkedValue{set: func(s string) error {
		n, ok := parseAmount(s, 0)
		switch {
		case !ok || n < 0:
			return errSize
		case n >= math.MaxInt64:
			return errors.New("too large")
		}
		set(int64(n))
		return nil
	}}
}

// rate is the value of --bwlimit.
func rate(to *int64) *checkedValue {
	return &checkedValue{set: func(s string) (err error) {
		*to, err = parseRate(s)
		return err
	}}
}
