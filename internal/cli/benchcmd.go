package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

const (
	defaultBenchBytes  = 512 << 20
	defaultBenchRounds = 1000
)

// benchRun is one run of the bench command.
type benchRun struct {
	*program
	options xfer.Options
	wire    wireOptions
	keyFile string
	bytes   int64
	hashes  []manifest.Algorithm // empty: none
	rounds  int
	disk    string // the directory to measure, or empty
	json    bool

	console   *console
	events    *events
	table     *tabwriter.Writer
	connected bool // the current measurement had a session
	linkTold  bool // the transport has been reported
}

func (p *program) benchCommand() *cli.Command {
	b := &benchRun{program: p, bytes: defaultBenchBytes, rounds: defaultBenchRounds, hashes: []manifest.Algorithm{0, manifest.XXH3}}
	flags := about(topicMeasure,
		checkedFlag("bytes", "`SIZE` how much to send for each digest, and to write and read with --disk (512MiB)", size(&b.bytes, 1, 1<<50, 1)),
		checkedFlag("hash", "`LIST` digests to measure with: none, xxh3, blake3, crc32c, sha256 (none,xxh3)", hashList(&b.hashes)),
		&cli.StringFlag{Name: "disk", Usage: "measure what the directory `DIR` takes and gives, and with a server which of disk and wire is the slower", Destination: &b.disk},
		checkedFlag("rounds", "`N` round trips for each latency, 0 for none (1000)", number(&b.rounds, 0, 10_000_000)),
	)
	flags = append(flags, linkFlags(&b.options, checkedFlag("require", "`verbs` fail (exit code 5) instead of falling back to tcp", oneOf(&b.options.Require, "verbs")))...)
	flags = append(flags, b.wire.flags()...)
	flags = append(flags, about(topicAccess, keyFileFlag("the key that the server knows", &b.keyFile))...)
	flags = append(flags, about(topicOutput, &cli.BoolFlag{Name: "json", Usage: "print events on standard output, as JSON, one a line", Destination: &b.json})...)
	return &cli.Command{
		Name: "bench", Usage: "measure bandwidth and latency to a server, from memory to memory", ArgsUsage: "[OPTIONS] [rdma://host[:port]]", Flags: flags, Action: action(b.perform),
		Description: `Sends memory to a gdrcp serve through the engine that copies, without files: bandwidth without and with digests at both ends, and
the round trip of a Send, a Write and a Write with immediate, also over plain TCP for comparison.
With --disk DIR it first writes a file in DIR, syncs it and reads it back from the disk, as a copy does, and removes it.`,
	}
}

// hashList parses digests separated by commas.
func hashList(to *[]manifest.Algorithm) *checkedValue {
	return &checkedValue{set: func(s string) error {
		*to = nil
		for name := range strings.SplitSeq(s, ",") {
			a := manifest.Algorithm(0)
			if name != "none" {
				var err error
				if a, err = manifest.ParseAlgorithm(name); err != nil {
					return fmt.Errorf("%q is not one of none, xxh3, blake3, crc32c, sha256", name)
				}
			}
			*to = append(*to, a)
		}
		return nil
	}}
}

func hashText(a manifest.Algorithm) string {
	if a == 0 {
		return "none"
	}
	return a.String()
}

func (b *benchRun) perform(ctx context.Context, operands []string) error {
	b.console = b.newConsole()
	if b.json {
		b.events = newEvents(b.stdout)
	}
	ctx, stop := b.printingContext(ctx)
	defer stop()
	return b.measure(ctx, operands)
}

func (b *benchRun) measure(ctx context.Context, operands []string) error {
	if len(operands) == 0 && b.disk != "" {
		_, err := b.disks(ctx)
		return err
	}
	if len(operands) != 1 {
		return args.UsageErrorf("gdrcp bench needs one operand: rdma://host[:port] of a gdrcp serve; or --disk DIR")
	}
	t, err := parseTarget(operands[0])
	if err != nil {
		return err
	}
	if !t.remote || t.ssh != nil || t.path != "/" {
		return args.UsageErrorf("%s: bench takes rdma://host[:port], without a path", args.Quote(operands[0]))
	}
	if err := checkRing(&b.options); err != nil {
		return err
	}
	if b.options.Wire, err = b.wire.read(b.getenv); err != nil {
		return err
	}
	if t.endpoint.Key, err = b.key(b.keyFile); err != nil {
		return err
	}
	o := b.options
	o.Timeouts, o.Report = b.timeouts, b.report
	disk, err := b.disks(ctx)
	if err != nil {
		return err
	}
	b.table = tabwriter.NewWriter(b.stdout, 0, 0, 2, ' ', 0)
	all, err := b.bandwidths(ctx, t.endpoint, o)
	// If there was an error, print the measurements made before it, too.
	if err = errors.Join(err, b.table.Flush()); err != nil {
		return err
	}
	b.tellSlower(disk, all)
	err = b.latencies(ctx, t.endpoint, o, all[len(all)-1].Link.Transport)
	return errors.Join(err, b.table.Flush())
}

// report prints the transport of the bench, once.
func (b *benchRun) report(e xfer.Event) {
	if e.Kind == xfer.EventWaiting {
		fmt.Fprintf(b.stderr, "gdrcp: waiting: %s\n", e.Text)
	}
	if e.Kind != xfer.EventConnected {
		return
	}
	b.connected = true
	b.limitCPUs(e.Link.Transport)
	if b.linkTold || b.json {
		return
	}
	b.linkTold = true
	text := fmt.Sprintf("gdrcp: using %s: %s reaches %s", e.Link.Transport, deviceText(e.Link), e.Link.Remote)
	if e.Link.Why != "" {
		text = fmt.Sprintf("gdrcp: using %s: %s", e.Link.Transport, printable.Text(e.Link.Why))
	}
	b.console.line("%s", text)
}

