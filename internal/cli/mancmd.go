package cli

import (
	"context"
	"os"
	"path/filepath"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/cmdline"

	"github.com/urfave/cli/v2"
)

// manPagesCommand writes the manual pages, for `make man`.
func (p *program) manPagesCommand() *cli.Command {
	return &cli.Command{
		Name: "man-pages", Hidden: true, Usage: "write the manual pages", ArgsUsage: "DIR", Action: action(p.writeManPages),
		Description: "Writes the manual pages to DIR, which it makes.",
	}
}

func (p *program) writeManPages(_ context.Context, operands []string) error {
	if len(operands) != 1 {
		return args.UsageErrorf("gdrcp man-pages needs one operand: DIR, where to write them")
	}
	if err := os.MkdirAll(operands[0], 0o777); err != nil {
		return err
	}
	pages, err := cmdline.Pages(describe(p.app()))
	if err != nil {
		return err
	}
	for name, text := range pages {
		if err := os.WriteFile(filepath.Join(operands[0], name), text, 0o666); err != nil {
			return err
		}
	}
	return nil
}
