package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"gdrcp/internal/audit"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// manifesting is one of the manifest commands.
type manifesting struct {
	*program
	audit   audit.Options
	tally   *xfer.Tally // which audit counts in
	choose  choosing
	ssh     sshOptions
	header  manifest.Header
	output  string
	quiet   bool
	json    bool
	asked   bool // by --progress
	console *console
	events  *events
}

func (p *program) manifestCommand() *cli.Command {
	m := &manifesting{program: p, output: "-"}
	m.header = manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	quiet := &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "tell errors and differences only", Destination: &m.quiet}
	asJSON := &cli.BoolFlag{Name: "json", Usage: "one event a line on standard output, as JSON", Destination: &m.json}
	follow := &cli.BoolFlag{Name: "follow", Aliases: []string{"L"}, Usage: "take what symbolic links lead to instead of the links", Destination: &m.audit.Follow}
	progress := onOff("progress", "where standard error is no terminal, too, tell every 10 seconds how far it is", &m.asked)
	chooses := m.choose.flagsWith("`FILE` only what FILE names, a line each, relative to PATH, which is one directory; " +
		"what is in a named directory only with -r. - is standard input")
	recursive := onOff("recursive", "with --files-from: also what is in the directories that it names; without it everything is, at any rate", &m.audit.Recursive, "r")
	return &cli.Command{
		Name: "manifest", Usage: "say what files and trees hold, and check it", ArgsUsage: "create|verify|show|diff ...",
		Description: "Manifests say what a file or a tree holds: its entries and the digests of their pieces.",
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "write a manifest", ArgsUsage: "[OPTIONS] PATH", Action: m.action(1, m.create),
				Description: "Reads PATH and writes its manifest. The root is the one that a copy of PATH shows. Exit code 3 if something could not be\nread: it is left out." + manifestPlaces,
				Flags: slices.Concat(about(topicCheck,
					&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` where to write it (- is standard output, the default; zstd if it ends in .zst)", Destination: &m.output, Value: "-"},
					checkedFlag("hash", "`xxh3|blake3|crc32c|sha256` how pieces are digested (xxh3)", hash(&m.header.Algorithm)),
					checkedFlag("piece-size", "`SIZE` size of a piece, a power of two from 64KiB to 1GiB (1MiB)", pieceSize(&m.header.PieceBytes)),
				), about(topicSelect, follow, recursive), about(topicSelect, chooses...), m.ssh.flags(), about(topicOutput, quiet, progress, asJSON)),
			},
			{
				Name: "verify", Usage: "hold a tree against a manifest", ArgsUsage: "[OPTIONS] MANIFEST PATH", Action: m.action(2, m.verify),
				Description: "Holds PATH against MANIFEST (- is standard input) and names every bad, missing and extra entry, and the byte range of\nevery bad piece. A manifest of one file verifies a file of any name. Exit code 4 if anything differs, 3 if nothing does\nbut something could not be read." + manifestPlaces,
				Flags: slices.Concat(about(topicCheck,
					&cli.BoolFlag{Name: "preserve", Aliases: []string{"p"}, Usage: "compare modes and times of change too", Destination: &m.audit.Preserve},
				), about(topicSelect, follow), about(topicSelect, m.choose.ruleFlags()...), m.ssh.flags(), about(topicOutput, quiet, progress, asJSON)),
			},
			{
				Name: "show", Usage: "print a manifest", ArgsUsage: "[OPTIONS] MANIFEST", Action: m.action(1, m.show),
				Description: "Checks a manifest by itself, and prints its entries and roots, without the digests of pieces.",
				Flags:       about(topicOutput, &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print the last line only", Destination: &m.quiet}),
			},
			{
				Name: "diff", Usage: "compare two manifests", ArgsUsage: "[OPTIONS] A B", Action: m.action(2, m.diff),
				Description: "Compares two manifests. Exit code 4 if they differ.",
				Flags:       about(topicOutput, quiet, asJSON),
			},
		},
	}
}

// manifestPlaces is what is told of a PATH that may be elsewhere.
const manifestPlaces = "\nPATH may be [user@]host:path: gdrcp is started there by ssh and reads the files, and only the manifest and what is told of it travels.\n" +
	"Rules and lists are those of this machine."

func pieceSize(to *int64) *checked {
	return &checked{set: func(s string) error {
		n, err := parseSize(s)
		if err != nil {
			return err
		}
		if manifest.CheckPieceBytes(n) != nil {
			return fmt.Errorf("not a power of two from %s to %s", sizeText(manifest.MinPieceBytes), sizeText(manifest.MaxPieceBytes))
		}
		*to = n
		return nil
	}}
}

// action is do with as many operands as it needs, and with somewhere to tell
// what it finds.
func (m *manifesting) action(operands int, do func(ctx context.Context, operands []string) error) cli.ActionFunc {
	return func(cc *cli.Context) error {
		if cc.NArg() != operands {
			return args.UsageErrorf("gdrcp manifest %s needs %s: %s", cc.Command.Name, count(int64(operands), "operand", "operands"), strings.TrimPrefix(cc.Command.ArgsUsage, "[OPTIONS] "))
		}
		if m.quiet && m.asked {
			return args.UsageErrorf("--quiet and --progress exclude each other")
		}
		m.console = m.newConsole()
		if m.json {
			m.events = newEvents(m.stdout)
		}
		return do(cc.Context, cc.Args().Slice())
	}
}

// follow tells how far it is while files are read, where somebody wants to know.
// dataOnScreen: the terminal shows what is made.
func (m *manifesting) follow(dataOnScreen bool) (end func()) {
	m.tally = &xfer.Tally{}
	m.audit.Tally = m.tally
	w := progressing{console: m.console, events: m.events, asked: m.asked, quiet: m.quiet, screen: m.isTerminal(m.stderr) && !dataOnScreen}
	return w.follow(m.tally)
}

// manifestWriter is where a new manifest goes: standard output or a file.
func (m *manifesting) manifestWriter() (out *manifest.Writer, commit func() error, abort func(), err error) {
	if m.output == "-" {
		out, err = manifest.NewWriter(m.stdout, m.header)
		return out, m.told.settle, func() {}, err
	}
	f, err := manifest.Create(m.output, m.header)
	if err != nil {
		return nil, nil, nil, err
	}
	return f.Writer, func() error { _, err := f.Commit(); return err }, func() { _ = f.Abort() }, nil
}

func (m *manifesting) create(ctx context.Context, operands []string) error {
	if m.output == "-" && m.json {
		return args.UsageErrorf("--json needs -o FILE: the manifest itself goes to standard output")
	}
	where, path, err := m.place(operands[0])
	if err != nil {
		return err
	}
	if m.output == "-" {
		var stop context.CancelFunc
		ctx, stop = m.printing(ctx)
		defer stop()
	}
	if err := m.readRules(); err != nil {
		return err
	}
	if m.audit.Names, err = m.choose.names(); err != nil {
		return err
	}
	defer m.audit.Names.Close()
	out, commit, abort, err := m.manifestWriter()
	if err != nil {
		return err
	}
	defer abort()
	m.audit.Report = func(f audit.Finding) {
		if m.json {
			m.events.emit(differenceEvent{Event: "difference", Path: f.Path, Kind: kindText(f.Kind), Text: f.Text})
		} else {
			m.tellUnread(&f, where)
		}
	}
	end := m.follow(m.output == "-" && m.isTerminal(m.stdout))
	s, err := m.createAt(ctx, where, path, out)
	end()
	if err != nil {
		return err
	}
	if err := commit(); err != nil {
		return err
	}
	if m.json {
		m.events.emit(auditEventOf("created", s))
	} else if !m.quiet {
		m.console.line("manifest of %s: root %s %x", contentText(s), s.Algorithm, s.Content)
	}
	if s.Unreadable > 0 {
		return &ended{exitPartial}
	}
	return nil
}

// openManifest opens a manifest by name, "-" being standard input.
func (m *manifesting) openManifest(name string) (*manifest.Reader, error) {
	if name == "-" {
		return manifest.NewReader(m.stdin)
	}
	return manifest.Open(name)
}

// readRules reads what is left out of a tree, and the files that say so.
func (m *manifesting) readRules() (err error) {
	m.choose.stdin = m.stdin
	m.audit.Rules, err = m.choose.read()
	return err
}

// tellUnread tells of what could not be read, and where if that is another host.
func (m *manifesting) tellUnread(f *audit.Finding, where *sshHost) {
	at := ""
	if where != nil {
		at = " (at " + where.host + ")"
	}
	m.console.line("gdrcp: %s%s", printable.Text(f.Text), at)
}

func (m *manifesting) verify(ctx context.Context, operands []string) error {
	where, path, err := m.place(operands[1])
	if err != nil {
		return err
	}
	if err := m.readRules(); err != nil {
		return err
	}
	if operands[0] == "-" && m.choose.taken != "" {
		return args.UsageErrorf("MANIFEST and --%s cannot both be read from standard input", m.choose.taken)
	}
	r, err := m.openManifest(operands[0])
	if err != nil {
		return err
	}
	m.audit.Report = func(f audit.Finding) {
		switch {
		case m.json:
			m.events.emit(differenceEvent{"difference", f.Path, kindText(f.Kind), f.Differs.String(), rangeFields(f.Ranges), f.Text})
		case f.Kind == audit.Skipped || f.Kind == audit.Unreadable:
			m.tellUnread(&f, where)
		default:
			m.tell("%s", printable.Text(f.Text))
		}
	}
	end := m.follow(false)
	s, err := m.verifyAt(ctx, where, path, r)
	end()
	if err != nil {
		return err
	}
	if m.json {
		m.events.emit(auditEventOf("verified", s))
	} else if !m.quiet {
		m.console.line("%s", verdict(s))
	}
	switch {
	case s.Bad+s.Missing+s.Extra > 0:
		return &ended{exitIntegrity}
	case s.Unreadable > 0:
		return &ended{exitPartial}
	}
	return nil
}

// tell writes a line to standard output, above the bar.
func (m *manifesting) tell(format string, args ...any) {
	m.console.lineTo(m.stdout, format, args...)
}

// verdict is the last line of a verification.
func verdict(s *audit.Summary) string {
	var parts []string
	for _, f := range []struct {
		n    int64
		text string
	}{{s.Bad, "bad"}, {s.Missing, "missing"}, {s.Extra, "extra"}, {s.Unreadable, "unreadable"}} {
		if f.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", f.n, f.text))
		}
	}
	left := ""
	if s.LeftOut > 0 {
		left = fmt.Sprintf("; %s of the manifest left out", count(s.LeftOut, "entry", "entries"))
	}
	switch {
	case len(parts) > 0:
		return fmt.Sprintf("NOT as the manifest says: %s; %s as it should be%s", strings.Join(parts, ", "), contentText(s), left)
	case left != "": // the root is that of more than was looked at
		return fmt.Sprintf("verified %s%s", contentText(s), left)
	}
	return fmt.Sprintf("verified %s: root %s %x", contentText(s), s.Algorithm, s.Content)
}

func contentText(s *audit.Summary) string {
	text := count(s.Files, "file", "files")
	if s.Dirs > 0 {
		text += ", " + count(s.Dirs, "directory", "directories")
	}
	if s.Links > 0 {
		text += ", " + count(s.Links, "link", "links")
	}
	return text + ", " + bytesText(float64(s.Bytes), 1)
}

// show prints a manifest without the digests of pieces: what a person wants to
// see of it. Its lines are those of the manifest, but for files of several
// pieces, which have their root.
func (m *manifesting) show(ctx context.Context, operands []string) error {
	r, err := m.openManifest(operands[0])
	if err != nil {
		return err
	}
	defer r.Close()
	ctx, stop := m.printing(ctx)
	defer stop()
	h := r.Header()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if err := r.SkipPieces(); err != nil && !errors.Is(err, manifest.ErrVoid) {
			return err
		} else if err == nil && !m.quiet {
			m.tell("%s", entryText(e, h.Algorithm))
		}
	}
	s := r.Summary()
	m.tell("%d entries, %s in pieces of %s, root %s %x, meta root %x", s.Entries, bytesText(float64(s.Bytes), 1), sizeText(h.PieceBytes), h.Algorithm, s.Content, s.Meta)
	return nil
}

// entryText is an entry as show prints it.
func entryText(e *manifest.Entry, a manifest.Algorithm) string {
	switch e.Type {
	case manifest.File:
		return fmt.Sprintf("f %04o %d %s %s", e.Mode, e.Size, a.Hex(e.Root), printable.Text(e.Path))
	case manifest.Symlink:
		return fmt.Sprintf("l %04o %s -> %s", e.Mode, printable.Text(e.Path), printable.Text(e.Target))
	}
	return fmt.Sprintf("d %04o %s", e.Mode, printable.Text(e.Path))
}

func (m *manifesting) diff(ctx context.Context, operands []string) error {
	if operands[0] == "-" && operands[1] == "-" {
		return args.UsageErrorf("only one of the manifests can come from standard input")
	}
	a, err := m.openManifest(operands[0])
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := m.openManifest(operands[1])
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, stop := m.printing(ctx)
	defer stop()
	changes := int64(0)
	identical, err := manifest.Diff(a, b, func(c manifest.Change) error {
		changes++
		if m.json {
			m.events.emit(differenceEvent{"difference", c.Path(), changeKind(&c), c.Differs.String(), rangeFields(c.Ranges), ""})
		} else {
			m.tell("%s", changeText(&c))
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	if m.json {
		m.events.emit(comparedEvent{"compared", identical, changes})
	} else if !m.quiet {
		m.console.line("%s, root %s %x and %x", count(changes, "difference", "differences"), a.Header().Algorithm, a.Summary().Content, b.Summary().Content)
	}
	if !identical {
		return &ended{exitIntegrity}
	}
	return nil
}

func changeKind(c *manifest.Change) string {
	switch {
	case c.A == nil:
		return "added"
	case c.B == nil:
		return "removed"
	}
	return "changed"
}

// changeText is a change in a line: + added, - removed, ~ changed.
func changeText(c *manifest.Change) string {
	path := strconv.Quote(c.Path())
	switch {
	case c.A == nil:
		return "+ " + path
	case c.B == nil:
		return "- " + path
	}
	text := "~ " + path + ": " + c.Differs.String()
	if c.Differs&manifest.SizeDiffers != 0 {
		text += fmt.Sprintf(", size %d and %d", c.A.Size, c.B.Size)
	}
	if len(c.Ranges) > 0 {
		text += ", bytes " + audit.RangesText(c.Ranges)
	}
	return text
}

func kindText(k audit.Kind) string { return findingKinds()[k] }

// findingKinds are the names of the kinds of findings, by their numbers.
func findingKinds() []string {
	return []string{audit.Bad: "bad", audit.Missing: "missing", audit.Extra: "extra", audit.Unreadable: "unreadable", audit.Skipped: "skipped"}
}
