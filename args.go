package main

import (
	"regexp"
	"strings"

	"github.com/urfave/cli/v2"
)

// copyName is the command that stands for no command: cli sees it, users
// cannot name it.
const copyName = "\x00copy"

// helpName is the option that every command has. It is answered before cli
// sees it, which would write its own text.
const helpName = "help"

// option is what has to be known of an option to put arguments in order.
type option struct {
	name       string // the first of its names
	takesValue bool
}

func optionsOf(flags []cli.Flag) map[string]option {
	m := map[string]option{"help": {name: helpName}, "h": {name: helpName}}
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
	if of == "" {
		return usageError("unknown option %s (gdrcp --help lists them)", quoteArg(written))
	}
	return usageError("unknown option %s of gdrcp %s (gdrcp %s --help lists them)", quoteArg(written), of, of)
}

// ordered is a command line in the order that cli needs, which stops at the
// first operand: the command, its options by their long names, "--", operands.
type ordered struct {
	args    []string
	command *cli.Command
	title   string // the command's words; "" for copying
	help    bool   // the user wants to read about it
}

// arrange puts args in order. An operand that comes first and is named like a
// command is the command.
func arrange(app *cli.App, args []string) (*ordered, error) {
	a, err := scan(args, everyOption(app.Commands))
	if err != nil {
		return nil, err
	}
	line := &ordered{args: []string{app.Name}}
	if err := line.find(app.Commands, a); err != nil {
		return nil, err
	}
	if line.command == nil {
		line.command = findCommand(app.Commands, copyName)
		line.args = append(line.args, copyName)
	}
	mine := optionsOf(line.command.Flags)
	for _, g := range a.options {
		if g.name == helpName {
			line.help = true
			continue
		}
		if mine[g.name].name != g.name {
			return nil, unknownOption(g.written, line.title)
		}
		if g.takesValue && g.value == "" { // "$FILE" of a script that forgot to set it
			return nil, usageError("option %s has an empty value", g.written)
		}
		text := "--" + g.name
		if g.hasValue {
			text += "=" + g.value
		}
		line.args = append(line.args, text)
	}
	if len(line.command.Subcommands) > 0 && !line.help {
		return nil, usageError("gdrcp %s needs one of: %s", line.title, commandNames(line.command.Subcommands))
	}
	line.args = append(append(line.args, "--"), a.operands...)
	return line, nil
}

// find takes the words of the command off the operands.
func (l *ordered) find(commands []*cli.Command, a *arguments) error {
	for len(commands) > 0 && a.before > 0 {
		named := findCommand(commands, a.operands[0])
		if named == nil && l.command != nil {
			return usageError("gdrcp %s has no %s: it needs one of: %s", l.title, quoteArg(a.operands[0]), commandNames(commands))
		}
		if named == nil {
			return nil
		}
		l.command, l.title = named, strings.TrimSpace(l.title+" "+named.Name)
		l.args = append(l.args, named.Name)
		a.operands, a.before = a.operands[1:], a.before-1
		commands = named.Subcommands
	}
	return nil
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

// badFlag is how package flag words that a value is refused.
var badFlag = regexp.MustCompile(`^invalid (?:boolean )?value (".*") for (?:flag )?-([a-z-]+): (.*)$`)

// badValue turns the words of cli and of package flag about a value into ours.
func badValue(err error) error {
	m := badFlag.FindStringSubmatch(err.Error())
	if m == nil {
		return usageError("%s", err)
	}
	if m[3] == "parse error" { // of a switch: everything else is parsed here
		m[3] = "not true or false"
	}
	return usageError("--%s %s: %s", m[2], m[1], m[3])
}
