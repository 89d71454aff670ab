package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"gdrcp/chunker/dest"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// copyRun is one copy from the command line.
type copyRun struct {
	*program
	options              xfer.Options
	keyFile              string
	selection            selectOptions
	ssh                  sshOptions
	wire                 wireOptions
	quiet, verbose, json bool
	progress             bool // show it even without a terminal
	noProgress           bool // do not show it on a terminal either
	stats                bool // print statistics at the end
	noOps                rsyncNoOps

	stream         *dest.Pipe // the local end's, if SRC or DST is -
	console        *console
	events         *events // nil without --json
	retries        int
	maxMemoryBytes int64  // for the local slots; 0: no limit
	logName        string // of --log-file, or empty
	log            *logFile
	ends           endNames
	tally          *xfer.Tally                // of the copy; nil before it has begun
	needing        sync.Mutex                 // guards need
	need           xfer.Load                  // memory needed by this end
	railLost       atomic.Bool                // a rail was lost in this copy
	place          atomic.Pointer[xfer.Place] // nil before the engine has reported it
}

func (p *program) copyCommand() *cli.Command {
	c := &copyRun{program: p, retries: defaultRetries}
	return &cli.Command{
		Name: args.CopyName, Usage: "copy files between hosts by RDMA or TCP, verified", ArgsUsage: "[OPTIONS] SRC... DST", Flags: c.flags(),
		Action: func(cc *cli.Context) error {
			if cc.Bool(args.VersionName) {
				p.onlyPrints = true
				_, err := fmt.Fprintf(p.stdout, "gdrcp %s\n", p.versionText())
				return err
			}
			return c.perform(cc.Context, cc.Args().Slice())
		},
		Description: `SRC and DST follow the rules of cp and scp: a file to a file or into a directory, many into a directory, a trailing slash
means a directory. [user@]host:path is a path on another host, where gdrcp is started by ssh; it may be a pattern of sources.
rdma://host[:port]/path is a path below the root of a gdrcp serve, or as a source a pattern. SRC - is standard input, DST - standard output. All else is local:
a file named like a command is ./serve, one with a colon ./a:b, one named - is ./-. Between two hosts of host:path the data goes straight from one to the other.
If SRC and DST are both local, one process copies on this machine.`,
	}
}

// perform copies and reports the result.
func (c *copyRun) perform(ctx context.Context, operands []string) error {
	c.console = c.newConsole()
	if c.json {
		c.events = newEvents(c.eventsOut)
	}
	summary, err := c.copy(ctx, operands)
	if err != nil && c.relayed != nil {
		err = nameHosts(err, c.relayed)
	}
	if err != nil {
		err = c.withHowToGoOn(err, operands)
	}
	if err != nil && c.options.InPlace && c.tally != nil && c.tally.Snapshot().WireBytes > 0 {
		err = errors.Join(err, errInPlace)
	}
	err = errors.Join(err, c.closeStream())
	lost := c.log.end(summary, err, ctx.Err() != nil)
	if err != nil || summary == nil {
		return errors.Join(err, lost)
	}
	c.tellUndone(summary)
	c.tellSummary(summary)
	c.tellStats(summary)
	code := codeOfSummary(summary)
	if code == exitOK {
		return lost
	}
	if lost != nil {
		c.console.line("gdrcp: %s", lineOf(lost))
	}
	return &exitCodeError{code}
}

// errInPlace reports what an interrupted copy in place may leave.
var errInPlace = errors.New("a file that was being written in place may be partly old and partly new")

// theSameAgain describes the command that resumes most copies.
const theSameAgain = "the same command again"

// withHowToGoOn adds to the error of an interrupted copy how to resume it, if there is something to
// say: a large file may have arrived in part, or repeating the command would copy to a different
// place because DST may now exist. A key that is refused now would be refused again.
func (c *copyRun) withHowToGoOn(err error, operands []string) error {
	if c.tally == nil || c.options.DryRun || codeOf(err) != exitError || errors.Is(err, xfer.ErrKey) || errors.Is(err, trust.ErrRefused) {
		return err
	}
	again, done := c.again(operands), c.tally.Snapshot()
	// DST is created before its contents, so an interrupted copy may have left DST without content.
	resumes, begun := done.ResumableBytes > 0, done.WireBytes > 0 || done.Files > 0 || isCutOff(err)
	if !resumes && (again == theSameAgain || !begun) {
		return err
	}
	return &resumableError{err, again, resumes}
}

// isCutOff reports whether a copy was interrupted from outside, at any point, and not refused.
func isCutOff(err error) bool {
	return xfer.Classify(err) == xfer.ClassStopped || errors.Is(err, xfer.ErrStalled)
}

