package args

import (
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// No argument is lost: each is an option, a value, an operand or an error.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"a b -r", "-rp a -- -x", "--qps 4 --slots=8 a", "-oX manifest create p", "--json=true -", "-- --", "-P 22 a h:b", "--recursve a"} {
		f.Add(s)
	}
	commands := []*cli.Command{
		{Name: CopyName, Flags: []cli.Flag{
			&cli.BoolFlag{Name: "recursive", Aliases: []string{"r"}}, &cli.BoolFlag{Name: "perms", Aliases: []string{"p"}}, &cli.BoolFlag{Name: "json"},
			&cli.IntFlag{Name: "qps"}, &cli.IntFlag{Name: "slots"}, &cli.StringFlag{Name: "rsh", Aliases: []string{"e"}},
		}},
		{Name: "manifest", Subcommands: []*cli.Command{{Name: "create", Flags: []cli.Flag{&cli.StringFlag{Name: "output", Aliases: []string{"o"}}}}}},
	}
	f.Fuzz(func(t *testing.T, s string) {
		words := strings.Fields(s)
		a, err := scan(words, commands)
		if err != nil {
			return
		}
		var want int
		for _, g := range a.options {
			want += len(g.value)
		}
		for _, o := range a.operands {
			want += len(o)
		}
		if want > len(strings.Join(words, "")) {
			t.Errorf("%q became %+v", words, a)
		}
		if line, err := Arrange(&cli.App{Name: "gdrcp", Commands: commands}, words); err == nil && (len(line.Args) < 2 || line.Command == nil) {
			t.Errorf("%q became %+v", words, line)
		}
	})
}
