package args

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// Line is a command line in the order that cli needs, which stops at the
// first operand: the command, its options by their long names, "--", operands.
type Line struct {
	Args    []string // the program's name first
	Command *cli.Command
	Title   string // the command's words; "" for copying
	Help    bool   // the user wants to read about it
}

// Arrange puts args, which lack the program's name, in order. Its errors wrap ErrUsage.
func Arrange(app *cli.App, args []string) (*Line, error) {
	a, err := scan(args, app.Commands)
	if err != nil {
		return nil, err
	}
	a.takeWords(app.Commands)
	if len(a.commands) == 0 {
		a.commands = []*cli.Command{FindCommand(app.Commands, CopyName)}
	}
	line := &Line{Args: []string{app.Name}, Command: a.commands[len(a.commands)-1]}
	for _, c := range a.commands {
		line.Args = append(line.Args, c.Name)
	}
	if line.Command.Name != CopyName {
		line.Title = a.title()
	}
	mine := OptionsOf(line.Command.Flags)
	for _, g := range a.options {
		if g.key == "h" && line.Title == "" && a.isCopy() {
			continue // rsync's -h is for readable numbers, which gdrcp prints anyway
		}
		if g.is.name == HelpName {
			line.Help = true
			continue
		}
		text, err := g.forCLI(mine, line.Title)
		if err != nil {
			return nil, err
		}
		line.Args = append(line.Args, text)
	}
	if len(line.Command.Subcommands) > 0 && !line.Help {
		return nil, UsageErrorf("gdrcp %s needs one of: %s", line.Title, commandNames(Visible(line.Command.Subcommands), ", "))
	}
	line.Args = append(append(line.Args, "--"), a.operands...)
	return line, nil
}

// isCopy reports whether the line asks for a copy. It does so with one operand, too, where
// it has more options than -h: "-avh $SRC $DST" of a script that forgot to set DST must not
// end well.
func (a *arguments) isCopy() bool {
	return len(a.operands) > 1 || len(a.operands) == 1 && len(a.options) > 1
}

// takeWords gives the operands help, help COMMAND... and version the meaning that they
// have in other programs. A file of such a name is written ./help, or stands after
// "--".
func (a *arguments) takeWords(commands []*cli.Command) {
	if len(a.commands) > 0 || len(a.operands) == 0 || a.literal {
		return
	}
	word, rest := a.operands[0], a.operands[1:]
	switch {
	case word == HelpName:
		var of []*cli.Command
		for _, name := range rest {
			c := FindCommand(commands, name)
			if c == nil {
				return
			}
			of, commands = append(of, c), c.Subcommands
		}
		a.commands = of
	case word == VersionName && len(rest) == 0:
	default:
		return
	}
	a.operands = nil
	a.options = append(a.options, given{is: Option{name: word}, key: word})
}

// Options returns the options of the command line, as --NAME or --NAME=VALUE, without
// its words and operands.
func (l *Line) Options() []string {
	first := slices.IndexFunc(l.Args, func(a string) bool { return strings.HasPrefix(a, "--") })
	return l.Args[first:][:slices.Index(l.Args[first:], "--")]
}
