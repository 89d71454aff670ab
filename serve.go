package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gdrcp/rdma"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// serving is a server from the command line.
type serving struct {
	*program
	root, listen       string
	readOnly, insecure bool
	transport          string
	maxSessions        int
	bytesPerSecond     int64
	gpu                string
	quiet, verbose     bool

	console *console
	dir     string // what is served, for messages
}

func (p *program) serveCommand() *cli.Command {
	s := &serving{program: p, transport: "auto", listen: "127.0.0.1:" + strconv.Itoa(xfer.DefaultPort)}
	return &cli.Command{
		Name: "serve", Usage: "let clients copy to and from a directory", ArgsUsage: "--root DIR [OPTIONS]", Action: action(s.run),
		Description: `Lets clients copy to and from DIR: by TCP at ADDR:PORT, and by RDMA at PORT+1 of the addresses of every RDMA device.
Runs until SIGINT, SIGTERM or, unless nohup started it, SIGHUP.`,
		Flags: s.flags(),
	}
}

// flags are the options of a server, by topic.
func (s *serving) flags() []cli.Flag {
	return slices.Concat(
		about(topicServe,
			&cli.StringFlag{Name: "root", Usage: "`DIR` the directory that is served", Destination: &s.root},
			&cli.BoolFlag{Name: "read-only", Usage: "clients can only read", Destination: &s.readOnly},
		),
		about(topicAccess,
			&cli.StringFlag{Name: "listen", Usage: "`ADDR:PORT` where to listen (" + s.listen + "): ADDR alone has port 7473, :PORT is all addresses, port 0 takes a free one", Destination: &s.listen, Value: s.listen},
			&cli.BoolFlag{Name: "insecure-listen", Usage: "allow addresses that others reach: there is no access control yet", Destination: &s.insecure},
		),
		about(topicTransport,
			checkedFlag("transport", "`auto|verbs|tcp` what to offer: both where there are RDMA devices, or one (auto)", word(&s.transport, "auto", "verbs", "tcp")),
		),
		about(topicGPU,
			checkedFlag("gpu", "`auto|off` whether clients may have their slots in GPU memory here (auto)", word(&s.gpu, "auto", "off")),
		),
		about(topicLimits,
			checkedFlag("max-sessions", "`N` how many clients are served at once: 1 to 65536 (64)", number(&s.maxSessions, 1, 1<<16)),
			bwlimitFlag("all sessions together take at most that much of the network", &s.bytesPerSecond),
		),
		about(topicOutput,
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "tell errors only", Destination: &s.quiet},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell every entry that was not copied", Destination: &s.verbose},
		),
	)
}

// run listens and serves until ctx ends, which is a good end.
func (s *serving) run(ctx context.Context, operands []string) error {
	s.console = &console{w: s.stderr}
	addr, err := s.checkOptions(operands)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(s.root)
	if err != nil {
		return err
	}
	defer root.Close()
	cfg := xfer.ServerConfig{
		Root: root, ReadOnly: s.readOnly, MaxSessions: s.maxSessions, Timeouts: s.timeouts,
		Log: s.ended, Report: s.report,
		Load: boundHeap, Limit: xfer.NewLimiter(s.bytesPerSecond),
	}
	if s.gpu != "off" {
		cfg.GPUs = s.gpus
	}
	devices, why := s.rails()
	cfg.NoRails = why
	if len(devices) > 0 {
		s.leaveCPUs("verbs")
	}
	server := xfer.NewServer(cfg)
	if err := s.listenAt(server, addr, devices); err != nil {
		return errors.Join(err, server.Close())
	}
	if s.insecure && !s.quiet {
		s.console.line("gdrcp: warning: there is no access control: whoever reaches these addresses can use everything under %s", quoteArg(s.dir))
	}
	return server.Serve(ctx)
}

// checkOptions returns the address to listen at.
func (s *serving) checkOptions(operands []string) (netip.AddrPort, error) {
	var none netip.AddrPort
	if len(operands) > 0 {
		return none, usageError("gdrcp serve takes no operand, and %s is one (a file of that name is ./serve)", quoteArg(operands[0]))
	}
	if s.root == "" {
		return none, usageError("gdrcp serve needs --root DIR, the directory to serve")
	}
	var err error
	if s.dir, err = filepath.Abs(s.root); err != nil {
		return none, err
	}
	addr, err := parseListen(s.listen)
	if err != nil {
		return none, err
	}
	deeds := "read and write"
	if s.readOnly {
		deeds = "read"
	}
	refused := func(where string) error {
		return &hinted{
			usageError("will not listen on %s: anybody who reaches that address could %s everything under --root: access control does not exist yet", where, deeds),
			"--insecure-listen listens nevertheless",
		}
	}
	switch {
	case s.insecure:
	case s.transport == "verbs":
		return none, refused("RDMA devices")
	case !addr.Addr().IsLoopback():
		return none, refused(addr.Addr().String())
	}
	return addr, nil
}

