package cli

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"gdrcp/internal/cli/args"
	"gdrcp/manifest"
	"gdrcp/xfer"
)

// checkedValue is the value of an option. It is parsed and checked against its bounds
// when it is set.
type checkedValue struct {
	set  func(string) error
	text string
}

// Set implements flag.Value.
func (c *checkedValue) Set(s string) error {
	c.text = s
	return c.set(s)
}

// String implements flag.Value.
func (c *checkedValue) String() string { return c.text }

// fileOnly is the name of a file to write, never a stream: standard output is for
// events and for DST -.
func fileOnly(to *string) *checkedValue {
	return &checkedValue{set: func(s string) error {
		if s == streamName {
			return errors.New("it is a file, and no stream; a file of that name is ./-")
		}
		*to = s
		return nil
	}}
}

// number is a whole number with bounds.
func number(to *int, least, most int) *checkedValue {
	return &checkedValue{set: func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("not a number from %d to %d", least, most)
		}
		*to = n
		return nil
	}}
}

// size is a number of bytes with bounds, a multiple of step.
func size[T int | int64](to *T, least, most, step int64) *checkedValue {
	return &checkedValue{set: func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n < least || n > most || n%step != 0 {
			steps := ""
			if step > 1 {
				steps = " in steps of " + sizeText(step)
			}
			return fmt.Errorf("not from %s to %s%s", sizeText(least), sizeText(most), steps)
		}
		*to = T(n)
		return nil
	}}
}

// oneOf is one of several words.
func oneOf(to *string, words ...string) *checkedValue {
	return &checkedValue{set: func(s string) error {
		for _, w := range words {
			if s == w {
				*to = s
				return nil
			}
		}
		return fmt.Errorf("not one of %s", strings.Join(words, ", "))
	}}
}

// hash is the name of a digest algorithm.
func hash(to *manifest.Algorithm) *checkedValue {
	return &checkedValue{set: func(s string) (err error) {
		if *to, err = manifest.ParseAlgorithm(s); err != nil {
			return fmt.Errorf("not one of xxh3, blake3, crc32c, sha256")
		}
		return nil
	}}
}

func compression(to *xfer.Compress) *checkedValue {
	return &checkedValue{set: func(s string) (err error) {
		if *to, err = xfer.ParseCompress(s); err != nil {
			return fmt.Errorf("not one of off, zstd, s2, auto")
		}
		return nil
	}}
}

// badValue replaces the texts of cli and of package flag about a bad value by gdrcp's own.
func badValue(err error) error {
	refusal := regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-([a-z0-9-]+): (.*)$`)
	m := refusal.FindStringSubmatch(err.Error())
	if m == nil {
		return args.UsageErrorf("%s", err)
	}
	if m[3] == "parse error" { // only for a switch: this package parses all other values
		m[3] = "not true or false"
	}
	return args.UsageErrorf("--%s %s: %s", m[2], m[1], m[3])
}
