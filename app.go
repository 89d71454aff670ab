package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"

	"gdrcp/manifest"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// app is the command line as cli sees it: copying is a command like the others,
// that users cannot name.
func (p *program) app() *cli.App {
	app := &cli.App{
		Name: "gdrcp", Writer: p.stdout, ErrWriter: p.stderr,
		HideHelp: true, HideVersion: true, HideHelpCommand: true, DisableSliceFlagSeparator: true,
		// Errors come back from RunContext; nothing exits or prints on its way.
		ExitErrHandler: func(*cli.Context, error) {},
	}
	app.Commands = []*cli.Command{p.copyCommand(), p.serveCommand(), p.manifestCommand(), p.devicesCommand(), p.benchCommand()}
	adopt(app.Commands)
	return app
}

// adopt makes errors of commands ours to tell.
func adopt(commands []*cli.Command) {
	for _, c := range commands {
		c.HideHelp, c.HideHelpCommand = true, true
		c.OnUsageError = func(_ *cli.Context, err error, _ bool) error { return badValue(err) }
		adopt(c.Subcommands)
	}
}

// number is a whole number within bounds.
func number(to *int, least, most int) *checked {
	return &checked{set: func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return fmt.Errorf("not a number from %d to %d", least, most)
		}
		*to = n
		return nil
	}}
}

// size is a number of bytes within bounds, a multiple of step.
func size[T int | int64](to *T, least, most, step int64) *checked {
	return &checked{set: func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if n < least || n > most || n%step != 0 {
			return fmt.Errorf("not from %s to %s in steps of %s", sizeText(least), sizeText(most), sizeText(step))
		}
		*to = T(n)
		return nil
	}}
}

// word is one of several words.
func word(to *string, words ...string) *checked {
	return &checked{set: func(s string) error {
		for _, w := range words {
			if s == w {
				*to = s
				return nil
			}
		}
		return fmt.Errorf("not one of %s", strings.Join(words, ", "))
	}}
}

// hash is the name of a digest algorithm.
func hash(to *manifest.Algorithm) *checked {
	return &checked{set: func(s string) (err error) {
		if *to, err = manifest.ParseAlgorithm(s); err != nil {
			return fmt.Errorf("not one of xxh3, blake3, crc32c, sha256")
		}
		return nil
	}}
}

func compression(to *xfer.Compress) *checked {
	return &checked{set: func(s string) (err error) {
		if *to, err = xfer.ParseCompress(s); err != nil {
			return fmt.Errorf("not one of off, zstd, s2, auto")
		}
		return nil
	}}
}

// checkedFlag is an option whose value is checked where it is read. usage
// names the value in back quotes, as package flag has it.
func checkedFlag(name, usage string, v *checked) *cli.GenericFlag {
	return &cli.GenericFlag{Name: name, Usage: usage, Value: v}
}

// linkFlags are the options about what carries a session.
func linkFlags(o *xfer.Options, require cli.Flag) []cli.Flag {
	var imm string
	return []cli.Flag{
		checkedFlag("transport", "`auto|verbs|tcp` auto, the default, takes verbs where an RDMA device reaches the peer, else tcp, and says why",
			word(&o.Transport, "auto", "verbs", "tcp")),
		require,
		&cli.StringFlag{Name: "rail", Usage: "`DEV|ADDR` the local RDMA device, by its name or an address", Destination: &o.Rail},
		checkedFlag("qps", "`N` queue pairs, or TCP connections, of the session: 1 to 16 (1)", number(&o.QPs, 1, xfer.MaxQPs)),
		checkedFlag("chunk-size", "`SIZE` of a slot, which is what is sent at once: 64KiB to 64MiB in steps of 64KiB (1MiB). A copy's\n"+
			helpIndent+"holds a piece, which is of 1MiB unless --manifest says otherwise",
			size(&o.ChunkBytes, xfer.MinChunkBytes, xfer.MaxChunkBytes, 64<<10)),
		checkedFlag("slots", "`N` slots in the ring at each end: 1 to 256; slots times chunk size is at most 1GiB (16)", number(&o.Slots, 1, xfer.MaxSlots)),
		&cli.GenericFlag{Name: "imm", Hidden: true, Value: &checked{set: func(s string) error {
			o.ForceImmSend = s == "send"
			return word(&imm, "auto", "send").set(s)
		}}},
	}
}