// parseListen reads ADDR:PORT, ADDR or :PORT, which is all addresses of both
// families.
func parseListen(given string) (netip.AddrPort, error) {
	bad := usageError("--listen %s: not ADDR, ADDR:PORT or :PORT, with an IP address (IPv6 in brackets) and a port up to 65534", quoteArg(given))
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

// rails lists the devices to listen on, or says why there are none.
func (s *serving) rails() (usable []rdma.Device, why string) {
	switch {
	case s.transport == "tcp":
		return nil, "the server serves tcp only (--transport tcp)"
	case !s.insecure:
		return nil, "the server listens on loopback only (no --insecure-listen)"
	}
	devices, err := s.verbs.Devices()
	if err != nil {
		return nil, "no RDMA device there: " + lineOf(err)
	}
	for _, d := range devices {
		problem := d.Problem
		if d.Usable() {
			problem = "it has link-local addresses only"
		}
		if d.Usable() && len(railAddrs(d)) > 0 {
			usable = append(usable, d)
		} else {
			why = fmt.Sprintf("no usable RDMA device there: %s: %s", d.Name, problem)
		}
	}
	if len(usable) > 0 {
		why = ""
	}
	return usable, why
}

// railAddrs lists the addresses of a device that mean the same to any client:
// link-local ones do not.
func railAddrs(d rdma.Device) []netip.Addr {
	var addrs []netip.Addr
	for _, a := range d.Addrs() {
		if !a.IsLinkLocalUnicast() {
			addrs = append(addrs, a)
		}
	}
	return addrs
}

// listenAt listens by TCP at addr, and by verbs at the next port of every
// device's addresses.
func (s *serving) listenAt(server *xfer.Server, addr netip.AddrPort, devices []rdma.Device) error {
	if s.transport != "verbs" {
		at, err := server.Listen(s.tcp, addr, rdma.Device{})
		if err != nil {
			return err
		}
		addr = at
		s.tellListening("tcp", at)
	}
	port := addr.Port()
	if port != 0 {
		port++
	}
	listening := 0
	var problem error
	for _, d := range devices {
		for _, a := range railAddrs(d) {
			at, err := server.Listen(s.verbs, netip.AddrPortFrom(a, port), d)
			if err != nil {
				problem = errors.Join(problem, err)
				continue
			}
			listening++
			s.tellListening("verbs "+d.Name, at)
		}
	}
	switch {
	case s.transport == "verbs" && listening == 0:
		return errors.Join(problem, s.noRail())
	case problem != nil:
		s.console.line("gdrcp: %s", lineOf(problem))
	}
	return nil
}

// noRail is the error of a server that is to offer verbs only.
func (s *serving) noRail() error {
	_, why := s.rails()
	if why == "" {
		return nil
	}
	_, err := s.verbs.Devices()
	if err == nil {
		err = rdma.ErrUnsupported
	}
	return fmt.Errorf("listen by verbs: %w: %s", err, why)
}

func (s *serving) tellListening(by string, at netip.AddrPort) {
	if !s.quiet {
		s.console.line("gdrcp: serving %s on %s %s", quoteArg(s.dir), by, at)
	}
}

// ended tells how a session ended.
func (s *serving) ended(e xfer.SessionEnd) {
	what := e.What
	if e.Path != "" {
		what += " " + strconv.Quote(e.Path)
	}
	if e.More > 0 {
		what += fmt.Sprintf(" and %d more", e.More)
	}
	switch {
	case e.Err != nil:
		s.console.line("gdrcp: %s: %s: %s", e.Peer, what, lineOf(e.Err))
	case s.quiet:
	case e.Summary != nil:
		s.console.line("gdrcp: %s: %s: %s", e.Peer, what, summaryText(e.Summary))
	default:
		s.console.line("gdrcp: %s: %s: done", e.Peer, what)
	}
}

func (s *serving) report(e xfer.Event) {
	switch {
	case !s.verbose:
	case e.Kind == xfer.EventFile && e.Outcome != xfer.Copied:
		s.console.line("gdrcp: %s: %s", e.Peer, xfer.Printable(e.Text))
	case e.Kind == xfer.EventMemory && !e.Remote:
		s.console.line("gdrcp: %s: %s", e.Peer, memoryText(e.Memory, false))
	}
}
