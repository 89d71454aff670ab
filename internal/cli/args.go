package cli

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
)

// copyName is the command that stands for no command: cli sees it, users
// cannot name it.
const copyName = "\x00copy"

// helpName is the option that every command has. It is answered before cli
// sees it, which would write its own text.
const helpName = "help"

// versionName is the option that copying has.
const versionName = "version"

// option is what has to be known of an option to put arguments in order.
type option struct {
	name       string // the first of its names
	takesValue bool
	negated    bool // its --no-NAME
	hidden     bool // not for people
}

func optionsOf(flags []cli.Flag) map[string]option {
	m := map[string]option{"help": {name: helpName}, "h": {name: helpName}}
	for _, f := range flags {
		first := f.Names()[0]
		for _, n := range f.Names() {
			m[n] = option{name: first, takesValue: takesValue(f), hidden: isHidden(f)}
			if negatable(f) {
				m["no-"+n] = option{name: first, negated: true}
			}
		}
	}
	return m
}

func isHidden(f cli.Flag) bool {
	v, ok := f.(cli.VisibleFlag)
	return ok && !v.IsVisible()
}

// everyOption collects the options of all commands; of those of one name, that
// of the first command counts.
func everyOption(commands []*cli.Command) map[string]option {
	all := make(map[string]option)
	add := func(options map[string]option) {
		for n, o := range options {
			if _, has := all[n]; !has {
				all[n] = o
			}
		}
	}
	for _, c := range commands {
		add(optionsOf(c.Flags))
		add(everyOption(c.Subcommands))
	}
	return all
}

// given is an option as it was found among the arguments.
type given struct {
	option
	key      string // its name as the user wrote it
	value    string
	hasValue bool
}

// written is the option as the user wrote it, for messages.
func (g *given) written() string { return dashed(g.key) }

// dashed is an option's name with its dashes.
func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// arguments are sorted into the words of the command, options and operands.
type arguments struct {
	commands []*cli.Command // manifest and create; none for copying
	options  []given
	operands []string
	literal  bool        // all operands stand behind "--": none is a word of gdrcp's own
	ssh      []sshOption // that look like ssh's, see settleSSH

	known map[string]option // the options of the commands that it can still be
	next  []*cli.Command    // what the next operand can name
	// likely are the options to suggest: those of the command, and as long as none is
	// named those of copying.
	likely map[string]option
}