// checkRing holds the ring against its bound.
func checkRing(o *xfer.Options) error {
	slots, chunk := cmp.Or(o.Slots, xfer.DefaultSlots), cmp.Or(o.ChunkBytes, xfer.DefaultChunkBytes)
	if slots*chunk > xfer.MaxRingBytes {
		return usageError("%d slots of %s are a ring of %s, more than %s", slots, sizeText(int64(chunk)), sizeText(int64(slots*chunk)), sizeText(xfer.MaxRingBytes))
	}
	return nil
}

// versionFlag is answered by the copy command, which is what gdrcp is without
// the name of another.
func versionFlag() cli.Flag { return &cli.BoolFlag{Name: "version", Usage: "print the version"} }

// exitCodesText explains the exit codes.
const exitCodesText = `Exit codes:
  0    ok
  1    error: it did not come to its end, or what it had to tell could not be written
  2    usage: the command line makes no sense
  3    some files were not copied, or not read: unreadable, not writable, or changed while they were read
  4    integrity: something did not match its digest or the manifest, a manifest is damaged, or manifests differ
  5    not supported here: no RDMA device, or not one that can do it
  130  interrupted (serve ends with 0 then)
`

// writeHelp writes what there is to know of a command.
func writeHelp(w io.Writer, app *cli.App, line *ordered) {
	c := line.command
	if line.title == "" {
		fmt.Fprint(w, "gdrcp copies files and directory trees between hosts over RDMA or TCP and verifies every piece.\n\n")
	}
	fmt.Fprintf(w, "Usage: %s\n", strings.Join(strings.Fields("gdrcp "+line.title+" "+c.ArgsUsage), " "))
	if line.title == "" {
		for _, other := range app.Commands {
			if other.Name != copyName {
				fmt.Fprintf(w, "       gdrcp %s %s\n", other.Name, other.ArgsUsage)
			}
		}
	}
	if c.Description != "" {
		fmt.Fprintf(w, "\n%s\n", c.Description)
	}
	for _, sub := range c.Subcommands {
		fmt.Fprintf(w, "\ngdrcp %s %s %s\n    %s\n", line.title, sub.Name, sub.ArgsUsage, strings.ReplaceAll(sub.Description, "\n", "\n    "))
	}
	if len(c.Subcommands) > 0 {
		fmt.Fprintf(w, "\nThe options of each: gdrcp %s %s --help, and so on.\n", line.title, c.Subcommands[0].Name)
	}
	if len(c.Subcommands) == 0 {
		fmt.Fprint(w, "\nOptions, anywhere among the operands (-- ends them):\n")
		for _, f := range append(c.Flags, &cli.BoolFlag{Name: helpName, Aliases: []string{"h"}, Usage: "this text"}) {
			writeOption(w, f)
		}
	}
	fmt.Fprintf(w, "\n%s", exitCodesText)
}

// helpIndent stands before what is told of an option.
const helpIndent = "                            "

// writeOption writes a line or two about an option. What its usage has in back
// quotes is its value; at the beginning, it is not part of the text.
func writeOption(w io.Writer, f cli.Flag) {
	doc, ok := f.(cli.DocGenerationFlag)
	if hidden, canHide := f.(cli.VisibleFlag); !ok || canHide && !hidden.IsVisible() {
		return
	}
	var names []string
	for _, n := range f.Names() {
		dashes := "--"
		if len(n) == 1 {
			dashes = "-"
		}
		names = append([]string{dashes + n}, names...)
	}
	left, usage := "  "+strings.Join(names, ", "), doc.GetUsage()
	if before, rest, found := strings.Cut(usage, "`"); found {
		value, after, _ := strings.Cut(rest, "`")
		left, usage = left+" "+value, before+value+after
		if before == "" {
			usage = strings.TrimSpace(after)
		}
	}
	if len(left) > 26 {
		fmt.Fprintf(w, "%s\n%s%s\n", left, helpIndent, usage)
		return
	}
	fmt.Fprintf(w, "%-*s%s\n", len(helpIndent), left, usage)
}

// action adapts a method to cli.
func action(do func(ctx context.Context, operands []string) error) cli.ActionFunc {
	return func(c *cli.Context) error { return do(c.Context, c.Args().Slice()) }
}
