package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"gdrcp/chunker"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/filter"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// selectOptions are the options, most of them rsync's, that select which entries of the
// sources are copied.
type selectOptions struct {
	rules orderedOptions
	nul   bool // --from0
	// recursive means that -r itself was given. -a does not imply it together with --files-from.
	recursive bool
	// filesFrom is the file that lists the only names to copy.
	filesFrom string
	// stdin is the reader for "-". stdinTakenBy is the option that reads it.
	stdin        io.Reader
	stdinTakenBy string
}

// flags returns the options that select. The rules are parsed, and files of rules read,
// after all options are known.
func (c *selectOptions) flags() []cli.Flag {
	return c.flagsWith("`FILE` copy only what FILE names, one name a line, relative to SRC, which must be one directory, and the directories on the way. " +
		"What is in a named directory is copied only with -r. - is standard input")
}

// flagsWith is flags with filesFrom as the usage of --files-from.
func (c *selectOptions) flagsWith(filesFrom string) []cli.Flag {
	rules := c.ruleFlags()
	last := len(rules) - 1
	return slices.Concat(rules[:last], []cli.Flag{
		&cli.StringFlag{Name: "files-from", Usage: filesFrom, Destination: &c.filesFrom},
	}, rules[last:])
}

// ruleFlags returns the options that exclude something. --from0 is the last.
func (c *selectOptions) ruleFlags() []cli.Flag {
	return []cli.Flag{
		c.rules.flag("exclude", "`PATTERN` leave out what matches, and all that is in a directory that matches. "+
			"The first rule that matches decides, in the order of the command line. Patterns are those of rsync(1)", nil),
		c.rules.flag("include", "`PATTERN` do not leave out what matches, even if a later rule says so", nil),
		c.rules.flag("exclude-from", "`FILE` --exclude for each line of FILE; - is standard input", nil),
		c.rules.flag("include-from", "`FILE` --include for each line of FILE; - is standard input", nil),
		c.rules.flag("filter", "`RULE` a filter rule of rsync(1), like \"- PATTERN\", \"+ PATTERN\" or \"merge FILE\"; dir-merge is not supported", nil, "f"),
		&cli.BoolFlag{Name: "from0", Aliases: []string{"0"}, Usage: "rules and names in files end with a NUL, not at the end of the line", Destination: &c.nul},
	}
}

// isRuleOption reports whether an option gives rules or controls how they are read.
func isRuleOption(name string) bool {
	switch name {
	case "exclude", "include", "exclude-from", "include-from", "filter", "from0":
		return true
	}
	return false
}

// into reads rules and names into the options of a copy, until ctx ends. The caller
// closes the names.
func (c *selectOptions) into(ctx context.Context, o *xfer.Options) (err error) {
	if o.Rules, err = c.read(ctx); err != nil {
		return err
	}
	if o.Names, err = c.names(ctx); o.Names != nil {
		o.Recursive = c.recursive
	}
	return err
}

// read reads the rules and the files that contain them, until ctx ends.
func (c *selectOptions) read(ctx context.Context) ([]filter.Rule, error) {
	p := filter.Parser{Nul: c.nul}
	for _, given := range c.rules.given {
		p.Open = func(name string) (io.ReadCloser, error) { return c.open(ctx, name, given.option) }
		take := map[string]func(string) error{
			"exclude": p.Exclude, "include": p.Include, "exclude-from": p.ExcludeFrom, "include-from": p.IncludeFrom, "filter": p.Filter,
		}[given.option]
		err := take(given.value)
		if errors.Is(err, filter.ErrSyntax) {
			err = args.UsageErrorf("--%s: %v", given.option, err)
		}
		if err != nil {
			return nil, err
		}
	}
	return p.Rules(), nil
}

// names reads and sorts the names of --files-from, until ctx ends. It returns nil
// without that option.
func (c *selectOptions) names(ctx context.Context) (*chunker.List, error) {
	if c.filesFrom == "" {
		return nil, nil
	}
	in, err := c.open(ctx, c.filesFrom, "files-from")
	if err != nil {
		return nil, err
	}
	defer in.Close()
	list, err := readNames(in, c.nul)
	if err != nil {
		return nil, fmt.Errorf("read names from %s: %v", args.Quote(c.filesFrom), err)
	}
	return list, nil
}

// readNames reads names, one per line or, with nul, each terminated by a NUL, and sorts them.
func readNames(in io.Reader, nul bool) (*chunker.List, error) {
	b := chunker.NewListBuilder()
	defer b.Close()
	if err := filter.EachName(in, nul, b.Add); err != nil {
		return nil, err
	}
	return b.Finish()
}

// writeNames writes the names of a list for readNames, each terminated by a NUL.
func writeNames(out io.Writer, list *chunker.List) error {
	w := bufio.NewWriterSize(out, 32<<10)
	for names := list.Names(); ; {
		item, err := names.Next()
		if errors.Is(err, io.EOF) {
			return w.Flush()
		}
		if err != nil {
			return err
		}
		if !item.Named {
			continue // it is only a parent of others
		}
		name := "./" + item.Path // so that it begins with neither # nor ;
		if item.Contents {
			name += "/"
		}
		if _, err := w.WriteString(name + "\x00"); err != nil {
			return err
		}
	}
}

// open opens a file that an option names. Reading ends when ctx ends.
func (c *selectOptions) open(ctx context.Context, name, option string) (io.ReadCloser, error) {
	if name != "-" {
		return openUntil(ctx, func() (io.ReadCloser, error) { return os.Open(name) })
	}
	if c.stdinTakenBy != "" {
		return nil, args.UsageErrorf("--%s and --%s cannot both read standard input", c.stdinTakenBy, option)
	}
	c.stdinTakenBy = option
	return openUntil(ctx, func() (io.ReadCloser, error) { return kept{c.stdin}, nil })
}
