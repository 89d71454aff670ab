package cli

import (
	"context"
	"errors"
	"path/filepath"

	"gdrcp/chunker/dest"
	"gdrcp/internal/cli/args"

	"github.com/urfave/cli/v2"
)

func (p *program) cleanCommand() *cli.Command {
	verbose := false
	return &cli.Command{
		Name: "clean", Usage: "remove what copies that were cut off left behind", ArgsUsage: "[-v] DIR...",
		Description: "Removes from each DIR, and from the directories below it, the partial files and trees that a copy would go on with, and temporary\n" +
			"files. What a copy is writing stays. A copy by itself removes partial files and trees that are 7 days old, where it writes.\n" +
			"On a file system that other hosts may write to (NFS, FUSE, Lustre, CIFS and the like), what has changed within an hour stays, too.\n" +
			"What nobody uses and cannot be removed is told, and the exit code is 1 then.",
		Flags:  about(topicOutput, &cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell every file that is removed", Destination: &verbose}),
		Action: action(func(ctx context.Context, operands []string) error { return p.clean(ctx, operands, verbose) }),
	}
}

func (p *program) clean(ctx context.Context, dirs []string, verbose bool) error {
	if len(dirs) == 0 {
		return args.UsageErrorf("gdrcp clean needs a directory")
	}
	out := p.newConsole()
	var files, bytes int64
	var errs []error
	for _, dir := range dirs {
		errs = append(errs, dest.Clean(ctx, dir, func(path string, nFiles, nBytes int64) {
			files += nFiles
			bytes += nBytes
			if verbose {
				out.line("removed %s", args.Quote(filepath.Join(dir, path)))
			}
		}))
	}
	out.line("removed %s, %s", count(files, "file", "files"), shortBytes(float64(bytes)))
	return errors.Join(errs...)
}
