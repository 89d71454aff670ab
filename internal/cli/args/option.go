package args

import (
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// CopyName is the command that runs when no command is named. Users cannot name it.
const CopyName = "\x00copy"

// HelpName and HelpAllName are options of every command. They are handled before cli
// sees them, because cli would write its own text. VersionName is an option of copying.
const (
	HelpName    = "help"
	HelpAllName = "help-all"
	VersionName = "version"
)

// Option describes an option, as far as Arrange needs that.
type Option struct {
	name       string // the first of its names
	takesValue bool
	negated    bool // its --no-NAME
	hidden     bool // not shown to users
}

// OptionsOf returns a command's options by each of their names, including the help
// options and each --no-NAME.
func OptionsOf(flags []cli.Flag) map[string]Option {
	m := map[string]Option{"h": {name: HelpName}, HelpName: {name: HelpName}, HelpAllName: {name: HelpAllName}}
	for _, f := range flags {
		visible, canHide := f.(cli.VisibleFlag)
		o := Option{name: f.Names()[0], takesValue: f.(cli.DocGenerationFlag).TakesValue(), hidden: canHide && !visible.IsVisible()}
		for _, n := range f.Names() {
			m[n] = o
			if Negatable(f) {
				m["no-"+n] = Option{name: o.name, negated: true}
			}
		}
	}
	return m
}

// EveryOption collects the options of all commands. If several have the same name, the
// first command's option wins.
func EveryOption(commands []*cli.Command) map[string]Option {
	all := make(map[string]Option)
	for _, c := range slices.Backward(commands) {
		maps.Copy(all, EveryOption(c.Subcommands))
		maps.Copy(all, OptionsOf(c.Flags))
	}
	return all
}

// Negatable reports whether --no-NAME turns an option off, for each of its names.
func Negatable(f cli.Flag) bool {
	s, ok := f.(interface{ Negatable() bool })
	return ok && s.Negatable()
}

// Dashed returns an option's name with its dashes.
func Dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// FindCommand returns the command of that name from the list, or nil.
func FindCommand(list []*cli.Command, name string) *cli.Command {
	if i := slices.IndexFunc(list, func(c *cli.Command) bool { return c.Name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// Visible returns the list without hidden commands.
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
