package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/cmdline"

	"github.com/urfave/cli/v2"
)

func (p *program) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a script that completes command lines in a shell", ArgsUsage: strings.Join(cmdline.Shells(), "|"), Action: action(p.writeCompletion),
		Description: "Prints a script for a shell. bash: source <(gdrcp completion bash) in ~/.bashrc; zsh: the same with zsh in ~/.zshrc, behind compinit; " +
			"fish: gdrcp completion fish > ~/.config/fish/completions/gdrcp.fish. make install puts them where the shells look.",
	}
}

func (p *program) writeCompletion(_ context.Context, operands []string) error {
	p.onlyPrints = true
	if len(operands) > 1 && operands[0] == "words" { // called by a completion script
		from, found := cmdline.Complete(describe(p.app()), operands[1:])
		fmt.Fprintln(p.stdout, from)
		for _, c := range found {
			fmt.Fprintf(p.stdout, "%s\t%s\n", c.Term, c.Text)
		}
		return nil
	}
	if len(operands) != 1 || !slices.Contains(cmdline.Shells(), operands[0]) {
		return args.UsageErrorf("gdrcp completion needs one operand: the shell, %s", strings.Join(cmdline.Shells(), ", "))
	}
	text, err := cmdline.Script(operands[0])
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(text)
	return err
}
