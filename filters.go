package main

import (
	"errors"
	"io"
	"os"

	"gdrcp/filter"

	"github.com/urfave/cli/v2"
)

// choosing is what of the sources is to be copied, by rsync's options.
type choosing struct {
	rules inOrder
	nul   bool // --from0
	// stdin is what - stands for, and taken says which option has it.
	stdin io.Reader
	taken string
}

// flags are the options that choose. That they are rules, and can be read, is
// found out when all are known.
func (c *choosing) flags() []cli.Flag {
	return []cli.Flag{
		c.rules.flag("exclude", "`PATTERN` leave out what matches, and with a directory all that is in it. "+
			"Of all rules, in the order in which they are given, the first one that matches counts. Patterns are those of rsync(1)", nil),
		c.rules.flag("include", "`PATTERN` do not leave out what matches, though a later rule says so", nil),
		c.rules.flag("exclude-from", "`FILE` --exclude for each line of FILE; - is standard input", nil),
		c.rules.flag("include-from", "`FILE` --include for each line of FILE; - is standard input", nil),
		c.rules.flag("filter", "`RULE` a filter rule of rsync(1), like \"- PATTERN\", \"+ PATTERN\" or \"merge FILE\"; dir-merge is not supported", nil, "f"),
		&cli.BoolFlag{Name: "from0", Aliases: []string{"0"}, Usage: "what is read from files ends with a NUL each, not with the line", Destination: &c.nul},
	}
}

// read reads the rules, and the files that they are in.
func (c *choosing) read() ([]filter.Rule, error) {
	p := filter.Parser{Nul: c.nul}
	for _, given := range c.rules.given {
		p.Open = func(name string) (io.ReadCloser, error) { return c.open(name, given.option) }
		take := map[string]func(string) error{
			"exclude": p.Exclude, "include": p.Include, "exclude-from": p.ExcludeFrom, "include-from": p.IncludeFrom, "filter": p.Filter,
		}[given.option]
		err := take(given.value)
		if errors.Is(err, filter.ErrSyntax) {
			err = usageError("--%s: %v", given.option, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return p.Rules(), nil
}

// open opens a file that an option names.
func (c *choosing) open(name, option string) (io.ReadCloser, error) {
	if name != "-" {
		return os.Open(name)
	}
	if c.taken != "" {
		return nil, usageError("--%s and --%s cannot both read standard input", c.taken, option)
	}
	c.taken = option
	return io.NopCloser(c.stdin), nil
}
