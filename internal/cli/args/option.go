package args

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// CopyName is the command that runs when no command is named. cli sees it, users cannot
// name it.
const CopyName = "\x00copy"

// HelpName is the option that every command has. It is answered before cli
// sees it, which would write its own text.
const HelpName = "help"

// VersionName is the option that copying has.
const VersionName = "version"

// Option describes an option as far as Arrange needs it.
type Option struct {
	name       string // the first of its names
	takesValue bool
	negated    bool // its --no-NAME
	hidden     bool // not for people
}

// OptionsOf returns a command's options by each of their names, including --help and
// each --no-NAME.
func OptionsOf(flags []cli.Flag) map[string]Option {
	m := map[string]Option{"help": {name: HelpName}, "h": {name: HelpName}}
	for _, f := range flags {
		first := f.Names()[0]
		for _, n := range f.Names() {
			m[n] = Option{name: first, takesValue: takesValue(f), hidden: isHidden(f)}
			if Negatable(f) {
				m["no-"+n] = Option{name: first, negated: true}
			}
		}
	}
	return m
}

func isHidden(f cli.Flag) bool {
	v, ok := f.(cli.VisibleFlag)
	return ok && !v.IsVisible()
}

// EveryOption collects the options of all commands. If several have one name, that of
// the first command counts.
func EveryOption(commands []*cli.Command) map[string]Option {
	all := make(map[string]Option)
	add := func(options map[string]Option) {
		for n, o := range options {
			if _, has := all[n]; !has {
				all[n] = o
			}
		}
	}
	for _, c := range commands {
		add(OptionsOf(c.Flags))
		add(EveryOption(c.Subcommands))
	}
	return all
}

// Switch is an option without a value.
type Switch interface {
	cli.Flag
	// Negatable reports whether --no-NAME, for each of its names, turns it off.
	Negatable() bool
}

// takesValue reports whether a value follows the option.
func takesValue(f cli.Flag) bool {
	switch f.(type) {
	case *cli.BoolFlag, Switch:
		return false
	}
	return true
}

// Negatable reports whether --no-NAME turns an option off.
func Negatable(f cli.Flag) bool {
	s, ok := f.(Switch)
	return ok && s.Negatable()
}

// Dashed returns an option's name with its dashes.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// FindCommand returns the command of that name in the list, or nil.
func FindCommand(list []*cli.Command, name string) *cli.Command {
	for _, c := range list {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// Visible returns the list without the commands that are not for people.
func Visible(list []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(list), func(c *cli.Command) bool { return c.Hidden || c.Name == CopyName })
}

func commandNames(list []*cli.Command, between string) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	return strings.Join(names, between)
}
