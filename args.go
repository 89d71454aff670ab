package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// copyName is the command that stands for no command: cli sees it, users
// cannot name it.
const copyName = "\x00copy"

// option is what has to be known of an option to put arguments in order.
type option struct {
	name       string // the first of its names
	takesValue bool
}

func optionsOf(flags []cli.Flag) map[string]option {
	m := make(map[string]option)
	for _, f := range flags {
		_, isBool := f.(*cli.BoolFlag)
		for _, n := range f.Names() {
			m[n] = option{name: f.Names()[0], takesValue: !isBool}
		}
	}
	return m
}

// everyOption collects the options of all commands. An option takes a value in
// all of them or in none, so that arguments can be read before it is known
// which of them is the command.
func everyOption(commands []*cli.Command) map[string]option {
	all := make(map[string]option)
	for _, c := range commands {
		for n, o := range optionsOf(c.Flags) {
			all[n] = o
		}
		for n, o := range everyOption(c.Subcommands) {
			all[n] = o
		}
	}
	return all
}

// given is an option as it was found among the arguments.
type given struct {
	option
	written  string // as the user wrote it, for messages
	value    string
	hasValue bool
}

// arguments are sorted into options and operands. before counts the operands
// that stand before "--".
type arguments struct {
	options  []given
	operands []string
	before   int
}

// scan sorts args. Options may stand anywhere before "--"; what follows an
// option that takes a value is its value, whatever it looks like.
func scan(args []string, known map[string]option) (*arguments, error) {
	var a arguments
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case arg == "--":
			a.before = len(a.operands)
			a.operands = append(a.operands, args...)
			return &a, nil
		case strings.HasPrefix(arg, "--"):
			args, err = a.long(arg, args, known)
		case len(arg) > 1 && arg[0] == '-':
			args, err = a.short(arg, args, known)
		default:
			a.operands = append(a.operands, arg)
		}
		if err != nil {
			return nil, err
		}
	}
	a.before = len(a.operands)
	return &a, nil
}

// long reads --name, --name=value or --name value and returns what is left.
func (a *arguments) long(arg string, rest []string, known map[string]option) ([]string, error) {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	o, ok := known[name]
	if !ok || len(name) == 1 {
		return nil, unknownOption("--"+name, "")
	}
	g := given{option: o, written: "--" + name, value: value, hasValue: hasValue}
	if o.takesValue && !hasValue {
		if len(rest) == 0 {
			return nil, usageError("option --%s needs a value", name)
		}
		g.value, g.hasValue, rest = rest[0], true, rest[1:]
	}
	a.options = append(a.options, g)
	return rest, nil
}

// short reads -r, -rp, -oFILE or -o FILE and returns what is left.
func (a *arguments) short(arg string, rest []string, known map[string]option) ([]string, error) {
	for i := 1; i < len(arg); i++ {
		name := arg[i : i+1]
		o, ok := known[name]
		if !ok {
			return nil, unknownOption(arg, "")
		}
		g := given{option: o, written: "-" + name}
		if o.takesValue {
			g.value, g.hasValue = arg[i+1:], true
			if g.value == "" {
				if len(rest) == 0 {
					return nil, usageError("option -%s needs a value", name)
				}
				g.value, rest = rest[0], rest[1:]
			}
			i = len(arg)
		}
		a.options = append(a.options, g)
	}
	return rest, nil
}

func unknownOption(written, of string) error {
	if of != "" {
		of = " of gdrcp " + of
	}
	return usageError("unknown option %s%s (gdrcp --help lists them)", quoteArg(written), of)
}

// arrange puts args in the order that cli needs, which stops at the first
// operand: the command, its options by their long names, "--", operands. An
// operand that comes first and is named like a command is the command.
func arrange(app *cli.App, args []string) ([]string, error) {
	a, err := scan(args, everyOption(app.Commands))
	if err != nil {
		return nil, err
	}
	out := []string{app.Name}
	command := findCommand(app.Commands, copyName)
	title := ""
	for within := app.Commands; len(within) > 0; within = command.Subcommands {
		var named *cli.Command
		if a.before > 0 {
			named = findCommand(within, a.operands[0])
		}
		if named == nil && title != "" && !a.asksHelp() {
			return nil, usageError("gdrcp %s needs one of: %s", title, commandNames(within))
		}
		if named == nil {
			break
		}
		command, title = named, strings.TrimSpace(title+" "+named.Name)
		out = append(out, named.Name)
		a.operands, a.before = a.operands[1:], a.before-1
	}
	if title == "" {
		out = append(out, copyName)
	}
	mine := optionsOf(command.Flags)
	for _, g := range a.options {
		if mine[g.name].name != g.name {
			return nil, unknownOption(g.written, title)
		}
		text := "--" + g.name
		if g.hasValue {
			text += "=" + g.value
		}
		out = append(out, text)
	}
	return append(append(out, "--"), a.operands...), nil
}

func (a *arguments) asksHelp() bool {
	for _, g := range a.options {
		if g.name == "help" {
			return true
		}
	}
	return false
}

func findCommand(list []*cli.Command, name string) *cli.Command {
	for _, c := range list {
		if c.Name == name {
			return c
		}
	}
	return nil
}

func commandNames(list []*cli.Command) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	return strings.Join(names, ", ")
}

// checked is the value of an option that is parsed, and held against its
// bounds, where it is read.
type checked struct {
	set  func(string) error
	text string
}

// Set implements flag.Value.
func (c *checked) Set(s string) error {
	c.text = s
	return c.set(s)
}

// String implements flag.Value.
func (c *checked) String() string { return c.text }

// badValue turns cli's and package flag's words about a value into ours.
func badValue(err error) error {
	text := err.Error()
	rest, found := strings.CutPrefix(text, "invalid value ")
	value, rest, cut := strings.Cut(rest, " for flag -")
	name, why, named := strings.Cut(rest, ": ")
	if !found || !cut || !named {
		return usageError("%s", text)
	}
	return fmt.Errorf("%w: --%s %s: %s", errUsage, name, value, why)
}
