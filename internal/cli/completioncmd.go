package cli

import (
	"context"
	"io"
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
	if len(operands) != 1 || !slices.Contains(cmdline.Shells(), operands[0]) {
		return args.UsageErrorf("gdrcp completion needs one operand: the shell, %s", strings.Join(cmdline.Shells(), ", "))
	}
	text, err := cmdline.Completion(describe(p.app()), operands[0])
	if err != nil {
		return err
	}
	p.onlyPrints = true
	_, err = io.WriteString(p.stdout, text)
	return err
}
