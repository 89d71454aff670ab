package args

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// given is an option among the arguments.
type given struct {
	is       Option
	key      string // its name as the user wrote it
	value    string
	hasValue bool
}

// written returns the option as the user wrote it, for messages.
func (g *given) written() string { return Dashed(g.key) }

// forCLI returns the option in cli's form. mine are the options of the command title.
// The option may have been read before the command was known.
func (g *given) forCLI(mine map[string]Option, title string) (string, error) {
	o, ok := mine[g.key]
	switch {
	case !ok && title == "" && Elsewhere(g.key) != nil:
		return "", Elsewhere(g.key)
	case !ok:
		return "", unknownOption(g.written(), title, mine)
	case o.takesValue != g.is.takesValue:
		return "", UsageErrorf("option %s must follow gdrcp %s: before that it is another option", g.written(), title)
	case o.takesValue && g.value == "": // "$FILE" in a script that forgot to set it
		return "", UsageErrorf("option %s has an empty value", g.written())
	case o.negated && g.hasValue:
		return "", UsageErrorf("option %s takes no value", g.written())
	case o.negated:
		return "--" + o.name + "=false", nil
	case g.hasValue:
		return "--" + o.name + "=" + g.value, nil
	}
	return "--" + o.name, nil
}

// arguments are sorted into the words of the command, options and operands.
type arguments struct {
	commands []*cli.Command // manifest and create; none for copying
	options  []given
	operands []string
	literal  bool        // all operands stand after "--": none is a word of gdrcp's own
	ssh      []sshOption // options that look like ssh's, see settleSSH

	known map[string]Option // the options of the commands that are still possible
	next  []*cli.Command    // commands that the next operand can name
	// likely are the options to suggest: those of the command or, while no command is
	// named, those of copying.
	likely map[string]Option
}

// scan sorts args. Options may stand anywhere before "--". The argument after an option
// that takes a value is its value, whatever it looks like. If the first operand is the
// name of a command, it is the command. Options before it are read as those of copying,
// if copying has them.
func scan(args []string, commands []*cli.Command) (*arguments, error) {
	a := &arguments{known: EveryOption(commands), next: commands}
	if copying := FindCommand(commands, CopyName); copying != nil {
		a.likely = OptionsOf(copying.Flags)
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

// title returns the words of the command; "" for copying.
func (a *arguments) title() string { return commandNames(a.commands, " ") }

// operand takes a word of the command, or an operand.
func (a *arguments) operand(arg string) error {
	named := FindCommand(a.next, arg)
	switch {
	case named != nil:
		a.commands = append(a.commands, named)
		a.known, a.next = EveryOption([]*cli.Command{named}), named.Subcommands
		a.likely = a.known
	case len(a.commands) > 0 && len(a.next) > 0:
		return UsageErrorf("gdrcp %s has no command %s: it needs one of: %s", a.title(), Quote(arg), commandNames(Visible(a.next), ", "))
	default:
		a.operands, a.next = append(a.operands, arg), nil
	}
	return nil
}

// long reads --name, --name=value or --name value, and returns the arguments that are
// left.
func (a *arguments) long(arg string, rest []string) ([]string, error) {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	o, ok := a.known[name]
	if len(name) == 1 {
		return nil, unknownOption("--"+name, a.title(), a.likely)
	}
	if !ok {
		return nil, a.unknown("--"+name, name)
	}
	g := given{is: o, key: name, value: value, hasValue: hasValue}
	if o.takesValue && !hasValue {
		if len(rest) == 0 {
			return nil, UsageErrorf("option --%s needs a value", name)
		}
		g.value, g.hasValue, rest = rest[0], true, rest[1:]
	}
	a.options = append(a.options, g)
	return rest, nil
}

// unknown returns the error of an unknown option.
func (a *arguments) unknown(written, name string) error {
	if len(a.commands) == 0 {
		if err := Elsewhere(name); err != nil {
			return err
		}
	}
	likely := a.likely
	if len(name) == 1 {
		likely = nil
	}
	return unknownOption(written, a.title(), likely)
}

// short reads -r, -rp, -oFILE or -o FILE, and returns the arguments that are left.
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
		g := given{is: o, key: name}
		if o.takesValue {
			g.value, g.hasValue = arg[i+1:], true
			if g.value == "" {
				if len(rest) == 0 {
					return nil, UsageErrorf("option -%s needs a value", name)
				}
				g.value, rest = rest[0], rest[1:]
			}
			i = len(arg)
		}
		a.options = append(a.options, g)
	}
	return rest, nil
}