// again returns the command that resumes this copy. If DST was created as the copy of a
// tree, the same command would create a second tree inside it.
func (c *copyRun) again(operands []string) string {
	p := c.place.Load()
	if p == nil || p.Inside || p.Single || p.Name == "" || p.Name == "." || c.options.Whole {
		return theSameAgain
	}
	source := "SRC"
	if c.relayed == nil {
		source = operands[0]
	}
	return fmt.Sprintf("the command again with %s in place of %s", args.Quote(strings.TrimSuffix(source, "/")+"/."), args.Quote(source))
}

// copy runs the engine, with a progress bar if there is a terminal for it. A copy
// between two other hosts has no summary here, because one of the hosts has printed it.
func (c *copyRun) copy(ctx context.Context, operands []string) (*xfer.Summary, error) {
	if c.quiet && c.verbose {
		return nil, args.UsageErrorf("--quiet and --verbose exclude each other")
	}
	if c.quiet && c.progress {
		return nil, args.UsageErrorf("--quiet and --progress exclude each other")
	}
	if c.options.PartialDir != "" && c.options.NoResume {
		return nil, args.UsageErrorf("--partial-dir and --no-resume exclude each other")
	}
	if c.verbose && !c.json {
		c.noOps.explain(c.console.line)
	}
	p, err := &plan{}, error(nil)
	if c.relayed == nil {
		p, err = planCopy(operands)
	}
	if err != nil {
		return nil, err
	}
	isStream, err := p.isStream()
	if err == nil && isStream {
		err = c.openStream(p)
	}
	if err != nil {
		return nil, err
	}
	if err := checkRing(&c.options); err != nil {
		return nil, err
	}
	if c.options.Wire, err = c.wire.read(c.getenv); err != nil {
		return nil, err
	}
	if c.options.BasisManifest != "" && (p.from != nil || p.push) {
		return nil, args.UsageErrorf("--basis-manifest is for a copy from another machine to this one")
	}
	if p.from != nil {
		return nil, c.relay(ctx, p)
	}
	o := c.options
	if err := c.fitMemory(&o, p.push || c.relayed != nil, isStream, p.local); err != nil {
		return nil, err
	}
	if c.logName != "" {
		if c.log, err = c.openLog(c.logName); err != nil {
			return nil, err
		}
		if c.relayed == nil {
			c.log.asked(operands)
		}
	}
	c.selection.stdin = c.stdin
	if err := c.selection.into(ctx, &o); err != nil {
		return nil, err
	}
	defer o.Names.Close()
	c.ends = p.ends(c.relayed)
	if c.log != nil {
		c.log.ends = c.ends
	}
	c.tally = &xfer.Tally{}
	o.Started, o.Timeouts, o.Tally, o.Report = c.started, c.timeouts, c.tally, c.report
	c.checkedStdout.patience = readerPatience // events are written to it
	if o.Stall > 0 {                          // give readers less time than the engine has
		for _, out := range []*output{c.checkedStdout, c.checkedStderr, c.log.output()} {
			out.patience = min(readerPatience, o.Stall/2)
		}
	}
	dataOnScreen := isStream && !p.push && c.isTerminal(c.stdout)
	if !o.DryRun {
		w := progressReporter{console: c.console, events: c.events, wanted: c.progress, quiet: c.quiet, redraws: c.isTerminal(c.stderr) && !dataOnScreen && !c.noProgress}
		defer w.follow(o.Tally)()
	}
	c.need = xfer.Load{Sessions: 1, Slots: cmp.Or(o.Slots, xfer.DefaultSlots)}
	if o.Compress != xfer.CompressOff {
		c.need.CodecBytes = int64(cmp.Or(o.ChunkBytes, xfer.DefaultChunkBytes))
	}
	if p.local {
		c.need.Sessions, c.need.Slots, c.need.CodecBytes = 2*c.need.Sessions, 2*c.need.Slots, 2*c.need.CodecBytes
	}
	boundHeap(c.need)
	switch {
	case p.local:
		return c.onThisMachine(ctx, p, o)
	case c.relayed != nil:
		return c.relayedCopy(ctx, o)
	case p.far != nil:
		return c.overSSH(ctx, p, o)
	}
	if p.endpoint.Key, err = c.key(c.keyFile); err != nil {
		return nil, err
	}
	return c.withServer(ctx, p, o)
}

// needs makes room in the heap for rings of that many slots, or for two of them if both
// ends are in this process.
func (c *copyRun) needs(slots int) {
	c.needing.Lock()
	defer c.needing.Unlock()
	if slots *= c.need.Sessions; slots > c.need.Slots {
		c.need.Slots = slots
		boundHeap(c.need)
	}
}