// scan sorts args. Options may stand anywhere before "--"; what follows an
// option that takes a value is its value, whatever it looks like. An operand
// that comes first and is named like a command is the command. Options before
// it are read as those of copying, if that has such.
func scan(args []string, commands []*cli.Command) (*arguments, error) {
	a := &arguments{known: everyOption(commands), next: commands}
	if copying := findCommand(commands, copyName); copying != nil {
		a.likely = optionsOf(copying.Flags)
	}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		var err error
		switch {
		case arg == "--":
			a.literal = len(a.operands) == 0
			a.operands = append(a.operands, args...)
			return a, a.settleSSH()
		case strings.HasPrefix(arg, "--"):
			args, err = a.long(arg, args)
		case len(arg) > 1 && arg[0] == '-':
			args, err = a.short(arg, args)
		default:
			err = a.operand(arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return a, a.settleSSH()
}

// title is the words of the command; "" for copying.
func (a *arguments) title() string { return commandNames(a.commands, " ") }

// operand takes a word of the command, or an operand.
func (a *arguments) operand(arg string) error {
	named := findCommand(a.next, arg)
	switch {
	case named != nil:
		a.commands = append(a.commands, named)
		a.known, a.next = everyOption([]*cli.Command{named}), named.Subcommands
		a.likely = a.known
	case len(a.commands) > 0 && len(a.next) > 0:
		return usageError("gdrcp %s has no %s: it needs one of: %s", a.title(), quoteArg(arg), commandNames(visible(a.next), ", "))
	default:
		a.operands, a.next = append(a.operands, arg), nil
	}
	return nil
}

// long reads --name, --name=value or --name value and returns what is left.
func (a *arguments) long(arg string, rest []string) ([]string, error) {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	o, ok := a.known[name]
	if len(name) == 1 {
		return nil, unknownOption("--"+name, a.title(), a.likely)
	}
	if !ok {
		return nil, a.unknown("--"+name, name)
	}
	g := given{option: o, key: name, value: value, hasValue: hasValue}
	if o.takesValue && !hasValue {
		if len(rest) == 0 {
			return nil, usageError("option --%s needs a value", name)
		}
		g.value, g.hasValue, rest = rest[0], true, rest[1:]
	}
	a.options = append(a.options, g)
	return rest, nil
}

// unknown is the error of an option that is not there by that name.
func (a *arguments) unknown(written, name string) error {
	if len(a.commands) == 0 {
		if err := knownElsewhere(name); err != nil {
			return err
		}
	}
	likely := a.likely
	if len(name) == 1 {
		likely = nil
	}
	return unknownOption(written, a.title(), likely)
}

// short reads -r, -rp, -oFILE or -o FILE and returns what is left.
func (a *arguments) short(arg string, rest []string) ([]string, error) {
	for i := 1; i < len(arg); i++ {
		name := arg[i : i+1]
		o, ok := a.known[name]
		var err error
		if !ok {
			err = a.unknown(arg, name)
		}
		if s, isSSH := sshOptionOf(name, arg[i+1:], rest); isSSH && len(a.commands) == 0 {
			s.otherwise = err
			a.ssh = append(a.ssh, s)
			if !s.isWord {
				return rest, nil
			}
			err = nil
		}
		if err != nil {
			return nil, err
		}
		if !ok {
			continue
		}
		g := given{option: o, key: name}
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

// ordered is a command line in the order that cli needs, which stops at the
// first operand: the command, its options by their long names, "--", operands.
type ordered struct {
	args    []string
	command *cli.Command
	title   string // the command's words; "" for copying
	help    bool   // the user wants to read about it
}

// arrange puts args in order.
func arrange(app *cli.App, args []string) (*ordered, error) {
	a, err := scan(args, app.Commands)
	if err != nil {
		return nil, err
	}
	a.takeWords(app.Commands)
	if len(a.commands) == 0 {
		a.commands = []*cli.Command{findCommand(app.Commands, copyName)}
	}
	line := &ordered{args: []string{app.Name}, command: a.commands[len(a.commands)-1]}
	for _, c := range a.commands {
		line.args = append(line.args, c.Name)
	}
	if line.command.Name != copyName {
		line.title = a.title()
	}
	mine := optionsOf(line.command.Flags)
	for _, g := range a.options {
		if g.key == "h" && line.title == "" && len(a.operands) > 1 {
			continue // rsync's, which is for numbers as they are written anyway
		}
		if g.name == helpName {
			line.help = true
			continue
		}
		text, err := g.forCLI(mine, line.title)
		if err != nil {
			return nil, err
		}
		line.args = append(line.args, text)
	}
	if len(line.command.Subcommands) > 0 && !line.help {
		return nil, usageError("gdrcp %s needs one of: %s", line.title, commandNames(visible(line.command.Subcommands), ", "))
	}
	line.args = append(append(line.args, "--"), a.operands...)
	return line, nil
}

// takeWords reads the operands help, help COMMAND... and version as what they are
// in other programs. A file of that name is ./help, or stands behind "--".
func (a *arguments) takeWords(commands []*cli.Command) {
	if len(a.commands) > 0 || len(a.operands) == 0 || a.literal {
		return
	}
	word, rest := a.operands[0], a.operands[1:]
	switch {
	case word == helpName:
		var of []*cli.Command
		for _, name := range rest {
			c := findCommand(commands, name)
			if c == nil {
				return
			}
			of, commands = append(of, c), c.Subcommands
		}
		a.commands = of
	case word == versionName && len(rest) == 0:
	default:
		return
	}
	a.operands = nil
	a.options = append(a.options, given{option: option{name: word}, key: word})
}

// options are those of the command line, without its words and operands.
func (l *ordered) options() []string {
	first := slices.IndexFunc(l.args, func(a string) bool { return strings.HasPrefix(a, "--") })
	return l.args[first:][:slices.Index(l.args[first:], "--")]
}

// forCLI is the option as cli is to read it. It may have been read before it
// was known that the options are mine, which are those of title.
func (g *given) forCLI(mine map[string]option, title string) (string, error) {
	o, ok := mine[g.key]
	switch {
	case !ok && title == "" && knownElsewhere(g.key) != nil:
		return "", knownElsewhere(g.key)
	case !ok:
		return "", unknownOption(g.written(), title, mine)
	case o.takesValue != g.takesValue:
		return "", usageError("option %s has to stand behind gdrcp %s: before it, it is another one", g.written(), title)
	case o.takesValue && g.value == "": // "$FILE" of a script that forgot to set it
		return "", usageError("option %s has an empty value", g.written())
	case o.negated && g.hasValue:
		return "", usageError("option %s takes no value", g.written())
	case o.negated:
		return "--" + o.name + "=false", nil
	case g.hasValue:
		return "--" + o.name + "=" + g.value, nil
	}
	return "--" + o.name, nil
}

func findCommand(list []*cli.Command, name string) *cli.Command {
	for _, c := range list {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// visible leaves out the commands that are not for people.
func visible(list []*cli.Command) []*cli.Command {
	return slices.DeleteFunc(slices.Clone(list), func(c *cli.Command) bool { return c.Hidden || c.Name == copyName })
}

func commandNames(list []*cli.Command, between string) string {
	names := make([]string, len(list))
	for i, c := range list {
		names[i] = c.Name
	}
	return strings.Join(names, between)
}
