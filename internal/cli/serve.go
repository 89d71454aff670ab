package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/rdma"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// serveName is the command that serves.
const serveName = "serve"

// serveRun is one run of the serve command.
type serveRun struct {
	*program
	root, listen        string
	readOnly            bool
	requireEncrypt      bool
	accessFile, keyFile string
	transport           string
	maxSessions         int
	maxMemoryBytes      int64
	maxWaitSeconds      int
	bytesPerSecond      int64
	gpu                 string
	exitOnGPUFailure    bool
	quiet, verbose      bool

	wire       wireOptions
	console    *console
	admissions *admissions
	loopback   bool // serves only this host, without RDMA
}

func (p *program) serveCommand() *cli.Command {
	s := &serveRun{program: p, transport: "auto", listen: ":" + strconv.Itoa(xfer.DefaultPort), maxWaitSeconds: 30}
	return &cli.Command{
		Name: serveName, Usage: "let clients copy to and from a directory", ArgsUsage: "--access-file FILE|--root DIR --key-file FILE [OPTIONS]", Action: action(s.perform),
		Description: `Lets clients copy to and from the directory that their key opens: by TCP at ADDR:PORT, and by RDMA at PORT+1 of the addresses
of every RDMA device, but not where ADDR is of this host alone (127.0.0.1, ::1). SIGHUP makes it read the file of keys anew.
Runs until SIGINT or SIGTERM.`,
		Flags: s.flags(),
	}
}

// flags returns the options of a server, by topic.
func (s *serveRun) flags() []cli.Flag {
	return slices.Concat(
		about(topicServe,
			&cli.StringFlag{Name: "root", Usage: "`DIR` the directory that is served to clients that hold the key of --key-file", Destination: &s.root},
			&cli.BoolFlag{Name: "read-only", Usage: "clients can only read, whatever the access file says", Destination: &s.readOnly},
		),
		about(topicAccess,
			&cli.StringFlag{Name: "listen", Usage: "`ADDR:PORT` where to listen (" + s.listen + "): ADDR alone has port 7473, :PORT is all addresses, port 0 takes a free one", Destination: &s.listen, Value: s.listen},
			&cli.StringFlag{Name: "access-file", Usage: "`FILE` the keys and what they open (gdrcp key new writes it); without --root and --key-file, $" + accessFileVariable + " names it, too", Destination: &s.accessFile},
			keyFileFlag("the one key that admits clients (gdrcp key new)", &s.keyFile),
			&cli.BoolFlag{Name: "require-encrypt", Usage: "admit only clients that use --encrypt, whatever the access file says", Destination: &s.requireEncrypt},
		),
		about(topicTransport,
			checkedFlag("transport", "`auto|verbs|tcp` what to offer: both where there are RDMA devices, or one (auto)", oneOf(&s.transport, "auto", "verbs", "tcp")),
		),
		s.wire.flags(),
		about(topicGPU,
			checkedFlag("gpu", "`auto|off` whether clients may have their slots in GPU memory here (auto)", oneOf(&s.gpu, "auto", "off")),
			&cli.BoolFlag{Name: "exit-on-gpu-failure", Usage: "if the server can no longer use any GPU, end it (exit code 1) as soon as no session runs, so that its supervisor starts it again", Destination: &s.exitOnGPUFailure},
		),
		about(topicLimits,
			checkedFlag("max-sessions", "`N` how many clients are served at once: 1 to 65536 (64)", number(&s.maxSessions, 1, 1<<16)),
			checkedFlag("max-memory", "`SIZE` the most memory that all sessions may take for rings and buffers, at least 8MiB; when little is left, a session gets a smaller ring (4GiB)", size(&s.maxMemoryBytes, 8<<20, 1<<50, 1)),
			checkedFlag("max-wait", "`SECONDS` how long a client waits for room before it is refused: 0 to 86400 (30)", number(&s.maxWaitSeconds, 0, 86400)),
			bwlimitFlag("all sessions together send and receive no faster", &s.bytesPerSecond),
		),
		about(topicOutput,
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "tell errors only", Destination: &s.quiet},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell every entry that was not copied, and what was deleted", Destination: &s.verbose},
		),
	)
}

