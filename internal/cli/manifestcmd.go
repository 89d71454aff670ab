package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"gdrcp/internal/audit"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// manifestRun is one run of a manifest command.
type manifestRun struct {
	*program
	audit     audit.Options
	tally     *xfer.Tally // counts during the audit
	selection selectOptions
	ssh       sshOptions
	header    manifest.Header
	outName   string
	quiet     bool
	json      bool
	progress  bool // --progress was given
	// noProgress means that --no-progress was given: no progress on a terminal either.
	noProgress bool
	console    *console
	events     *events
}

func (p *program) manifestCommand() *cli.Command {
	m := &manifestRun{program: p, outName: "-"}
	m.header = manifest.Header{Algorithm: manifest.XXH3, PieceBytes: manifest.DefaultPieceBytes}
	quiet := &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "tell errors and differences only", Destination: &m.quiet}
	asJSON := &cli.BoolFlag{Name: "json", Usage: "print events on standard output, as JSON, one a line", Destination: &m.json}
	follow := &cli.BoolFlag{Name: "follow", Aliases: []string{"L"}, Usage: "read what symbolic links lead to instead of the links", Destination: &m.audit.Follow}
	progress := onOffUnless("progress", "tell every 10 seconds how far it is, even if standard error is not a terminal", &m.progress, &m.noProgress)
	chooses := m.selection.flagsWith("`FILE` read only what FILE names, one name a line, relative to PATH, which must be one directory, and the directories on the way. " +
		"What is in a named directory is read only with -r. - is standard input")
	recursive := onOff("recursive", "with --files-from: also read what is in the directories that FILE names. Without --files-from the whole tree is read", &m.audit.Recursive, "r")
	return &cli.Command{
		Name: "manifest", Usage: "say what files and trees hold, and check it", ArgsUsage: "create|verify|show|diff ...",
		Description: "Manifests say what a file or a tree holds: its entries and the digests of their pieces.",
		Subcommands: []*cli.Command{
			{
				Name: "create", Usage: "write a manifest", ArgsUsage: "[OPTIONS] PATH", Action: m.action(1, m.create),
				Description: "Reads PATH and writes its manifest. The root is the one that a copy of PATH shows. What cannot be read is\nleft out (exit code 3)." + manifestPlaces,
				Flags: slices.Concat(about(topicCheck,
					&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` where to write it (- is standard output, the default; zstd if it ends in .zst)", Destination: &m.outName, Value: "-"},
					checkedFlag("hash", "`xxh3|blake3|crc32c|sha256` how pieces are digested (xxh3)", hash(&m.header.Algorithm)),
					&cli.BoolFlag{Name: "identities", Usage: "also write the inode and the time of the last change (ctime) of each file, for --basis-manifest. Such a manifest is another one for each copy of a tree", Destination: &m.audit.Identities},
				), about(topicSelect, follow, recursive), about(topicSelect, chooses...), m.ssh.flags(), about(topicOutput, quiet, progress, asJSON)),
			},
			{
				Name: "verify", Usage: "hold a tree against a manifest", ArgsUsage: "[OPTIONS] MANIFEST PATH", Action: m.action(2, m.verify),
				Description: "Holds PATH against MANIFEST (- is standard input) and names every bad, missing and extra entry, and the byte range of\nevery bad piece. A manifest of one file verifies a file of any name. Exit code 4 if anything differs, 3 if nothing does\nbut something could not be read." + manifestPlaces,
				Flags: slices.Concat(about(topicCheck,
					&cli.BoolFlag{Name: "preserve", Aliases: []string{"p"}, Usage: "compare modes and times of change too", Destination: &m.audit.Preserve},
				), about(topicSelect, follow), about(topicSelect, m.selection.ruleFlags()...), m.ssh.flags(), about(topicOutput, quiet, progress, asJSON)),
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

// manifestPlaces is help text about a PATH on another host.
const manifestPlaces = "\nPATH may be [user@]host:path: ssh starts gdrcp there, which reads the files. Only the manifest and the findings travel.\n" +
	"Files of rules and lists are read on this machine."

// action wraps do: it checks the number of operands, and sets up the console and the
// output.
func (m *manifestRun) action(operands int, do func(ctx context.Context, operands []string) error) cli.ActionFunc {
	return func(cc *cli.Context) error {
		if cc.NArg() != operands {
			return args.UsageErrorf("gdrcp manifest %s needs %s: %s", cc.Command.Name, count(int64(operands), "operand", "operands"), strings.TrimPrefix(cc.Command.ArgsUsage, "[OPTIONS] "))
		}
		if m.quiet && m.progress {
			return args.UsageErrorf("--quiet and --progress exclude each other")
		}
		m.console = m.newConsole()
		if m.json {
			m.events = newEvents(m.stdout)
		}
		return do(cc.Context, cc.Args().Slice())
	}
}

// follow shows progress while files are read, if the user wants that. dataOnScreen
// means that the terminal shows the manifest.
func (m *manifestRun) follow(dataOnScreen bool) (end func()) {
	m.tally = &xfer.Tally{}
	m.audit.Tally = m.tally
	w := progressReporter{console: m.console, events: m.events, wanted: m.progress, quiet: m.quiet, redraws: m.isTerminal(m.stderr) && !dataOnScreen && !m.noProgress}
	return w.follow(m.tally)
}

// manifestWriter opens the output for a new manifest: standard output or a file.
func (m *manifestRun) manifestWriter() (out *manifest.Writer, commit func() error, abort func(), err error) {
	if m.outName == "-" {
		out, err = manifest.NewWriter(m.stdout, m.header)
		return out, m.checkedStdout.finish, func() {}, err
	}
	f, err := manifest.Create(m.outName, m.header)
	if err != nil {
		return nil, nil, nil, err
	}
	return f.Writer, func() error { _, err := f.Commit(); return err }, func() { _ = f.Abort() }, nil
}

func (m *manifestRun) create(ctx context.Context, operands []string) error {
	if m.outName == "-" && m.json {
		return args.UsageErrorf("--json needs -o FILE: the manifest itself goes to standard output")
	}
	where, path, err := m.parsePlace(operands[0])
	if err != nil {
		return err
	}
	if where != nil && m.audit.Identities {
		return args.UsageErrorf("--identities is for a PATH of this machine")
	}
	if st, err := os.Stat(path); where == nil && m.outName != "-" && err == nil && !st.IsDir() && manifest.Replaces(m.outName, path, true) {
		return args.UsageErrorf("the manifest %s would replace %s, which it is of", args.Quote(m.outName), args.Quote(path))
	}
	if m.outName == "-" {
		var stop context.CancelFunc
		ctx, stop = m.printingContext(ctx)
		defer stop()
	}
	if err := m.readRules(ctx); err != nil {
		return err
	}
	if m.audit.Names, err = m.selection.names(ctx); err != nil {
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
	end := m.follow(m.outName == "-" && m.isTerminal(m.stdout))
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
		return &exitCodeError{exitPartial}
	}
	return nil
}

// openManifest opens a manifest by name; "-" is standard input. Reading a source that
// may block for ever, such as a fifo, ends when ctx ends.
func (m *manifestRun) openManifest(ctx context.Context, name string) (*manifest.Reader, error) {
	if st, err := os.Stat(name); name != "-" && (err != nil || st.Mode().IsRegular()) {
		return manifest.Open(name)
	}
	in, err := openUntil(ctx, func() (io.ReadCloser, error) {
		if name == "-" {
			return kept{m.stdin}, nil
		}
		return os.Open(name)
	})
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return manifest.NewReader(in)
}

// readRules reads the rules for a tree and the files that contain rules, until ctx ends.
func (m *manifestRun) readRules(ctx context.Context) (err error) {
	m.selection.stdin = m.stdin
	m.audit.Rules, err = m.selection.read(ctx)
	return err
}

// tellUnread reports an unreadable entry, with the host if it is remote.
func (m *manifestRun) tellUnread(f *audit.Finding, where *sshHost) {
	at := ""
	if where != nil {
		at = " (at " + where.host + ")"
	}
	m.console.line("gdrcp: %s%s", printable.Text(f.Text), at)
}

func (m *manifestRun) verify(ctx context.Context, operands []string) error {
	where, path, err := m.parsePlace(operands[1])
	if err != nil {
		return err
	}
	if err := m.readRules(ctx); err != nil {
		return err
	}
	if operands[0] == "-" && m.selection.stdinTakenBy != "" {
		return args.UsageErrorf("MANIFEST and --%s cannot both be read from standard input", m.selection.stdinTakenBy)
	}
	r, err := m.openManifest(ctx, operands[0])
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
		return &exitCodeError{exitIntegrity}
	case s.Unreadable > 0:
		return &exitCodeError{exitPartial}
	}
	return nil
}

// tell writes a line to standard output, above the progress bar.
func (m *manifestRun) tell(format string, args ...any) {
	m.console.lineTo(m.stdout, format, args...)
}

// verdict returns the last line of a verification.
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
	case left != "": // the root covers more than was verified
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

func kindText(k audit.Kind) string { return findingKinds()[k] }

// findingKinds returns the names of the kinds of findings, by number.
func findingKinds() []string {
	return []string{audit.Bad: "bad", audit.Missing: "missing", audit.Extra: "extra", audit.Unreadable: "unreadable", audit.Skipped: "skipped"}
}
