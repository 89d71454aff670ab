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

// arguments are the arguments, sorted into the words of the command, options and operands.
type arguments struct {
	commands []*cli.Command // such as manifest and create; none for copying
	options  []given
	operands []string
	literal  bool        // all operands follow "--", so none of them is a command's name
	ssh      []sshOption // options that look like ssh's, see settleSSH

	rest  []string          // the remaining arguments
	known map[string]Option // the options of the commands that are still possible
	next  []*cli.Command    // commands that the next operand can name
	// likely are the options to suggest: those of the command or, while no command is
	// named, those of copying.
	likely map[string]Option
}

// scan sorts args. Options may appear anywhere before "--". The argument after an
// option that takes a value is its value, even if it looks like an option. If the first
// operand is the name of a command, it is the command. Options before it are read as
// options of copying, if copying has them.
func scan(args []string, commands []*cli.Command) (*arguments, error) {
	a := &arguments{rest: args, known: EveryOption(commands), next: commands}
	if copying := FindCommand(commands, CopyName); copying != nil {
		a.likely = OptionsOf(copying.Flags)
	}
	for len(a.rest) > 0 {
		arg := a.rest[0]
		a.rest = a.rest[1:]
		var err error
		switch {
		case arg == "--":
			a.literal = len(a.operands) == 0
			a.operands, a.rest = append(a.operands, a.rest...), nil
		case strings.HasPrefix(arg, "--"):
			err = a.long(arg)
		case len(arg) > 1 && arg[0] == '-':
			err = a.short(arg)
		default:
			err = a.operand(arg)
		}
		if err != nil {
			return nil, err
		}
	}
	return a, a.settleSSH()
}

// title returns the words of the command, or "" for copying.
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

// long reads --name, --name=value or --name value.
func (a *arguments) long(arg string) error {
	name, value, hasValue := strings.Cut(arg[2:], "=")
	o, ok := a.known[name]
	if len(name) == 1 {
		return unknownOption("--"+name, "", a.title(), nil)
	}
	if !ok {
		return unknownOption("--"+name, name, a.title(), a.likely)
	}
	return a.take(given{is: o, key: name, value: value, hasValue: hasValue})
}

// take adds an option. Its value may be the next argument.
func (a *arguments) take(g given) error {
	if g.is.takesValue && !g.hasValue {
		if len(a.rest) == 0 {
			return UsageErrorf("option %s needs a value", Dashed(g.key))
		}
		g.value, g.hasValue, a.rest = a.rest[0], true, a.rest[1:]
	}
	a.options = append(a.options, g)
	return nil
}

// short reads -r, -rp, -oFILE or -o FILE.
func (a *arguments) short(arg string) error {
	for i := 1; i < len(arg); i++ {
		name, joined := arg[i:i+1], arg[i+1:]
		o, ok := a.known[name]
		s, isSSH := sshOptionOf(name, joined, a.rest)
		if isSSH = isSSH && len(a.commands) == 0; isSSH && !ok {
			s.otherwise = unknownOption(arg, name, a.title(), a.likely)
		}
		if isSSH {
			if a.ssh = append(a.ssh, s); !s.isWord {
				return nil
			}
		} else if !ok {
			return unknownOption(arg, name, a.title(), a.likely)
		}
		if o.takesValue {
			return a.take(given{is: o, key: name, value: joined, hasValue: joined != ""})
		}
		if ok {
			a.options = append(a.options, given{is: o, key: name})
		}
	}
	return nil
}
