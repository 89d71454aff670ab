package args

import (
	"slices"

	"github.com/urfave/cli/v2"
)

// Line is a command line in the order that cli needs, because cli stops at the first
// operand: the command, its options by their long names, "--", operands.
type Line struct {
	Args    []string // the program's name first
	Options []string // of Args, as --NAME or --NAME=VALUE
	Command *cli.Command
	Title   string // the command's words; "" for copying
	Help    bool   // the user asked for help,
	HelpAll bool   // for all of it
}

// Arrange puts args, which do not include the program's name, in order. Its errors wrap ErrUsage.
func Arrange(app *cli.App, args []string) (*Line, error) {
	a, err := scan(args, app.Commands)
	if err != nil {
		return nil, err
	}
	a.takeWords(app.Commands)
	line := &Line{Args: []string{app.Name}, Title: a.title()}
	if len(a.commands) == 0 {
		a.commands = []*cli.Command{FindCommand(app.Commands, CopyName)}
	}
	for _, line.Command = range a.commands {
		line.Args = append(line.Args, line.Command.Name)
	}
	mine := OptionsOf(line.Command.Flags)
	for _, g := range a.options {
		switch {
		case g.key == "h" && line.Title == "" && a.isCopy(): // rsync's -h is for readable numbers, which gdrcp prints anyway
		case g.is.name == HelpName, g.is.name == HelpAllName:
			line.Help, line.HelpAll = true, line.HelpAll || g.is.name == HelpAllName
		default:
			text, err := g.forCLI(mine, line.Title)
			if err != nil {
				return nil, err
			}
			line.Options = append(line.Options, text)
		}
	}
	if len(line.Command.Subcommands) > 0 && !line.Help {
		return nil, UsageErrorf("gdrcp %s needs one of: %s", line.Title, commandNames(Visible(line.Command.Subcommands), ", "))
	}
	line.Args = slices.Concat(line.Args, line.Options, []string{"--"}, a.operands)
	return line, nil
}

// forCLI returns the option in cli's form. mine are the options of the command title.
// The option may have been read before the command was known.
func (g *given) forCLI(mine map[string]Option, title string) (string, error) {
	o, ok := mine[g.key]
	switch {
	case !ok:
		return "", unknownOption(Dashed(g.key), g.key, title, mine)
	case o.takesValue != g.is.takesValue:
		return "", UsageErrorf("option %s must follow gdrcp %s: before that it is another option", Dashed(g.key), title)
	case o.takesValue && g.value == "": // "$FILE" in a script that forgot to set it
		return "", UsageErrorf("option %s has an empty value", Dashed(g.key))
	case o.negated && g.hasValue:
		return "", UsageErrorf("option %s takes no value", Dashed(g.key))
	case o.negated:
		return "--" + o.name + "=false", nil
	case g.hasValue:
		return "--" + o.name + "=" + g.value, nil
	}
	return "--" + o.name, nil
}

// isCopy reports whether the line asks for a copy. A line with one operand and options other than
// -h does, too: a script that forgot to set DST in "-avh $SRC $DST" must fail.
func (a *arguments) isCopy() bool {
	return len(a.operands) > 1 || len(a.operands) == 1 && len(a.options) > 1
}

// takeWords gives the operands help, help COMMAND... and version the meaning that they
// have in other programs. A file of such a name is written ./help, or follows "--".
func (a *arguments) takeWords(commands []*cli.Command) {
	if len(a.commands) > 0 || len(a.operands) == 0 || a.literal {
		return
	}
	word, rest := a.operands[0], a.operands[1:]
	var of []*cli.Command
	for _, name := range rest {
		c := FindCommand(commands, name)
		if word != HelpName || c == nil {
			return
		}
		of, commands = append(of, c), c.Subcommands
	}
	if word == HelpName || word == VersionName {
		a.commands, a.operands = of, nil
		a.options = append(a.options, given{is: Option{name: word}, key: word})
	}
}