// report handles the engine's events. Several goroutines may call it concurrently.
func (c *copyRun) report(e xfer.Event) {
	switch e.Kind {
	case xfer.EventPlaced:
		c.place.Store(e.Place)
	case xfer.EventConnected:
		c.limitCPUs(e.Link.Transport)
		c.needs(e.Link.Slots) // a fast link has more slots
	case xfer.EventDeleted:
		c.log.event(&e)
		c.reportDeleted(&e)
		return
	}
	c.log.event(&e)
	if c.json {
		c.reportJSON(e)
		return
	}
	switch e.Kind {
	case xfer.EventRailLost, xfer.EventRailJoined, xfer.EventRailUnused:
		c.tellRail(&e)
	case xfer.EventConnected:
		c.tellLink(e.Link)
	case xfer.EventWaiting:
		if !c.quiet {
			c.console.line("gdrcp: waiting: %s", e.Text)
		}
	case xfer.EventWarning:
		c.console.line("gdrcp: warning: %s", e.Text)
	case xfer.EventAfresh:
		if !c.quiet {
			c.console.line("gdrcp: %s", c.ends.afreshText(&e))
		}
	case xfer.EventRing:
		if !c.quiet {
			c.console.line("gdrcp: %s", c.ends.ringText(&e))
		}
	case xfer.EventMemory:
		if c.verbose || (!c.quiet && e.Memory.Why != "") {
			c.console.line("gdrcp: %s", memoryText(e.Memory, e.Remote))
		}
	case xfer.EventFile:
		if e.Outcome == xfer.Kept {
			if c.verbose {
				c.console.line("%s", keptText(&e))
			}
		} else if e.Outcome != xfer.Copied {
			if !c.quiet || e.Outcome != xfer.Skipped {
				c.console.line("gdrcp: %s", c.ends.text(&e))
			}
		} else if e.Text != "" && !c.quiet {
			c.console.line("gdrcp: %s", printable.Text(e.Text))
		} else if c.verbose && e.Trusted {
			c.console.line("%s: trusted, not read", args.Quote(e.Path))
		} else if c.verbose && e.Unchanged {
			c.console.line("%s: unchanged", args.Quote(e.Path))
		} else if c.verbose {
			c.console.line("%s", args.Quote(e.Path))
		}
	}
}

func (c *copyRun) reportJSON(e xfer.Event) {
	switch e.Kind {
	case xfer.EventRailLost, xfer.EventRailJoined, xfer.EventRailUnused:
		c.events.emit(railEventOf(&e))
	case xfer.EventConnected:
		c.events.emit(connectedEvent{"connected", fieldsOf(e.Link)})
	case xfer.EventWaiting:
		c.events.emit(waitingEvent{"waiting", e.Text})
	case xfer.EventWarning:
		c.events.emit(warningEvent{"warning", e.Text, endText(endOf(e.Remote))})
	case xfer.EventAfresh:
		c.events.emit(afreshEvent{"afresh", endText(endOf(e.Remote))})
	case xfer.EventMemory:
		c.events.emit(memoryEventOf(e.Memory, e.Remote))
	case xfer.EventRing:
		c.events.emit(ringEventOf(&e))
	case xfer.EventFile:
		if (e.Outcome != xfer.Copied && e.Outcome != xfer.Kept) || e.Outcome == xfer.Copied && e.Text != "" || c.verbose || e.DryRun {
			c.events.emit(fileEvent{"file", e.Path, outcomeOf(&e), e.Bytes, printable.Text(e.Text), endText(e.End), e.DryRun})
		}
	}
}

// tellLink prints how the data is transferred if that is unexpected, for example through ssh, or
// over TCP although there is an RDMA device. With -v it prints everything about the link.
func (c *copyRun) tellLink(l *xfer.Link) {
	auto := c.options.Transport == "" || c.options.Transport == "auto"
	switch {
	case c.quiet, l.Transport == localTransport:
	case l.Device == pipeDevice:
		c.console.line("gdrcp: using %s over ssh: %s", l.Transport, printable.Text(l.Why))
	case l.Why != "" && (c.verbose || c.hasDevice()):
		c.console.line("gdrcp: using %s: %s", l.Transport, printable.Text(l.Why))
	case c.verbose && l.Why == "" && auto:
		c.console.line("gdrcp: using %s: %s reaches %s", l.Transport, deviceText(l), l.Remote)
	}
	if c.verbose {
		text := fmt.Sprintf("from %s to %s, %s, %s", l.Local, l.Remote, count(int64(l.QPs), "queue pair", "queue pairs"), ringText(l.Slots, l.ChunkBytes))
		if l.Imm != rdma.ImmUnknown { // tcp knows this only after it has sent one; the summary reports it
			text += ", " + l.Imm.String()
		}
		text += wireText(c.options.Wire)
		c.console.line("gdrcp: %s", text)
	}
}

// deviceText names a device, with its family unless the name shows it.
func deviceText(l *xfer.Link) string {
	if l.Transport == "tcp" || l.Family == "" {
		return l.Device
	}
	return l.Device + " " + string(l.Family)
}

// codeOfSummary returns the exit code of a copy that finished.
func codeOfSummary(s *xfer.Summary) int {
	switch {
	case s.Corrupt > 0, s.Missing > 0, !s.Verified:
		return exitIntegrity
	case s.Failed > 0, s.Changed > 0, s.NotDeleted, s.Withheld, len(s.Unkept) > 0:
		return exitPartial
	}
	return exitOK
}