type bandwidthEvent struct {
	Event      string  `json:"event"`
	Transport  string  `json:"transport"`
	Device     string  `json:"device"`
	Hash       string  `json:"hash"`
	MiBPerS    float64 `json:"mib_per_s"`
	Bytes      int64   `json:"bytes"`
	Seconds    float64 `json:"seconds"`
	ChunkBytes int     `json:"chunk_bytes"`
	Slots      int     `json:"slots"`
	QPs        int     `json:"qps"`
	Imm        string  `json:"imm"`
	// LocalCost and RemoteCost are what the measurement cost each end.
	LocalCost  *costField `json:"local_cost"`
	RemoteCost *costField `json:"remote_cost,omitempty"`
}

// bandwidths measures with each digest; there is at least one.
func (b *benchRun) bandwidths(ctx context.Context, ep xfer.Endpoint, o xfer.Options) (all []*xfer.Bandwidth, err error) {
	defer func() { b.tellTimes(all) }()
	for _, h := range b.hashes {
		o.Hash = h
		r, err := b.client().BenchBandwidth(ctx, ep, b.bytes, o)
		if err != nil {
			return all, err
		}
		if len(all) == 0 && !b.json {
			fmt.Fprintln(b.table, "BANDWIDTH\tDEVICE\tDIGEST\tMiB/s\tBYTES\tSECONDS\tCHUNK\tSLOTS\tQPS\tIMMEDIATE\tCPU s/GiB HERE\tTHERE")
		}
		all = append(all, r)
		b.tellBandwidth(r)
	}
	return all, nil
}

func (b *benchRun) tellBandwidth(r *xfer.Bandwidth) {
	l := &r.Link
	if b.json {
		b.events.emit(bandwidthEvent{
			"bandwidth", l.Transport, l.Device, hashText(r.Hash), r.MiBPerSecond(), r.Bytes, r.Seconds, l.ChunkBytes, l.Slots, l.QPs, l.Imm.String(),
			costFieldOf(&r.LocalCost, r.Bytes), costFieldOf(r.RemoteCost, r.Bytes),
		})
		return
	}
	fmt.Fprintf(b.table, "%s\t%s\t%s\t%.1f\t%d\t%.3f\t%s\t%d\t%d\t%s\t%s\t%s\n", l.Transport, deviceText(l), hashText(r.Hash), r.MiBPerSecond(), r.Bytes, r.Seconds,
		sizeText(int64(l.ChunkBytes)), l.Slots, l.QPs, l.Imm, perGiBText(&r.LocalCost, r.Bytes), perGiBText(r.RemoteCost, r.Bytes))
}

// tellTimes prints how each end spent its time, below the bandwidths.
func (b *benchRun) tellTimes(all []*xfer.Bandwidth) {
	if b.json || len(all) == 0 {
		return
	}
	fmt.Fprintln(b.table, "\nTIME\tEND\tDIGEST\tSLOTS s\tWIRE s\tDIGESTS s")
	for _, r := range all {
		for _, end := range []struct {
			name string
			cost *xfer.Cost
		}{{"here", &r.LocalCost}, {"there", r.RemoteCost}} {
			if c := end.cost; c != nil {
				fmt.Fprintf(b.table, "%s\t%s\t%s\t%.3f\t%.3f\t%.3f\n", r.Link.Transport, end.name, hashText(r.Hash), c.Slots.Seconds(), c.Wire.Seconds(), c.Digests.Seconds())
			}
		}
	}
}

type latencyEvent struct {
	Event     string  `json:"event"`
	Transport string  `json:"transport"`
	Device    string  `json:"device"`
	Op        string  `json:"op"`
	Rounds    int     `json:"rounds"`
	MedianUs  float64 `json:"median_us"`
	P99Us     float64 `json:"p99_us"`
	MinUs     float64 `json:"min_us"`
}

// latencies measures round trips, and repeats that over TCP unless TCP is the transport anyway.
func (b *benchRun) latencies(ctx context.Context, ep xfer.Endpoint, o xfer.Options, transport string) error {
	if b.rounds == 0 {
		return nil
	}
	results, err := b.client().BenchLatency(ctx, ep, b.rounds, o)
	if err != nil {
		return err
	}
	if !b.json {
		fmt.Fprintln(b.table, "\nLATENCY\tDEVICE\tOPERATION\tMEDIAN µs\tP99 µs\tMIN µs\tROUNDS")
	}
	b.tellLatencies(results)
	if transport == "tcp" {
		return nil
	}
	o.Transport, o.Require, o.Rail, o.MoreRails, o.RemoteRail, b.connected = "tcp", "", "", nil, "", false
	results, err = b.client().BenchLatency(ctx, ep, b.rounds, o)
	if err != nil && !b.connected && ctx.Err() == nil {
		// A server may offer only verbs. Then there is nothing to compare with.
		b.console.line("gdrcp: no comparison with tcp: %s", lineOf(err))
		return nil
	}
	b.tellLatencies(results)
	return err
}

func (b *benchRun) tellLatencies(results []xfer.Latency) {
	us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
	for _, r := range results {
		if b.json {
			b.events.emit(latencyEvent{"latency", r.Link.Transport, r.Link.Device, r.Op, r.Rounds, us(r.Median), us(r.P99), us(r.Shortest)})
			continue
		}
		fmt.Fprintf(b.table, "%s\t%s\t%s\t%.1f\t%.1f\t%.1f\t%d\n", r.Link.Transport, deviceText(&r.Link), r.Op, us(r.Median), us(r.P99), us(r.Shortest), r.Rounds)
	}
}
