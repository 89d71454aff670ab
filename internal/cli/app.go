package cli

import (
	"context"
	"io"
	"strings"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/cmdline"

	"github.com/urfave/cli/v2"
)

// app returns the command line in cli's form. There, copying is a command like the
// others, but users cannot name it.
func (p *program) app() *cli.App {
	app := &cli.App{
		Name: "gdrcp", Version: p.versionText(), Writer: p.stdout, ErrWriter: p.stderr,
		HideHelp: true, HideVersion: true, HideHelpCommand: true, DisableSliceFlagSeparator: true,
		// RunContext returns errors. It must neither exit nor print before that.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	app.Commands = []*cli.Command{p.copyCommand(), p.serveCommand(), p.manifestCommand(), p.devicesCommand(), p.cleanCommand(), p.benchCommand(), p.keyCommand(), p.completionCommand(), p.manPagesCommand(), p.referenceCommand(), p.farEndCommand()}
	useOwnErrors(app.Commands)
	return app
}

// useOwnErrors makes every command return its usage errors instead of printing them.
func useOwnErrors(commands []*cli.Command) {
	for _, c := range commands {
		c.HideHelp, c.HideHelpCommand = true, true
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return badValue(err) }
		useOwnErrors(c.Subcommands)
	}
}

// versionFlag is an option of the copy command, which runs when no other command is
// named.
func versionFlag() cli.Flag { return &cli.BoolFlag{Name: args.VersionName, Usage: "print the version"} }

// writeHelp writes the help of a command, which may be hidden.
func writeHelp(w io.Writer, app *cli.App, line *args.Line) error {
	return cmdline.Help(w, describe(app), describeCommand(line.Command, strings.TrimSpace(app.Name+" "+line.Title)), line.HelpAll)
}

// action adapts a method to cli.
func action(do func(ctx context.Context, operands []string) error) cli.ActionFunc {
	return func(c *cli.Context) error { return do(c.Context, c.Args().Slice()) }
}
