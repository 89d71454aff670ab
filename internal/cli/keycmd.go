package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/trust"

	"github.com/urfave/cli/v2"
)

// keyRun is one run of a key command.
type keyRun struct {
	*program
	keyFile, accessFile string
	root                string
	readOnly            bool
	requireEncrypt      bool
	allAttributes       bool
	maxSessions         int
	bytesPerSecond      int64

	console *console
}

func (p *program) keyCommand() *cli.Command {
	k := &keyRun{program: p, console: p.newConsole()}
	access := &cli.StringFlag{Name: "access-file", Usage: "`FILE` the access file: the keys that gdrcp serve reads", Destination: &k.accessFile}
	return &cli.Command{
		Name: "key", Usage: "make the keys by which servers admit clients", ArgsUsage: "new|list ...",
		Description: "A server admits only clients that hold a key. A key has a name and a secret, which both ends share.",
		Subcommands: []*cli.Command{
			{
				Name: "new", Usage: "make a key", ArgsUsage: "[OPTIONS] ID", Action: action(k.create),
				Description: "Makes a key and writes it to a file for the client. With --access-file and --root the access file gets the\n" +
					"line that admits the key. With --root alone that line is printed. Other users can read neither file.",
				Flags: about(topicAccess,
					&cli.StringFlag{Name: "key-file", Usage: "`FILE` where to write the key for the client; it must not exist yet (ID.key)", Destination: &k.keyFile},
					access,
					&cli.StringFlag{Name: "root", Usage: "`DIR` the directory that the key opens", Destination: &k.root},
					&cli.BoolFlag{Name: "read-only", Usage: "the key is for reading only", Destination: &k.readOnly},
					&cli.BoolFlag{Name: "require-encrypt", Usage: "the key admits only clients that use --encrypt", Destination: &k.requireEncrypt},
					&cli.BoolFlag{Name: "all-attributes", Usage: "who reads with the key gets extended attributes of all namespaces that the server can read, and not only those of user", Destination: &k.allAttributes},
					checkedFlag("max-sessions", "`N` how many sessions of the key may run at once: 1 to 65536", number(&k.maxSessions, 1, trust.MaxSessionsOfKey)),
					checkedFlag("rate", "`SIZE` how many bytes a second its sessions may move together, from 1KiB on", size(&k.bytesPerSecond, 1<<10, 1<<50, 1)),
				),
			},
			{
				Name: "list", Usage: "list what keys allow", ArgsUsage: "[--access-file FILE]", Action: action(k.list),
				Description: "Prints what an access file allows each key, without the secrets.",
				Flags:       about(topicAccess, access),
			},
		},
	}
}

// create makes a key. It writes the client's file first: a key that only the server
// knows would admit nobody, but would appear to work.
func (k *keyRun) create(ctx context.Context, operands []string) error {
	if len(operands) != 1 {
		return args.UsageErrorf("gdrcp key new needs 1 operand: ID, the name of the key")
	}
	id := operands[0]
	if err := trust.CheckID(id); err != nil {
		return args.UsageErrorf("%s: %v", args.Quote(id), err)
	}
	if err := k.checkRoot(); err != nil {
		return err
	}
	if k.keyFile == "" {
		k.keyFile = "./" + id + ".key"
	}
	key, err := trust.NewKey(id)
	if err != nil {
		return err
	}
	err = key.WriteFile(k.keyFile)
	if errors.Is(err, fs.ErrExist) {
		return &hintedError{err, "a key that is written over is lost: --key-file FILE names another file"}
	}
	if err != nil {
		return err
	}
	var unsynced error // the server's file has the key, but a crash could still lose it
	if k.root != "" {
		permit := trust.Permit{
			Key: key, Root: k.root, ReadOnly: k.readOnly, RequireEncrypt: k.requireEncrypt, AllAttributes: k.allAttributes, MaxSessions: k.maxSessions, BytesPerSecond: k.bytesPerSecond,
		}
		if unsynced = k.admit(ctx, permit); unsynced != nil && !errors.Is(unsynced, trust.ErrUnsynced) {
			return errors.Join(unsynced, os.Remove(k.keyFile))
		}
	}
	k.console.line("gdrcp: key %s is in %s: the client needs that file, by --key-file or "+keyFileVariable, id, args.Quote(k.keyFile))
	return unsynced
}

// checkRoot turns --root into a path that the access file can contain.
func (k *keyRun) checkRoot() (err error) {
	if k.root != "" && k.accessFile == "" {
		k.accessFile = k.getenv(accessFileVariable)
	}
	limited := k.readOnly || k.requireEncrypt || k.allAttributes || k.maxSessions > 0 || k.bytesPerSecond > 0
	switch {
	case k.root != "":
		k.root, err = filepath.Abs(k.root)
		return err
	case k.accessFile != "":
		return args.UsageErrorf("--access-file needs --root DIR, the directory that the key opens")
	case limited:
		return args.UsageErrorf("options about what the key may do need --root DIR, the directory that the key opens")
	}
	return nil
}

// admit adds the key to the access file, or prints the line to add.
func (k *keyRun) admit(ctx context.Context, permit trust.Permit) error {
	if k.accessFile == "" {
		return permit.WriteLine(k.stdout)
	}
	if err := trust.AppendAccess(ctx, k.accessFile, permit); err != nil {
		return err
	}
	k.console.line("gdrcp: %s admits the key; a running server reads that file anew on SIGHUP", args.Quote(k.accessFile))
	return nil
}

// list prints the access file.
func (k *keyRun) list(_ context.Context, operands []string) error {
	if len(operands) > 0 {
		return args.UsageErrorf("gdrcp key list takes no operand, and got %s", args.Quote(operands[0]))
	}
	if k.accessFile == "" {
		k.accessFile = k.getenv(accessFileVariable)
	}
	if k.accessFile == "" {
		return args.UsageErrorf("gdrcp key list needs --access-file FILE")
	}
	k.onlyPrints = true
	access, err := trust.InspectAccess(k.accessFile)
	if err != nil {
		return err
	}
	width := 0
	for _, p := range access.Permits() {
		width = max(width, len(p.ID))
	}
	for _, p := range access.Permits() {
		if _, err := fmt.Fprintf(k.stdout, "%-*s  %s\n", width, p.ID, permitText(p)); err != nil {
			return err
		}
	}
	return nil
}

// permitText describes what a key permits.
func permitText(p trust.Permit) string {
	text := []string{"read and write", args.Quote(p.Root)}
	if p.ReadOnly {
		text[0] = "read"
	}
	if p.MaxSessions > 0 {
		text = append(text, fmt.Sprintf("max-sessions=%d", p.MaxSessions))
	}
	if p.BytesPerSecond > 0 {
		text = append(text, "rate="+sizeText(p.BytesPerSecond))
	}
	if p.RequireEncrypt {
		text = append(text, "require-encrypt")
	}
	if p.AllAttributes {
		text = append(text, "all-attributes")
	}
	return strings.Join(text, "  ")
}
