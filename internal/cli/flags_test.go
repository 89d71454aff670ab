package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gdrcp/internal/cli/args"

	"github.com/urfave/cli/v2"
)

// kinds is a command line with one option of each kind, and the values that were set.
type kinds struct {
	recursive, links, owner bool
	output                  string
	rules                   orderedOptions
	ran                     string
}

// run parses args as the program does.
func (k *kinds) run(t *testing.T, words string) error {
	t.Helper()
	ran := func(c *cli.Context) error {
		k.ran = strings.TrimPrefix(c.Command.Name, "\x00") + " " + strings.Join(c.Args().Slice(), " ")
		return nil
	}
	notEmpty := func(s string) error {
		if s == "+" {
			return errors.New("not a rule")
		}
		return nil
	}
	app := &cli.App{Name: "gdrcp", HideHelp: true, HideVersion: true, DisableSliceFlagSeparator: true, ExitErrHandler: func(*cli.Context, error) {}}
	app.Commands = []*cli.Command{
		{Name: args.CopyName, Action: ran, Flags: []cli.Flag{
			onOff("recursive", "", &k.recursive, "r"), onOff("links", "", &k.links, "l"), onOff("owner", "", &k.owner, "o"),
			allOn("archive", "", []*bool{&k.recursive, &k.links, &k.owner}, "a"),
			k.rules.flag("exclude", "`PATTERN`", nil), k.rules.flag("include", "`PATTERN`", nil), k.rules.flag("filter", "`RULE`", notEmpty, "f"),
		}},
		{Name: "manifest", Subcommands: []*cli.Command{
			{Name: "create", Action: ran, Flags: []cli.Flag{checkedFlag("output", "`FILE`", &checkedValue{set: func(s string) error { k.output = s; return nil }}, "o")}},
			{Name: "debug", Hidden: true, Action: ran},
		}},
		{Name: "far-end", Hidden: true, Action: ran},
	}
	useOwnErrors(app.Commands)
	line, err := args.Arrange(app, strings.Fields(words))
	if err == nil {
		err = app.RunContext(t.Context(), line.Args)
	}
	return err
}

// If options contradict each other, the last one wins.
func TestLastSwitchWins(t *testing.T) {
	for _, c := range []struct {
		args string
		want [3]bool // recursive, links, owner
	}{
		{"a b", [3]bool{}},
		{"-r a b", [3]bool{true, false, false}},
		{"-a a b", [3]bool{true, true, true}},
		{"-a --no-o a b", [3]bool{true, true, false}},
		{"--no-o -a a b", [3]bool{true, true, true}},
		{"-a --no-owner a b --no-recursive", [3]bool{false, true, false}},
		{"-ao --no-o --no-l -o a b", [3]bool{true, false, true}},
		{"-r --recursive=false a b", [3]bool{}},
		{"-a -l --no-l -l --no-links a b", [3]bool{true, false, true}},
	} {
		var k kinds
		if err := k.run(t, c.args); err != nil {
			t.Errorf("%s: %v", c.args, err)
		}
		if got := [3]bool{k.recursive, k.links, k.owner}; got != c.want {
			t.Errorf("%s: %v, want %v", c.args, got, c.want)
		}
	}
}

// The values of several options are set once each, in the order of the command line.
func TestRulesInOrder(t *testing.T) {
	var k kinds
	if err := k.run(t, "--exclude a,b --include c x -f f --exclude=a,b y --filter g -fh"); err != nil {
		t.Fatal(err)
	}
	want := []optionValue{{"exclude", "a,b"}, {"include", "c"}, {"filter", "f"}, {"exclude", "a,b"}, {"filter", "g"}, {"filter", "h"}}
	if !slices.Equal(k.rules.given, want) || k.ran != "copy x y" {
		t.Errorf("got %v with %q, want %v", k.rules.given, k.ran, want)
	}
}

// An option may take a value in one command and none in another: the command's name
// decides.
func TestOptionsOfTheCommand(t *testing.T) {
	for _, c := range []struct{ args, ran, output string }{
		{"manifest create -o X p", "create p", "X"},
		{"manifest -oX create p", "create p", "X"},
		{"-o create p", "copy create p", ""},
		{"far-end x", "far-end x", ""},
		{"manifest debug", "debug ", ""},
	} {
		var k kinds
		if err := k.run(t, c.args); err != nil || k.ran != c.ran || k.output != c.output {
			t.Errorf("%s: ran %q with %q: %v", c.args, k.ran, k.output, err)
		}
	}
}

func TestRefusedOptions(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"-o manifest create X", "option -o must follow gdrcp manifest create: before that it is another option"},
		{"-r manifest create X", "unknown option -r of gdrcp manifest create (gdrcp manifest create --help lists them)"},
		{"manifest create -r X", "unknown option -r of gdrcp manifest create (gdrcp manifest create --help lists them)"},
		{"manifest", "gdrcp manifest needs one of: create"},
		{"manifest make", "gdrcp manifest has no command make: it needs one of: create"},
		{"--no-archive a b", "unknown option --no-archive (gdrcp --help lists them)"},
		{"--no-exclude a b", "unknown option --no-exclude (gdrcp --help lists them)"},
		{"--no-owner=true a b", "option --no-owner takes no value"},
		{"-a=no a b", "unknown option -a=no (gdrcp --help lists them)"},
		{"--archive=no a b", `--archive "no": not true or false`},
		{"--exclude= a b", "option --exclude has an empty value"},
		{"--exclude", "option --exclude needs a value"},
		{"-f + a b", `--filter "+": not a rule`},
	} {
		var k kinds
		err := k.run(t, c.args)
		if !errors.Is(err, args.ErrUsage) || lineOf(err) != c.want {
			t.Errorf("%s: %v, want %s", c.args, err, c.want)
		}
	}
}

// Every option has a topic.
func TestEveryOptionHasATopic(t *testing.T) {
	p, _, _ := newProgram()
	var check func(commands []*cli.Command)
	check = func(commands []*cli.Command) {
		for _, c := range commands {
			for _, f := range c.Flags {
				if o, ok := describeOption(f); ok && !slices.Contains(topics(), f.(cli.CategorizableFlag).GetCategory()) {
					t.Errorf("option %s of %q has no topic of flags.go: put it into about(topic...)", o.Names, c.Name)
				}
			}
			check(c.Subcommands)
		}
	}
	check(p.app().Commands)
}

// No two options of a command have the same name, and no name equals another option's
// negation.
func TestOptionNamesAreUnique(t *testing.T) {
	p, _, _ := newProgram()
	var check func(commands []*cli.Command)
	check = func(commands []*cli.Command) {
		for _, c := range commands {
			taken := map[string]string{"help": args.HelpName, "h": args.HelpName}
			for _, f := range c.Flags {
				names := f.Names()
				if args.Negatable(f) {
					for _, n := range f.Names() {
						names = append(names, "no-"+n)
					}
				}
				for _, n := range names {
					if other, has := taken[n]; has {
						t.Errorf("of %q, %s is both --%s and --%s", c.Name, args.Dashed(n), other, f.Names()[0])
					}
					taken[n] = f.Names()[0]
				}
			}
			check(c.Subcommands)
		}
	}
	check(p.app().Commands)
}
