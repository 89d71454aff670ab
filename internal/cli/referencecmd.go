package cli

import (
	"context"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/cmdline"

	"github.com/urfave/cli/v2"
)

// aboutReference is the beginning of docs/cli.md.
const aboutReference = "`gdrcp cli-reference` writes this page from the definitions of the commands, and `make docs` refreshes it: do not edit it.\n\n" +
	"What options do together is told in the guides: [files and deletion](guide/files-and-deletion.md), [servers and keys](guide/servers-and-keys.md),\n" +
	"[transports and GPU memory](guide/transports-and-gpu-memory.md), [verification and manifests](guide/verification-and-manifests.md).\n\n" +
	"Options may stand anywhere among the operands; `--` ends them. The last one of those that contradict each other counts. An\n" +
	"empty value is an error. A file that is named like a command is written `./serve`. [Terms](#terms) are explained below."

// referenceCommand writes docs/cli.md, for `make docs`.
func (p *program) referenceCommand() *cli.Command {
	return &cli.Command{
		Name: "cli-reference", Hidden: true, Usage: "print the reference of the command line", Action: action(p.writeReference),
		Description: "Prints docs/cli.md.",
	}
}

func (p *program) writeReference(_ context.Context, operands []string) error {
	if len(operands) != 0 {
		return args.UsageErrorf("gdrcp cli-reference takes no operand, and got %s", args.Quote(operands[0]))
	}
	p.onlyPrints = true
	return cmdline.Markdown(p.stdout, describe(p.app()), aboutReference)
}