// perform listens and serves until ctx ends, which is no error.
func (s *serveRun) perform(ctx context.Context, operands []string) error {
	s.checkedStderr.patience = logPatience // a log that nobody reads does not block sessions
	s.console = &console{w: s.stderr}
	addr, err := s.checkOptions(operands)
	if err != nil {
		return err
	}
	if s.admissions, err = s.newAdmissions(); err != nil {
		return err
	}
	defer s.admissions.close()
	wire, err := s.wire.read(s.getenv)
	if err != nil {
		return err
	}
	cfg := xfer.ServerConfig{
		Wire: wire,
		Keys: s.admissions, MaxSessions: s.maxSessions, MaxMemory: s.maxMemoryBytes, MaxWait: time.Duration(s.maxWaitSeconds) * time.Second, Timeouts: s.timeouts,
		Log: s.sessionEnded, Report: s.report,
		Limit: xfer.NewLimiter(s.bytesPerSecond), Followed: true,
	}
	if cfg.MaxWait == 0 {
		cfg.MaxWait = -1 // because 0 selects the default
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	loss := gpuLoss{serveRun: s, end: cancel}
	cfg.Load = loss.load
	if s.gpu != "off" {
		cfg.GPUs = loss.guard()
	}
	server := xfer.NewServer(cfg)
	rails, err := s.listenAt(server, addr)
	if err != nil {
		return errors.Join(err, server.Close())
	}
	s.tellWarnings()
	var attendants sync.WaitGroup
	attendants.Go(func() { s.handleSignals(ctx, server) })
	if s.listensByVerbs() {
		attendants.Go(func() { rails.follow(ctx) })
	}
	err = server.Serve(ctx)
	var lost *lostGPU
	if errors.As(context.Cause(ctx), &lost) {
		err = errors.Join(lost, err)
	}
	cancel(nil)
	attendants.Wait()
	return err
}

// checkOptions returns the address at which to listen.
func (s *serveRun) checkOptions(operands []string) (netip.AddrPort, error) {
	var none netip.AddrPort
	if len(operands) == 1 {
		return none, args.UsageErrorf("gdrcp serve takes no operand, and got %[1]s: to serve that directory, write --root %[1]s", args.Quote(operands[0]))
	}
	if len(operands) > 0 {
		return none, args.UsageErrorf("gdrcp serve takes no operand, and got %s (a file of the name serve is ./serve)", args.Quote(operands[0]))
	}
	addr, err := parseListen(s.listen)
	if err != nil {
		return none, err
	}
	s.loopback = addr.Addr().IsLoopback() && s.transport != "verbs"
	return addr, nil
}

// parseListen parses ADDR:PORT, ADDR or :PORT, which means all addresses of both families.
func parseListen(given string) (netip.AddrPort, error) {
	bad := args.UsageErrorf("--listen %s: not ADDR, ADDR:PORT or :PORT, with an IP address (IPv6 in brackets) and a port up to 65534", args.Quote(given))
	host, port, err := net.SplitHostPort(given)
	if err != nil {
		host, port = given, strconv.Itoa(xfer.DefaultPort)
		if inside, ok := strings.CutPrefix(given, "["); ok && strings.HasSuffix(inside, "]") {
			host = strings.TrimSuffix(inside, "]")
		}
	}
	switch {
	case host == "localhost":
		host = "127.0.0.1"
	case host == "" && err == nil: // :PORT
		host = "::"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return netip.AddrPort{}, bad
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n > 65534 {
		return netip.AddrPort{}, bad
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(n)), nil
}

// listensByVerbs reports whether the server is to listen on RDMA devices.
func (s *serveRun) listensByVerbs() bool { return s.transport != "tcp" && !s.loopback }

// rails returns the devices and those at which to listen, or the reason that there are none.
func (s *serveRun) rails() (devices, usable []rdma.Device, why string) {
	switch {
	case s.transport == "tcp":
		return nil, nil, "the server serves tcp only (--transport tcp)"
	case s.loopback:
		return nil, nil, "the server listens on loopback only"
	}
	return listRails(s.verbs, "there")
}

// railAddrs returns the addresses of a device that mean the same to every client,
// unlike IPv6 link-local addresses.
func railAddrs(d rdma.Device) []netip.Addr {
	var addrs []netip.Addr
	for _, a := range d.Addrs() {
		if !rdma.NeedsZone(a) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// listenAt listens by TCP at addr, and by verbs at the next port of every device's
// addresses. It returns the railFollower for these devices.
func (s *serveRun) listenAt(server *xfer.Server, addr netip.AddrPort) (*railFollower, error) {
	if s.transport != "verbs" {
		at, err := server.Listen(s.tcp, addr, rdma.Device{})
		if err != nil {
			return nil, err
		}
		addr = at
		s.tellListening("tcp", at)
	}
	port := addr.Port()
	if port != 0 {
		port++
	}
	rails := s.followRails(server, port)
	problem := rails.look()
	switch {
	case s.transport == "verbs" && len(server.Listening()) == 0:
		return nil, errors.Join(problem, s.noRail())
	case problem != nil:
		s.console.line("gdrcp: %s", lineOf(problem))
	}
	return rails, nil
}

// noRail returns the error of a server that is to offer only verbs but has no device.
func (s *serveRun) noRail() error {
	if _, err := s.verbs.Devices(); err != nil {
		return fmt.Errorf("listen by verbs: %w", err)
	}
	if _, _, why := listRails(s.verbs, "here"); why != "" {
		return fmt.Errorf("listen by verbs: %w: %s", rdma.ErrUnsupported, why)
	}
	return nil
}

func (s *serveRun) tellListening(by string, at netip.AddrPort) {
	if !s.quiet {
		marked := ""
		if s.verbose {
			marked = wireText(s.wire.wire)
		}
		s.console.line("gdrcp: serving %s on %s %s%s", s.admissions.describe(), by, at, marked)
	}
}

// sessionEnded reports how a session ended.
func (s *serveRun) sessionEnded(e xfer.SessionEnd) {
	what := e.What
	if e.Path != "" {
		what += " " + strconv.Quote(e.Path)
	}
	if e.More > 0 {
		what += fmt.Sprintf(" and %d more", e.More)
	}
	whose := e.Peer
	if e.Key != "" {
		whose = e.Key + "@" + e.Peer
	}
	switch {
	case e.Err != nil:
		s.console.line("gdrcp: %s: %s: %s", whose, what, lineOf(e.Err))
	case s.quiet:
	case e.Summary != nil:
		s.console.line("gdrcp: %s: %s: %s", whose, what, logText(e.Summary))
	default:
		s.console.line("gdrcp: %s: %s: done", whose, what)
	}
}

// dryPrefix returns the prefix that marks the reports of a dry run.
func dryPrefix(e *xfer.Event) string {
	if e.DryRun {
		return "dry run: "
	}
	return ""
}

// report prints, with -v, entries that were deleted or were not copied.
func (s *serveRun) report(e xfer.Event) {
	switch {
	case !s.verbose:
	case e.Kind == xfer.EventDeleted:
		s.console.line("gdrcp: %s: %s%s", e.Peer, dryPrefix(&e), deletedText(&e))
	case e.Kind == xfer.EventFile && e.Outcome == xfer.Kept:
		s.console.line("gdrcp: %s: %s%s", e.Peer, dryPrefix(&e), keptText(&e))
	case e.Kind == xfer.EventFile && (e.Outcome != xfer.Copied || e.Text != ""):
		s.console.line("gdrcp: %s: %s", e.Peer, endNames{"here", "at the client"}.text(&e))
	case isRailEvent(e.Kind):
		s.console.line("gdrcp: %s: %s", e.Peer, railText(&e))
	case e.Kind == xfer.EventRing:
		s.console.line("gdrcp: %s: %s", e.Peer, endNames{here: "here"}.ringText(&e))
	case e.Kind == xfer.EventMemory && !e.Remote:
		s.console.line("gdrcp: %s: %s", e.Peer, memoryText(e.Memory, false))
	}
}
