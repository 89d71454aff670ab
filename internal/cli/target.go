package cli

import (
	"errors"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/xfer"
)

const scheme = "rdma://"

// target is a SRC or a DST.
type target struct {
	given    string // as it was written
	remote   bool
	endpoint xfer.Endpoint // of a server that listens
	ssh      *sshHost      // the host on which to start a remote process instead
	// path is local, or relative to the root of the server, or on the host of ssh.
	path string
}

// parseTarget parses an operand. An operand that begins with rdma:// is at a server;
// its path is percent-decoded, and '?' and '#' have no special meaning. An operand with
// a colon before the first slash is [user@]host:path. Any other is a local path.
func parseTarget(given string) (target, error) {
	t := target{given: given, path: given}
	if given == "" {
		return t, args.UsageErrorf("an operand is empty")
	}
	if len(given) < len(scheme) || !strings.EqualFold(given[:len(scheme)], scheme) {
		if where, path, ok := splitHost(given); ok {
			return t, t.parseSSH(where, path)
		}
		return t, nil
	}
	t.remote = true
	authority, path := given[len(scheme):], ""
	if i := strings.IndexByte(authority, '/'); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	var err error
	if t.endpoint, err = parseEndpoint(authority); err != nil {
		return t, args.UsageErrorf("%s: %v", args.Quote(given), err)
	}
	if t.path, err = url.PathUnescape(path); err != nil {
		return t, args.UsageErrorf("%s: bad percent-encoding (a %% in a name is written %%25)", args.Quote(given))
	}
	if strings.IndexByte(t.path, 0) >= 0 {
		return t, args.UsageErrorf("%s: a name cannot hold a NUL", args.Quote(given))
	}
	if t.path == "" {
		t.path = "/"
	}
	return t, nil
}

// parseEndpoint parses host, host:port, [v6] or [v6]:port.
func parseEndpoint(s string) (xfer.Endpoint, error) {
	e := xfer.Endpoint{Host: s, Port: xfer.DefaultPort}
	port, hasPort := "", false
	if rest, bracketed := strings.CutPrefix(s, "["); bracketed {
		var closed bool
		if e.Host, rest, closed = strings.Cut(rest, "]"); !closed {
			return e, errors.New("the [ of an IPv6 address has no ]")
		}
		e.Host = strings.Replace(e.Host, "%25", "%", 1) // RFC 6874 writes a zone this way
		if a, err := netip.ParseAddr(e.Host); err != nil || !a.Is6() {
			return e, errors.New("only an IPv6 address can be in brackets")
		}
		if port, hasPort = strings.CutPrefix(rest, ":"); !hasPort && rest != "" {
			return e, errors.New("only a port can follow the ] of an address")
		}
	} else {
		if strings.Count(s, ":") > 1 {
			return e, errors.New("an IPv6 address is written in brackets: rdma://[::1]/path")
		}
		e.Host, port, hasPort = strings.Cut(s, ":")
	}
	switch {
	case e.Host == "":
		return e, errors.New("a host is missing")
	case strings.Contains(e.Host, "@"):
		return e, errors.New("user names are not supported: write rdma://host/path")
	case strings.ContainsAny(e.Host, " \t\r\n\x00") || printable.Text(e.Host) != e.Host:
		return e, errors.New("not a host name")
	}
	if !hasPort {
		return e, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	// The next port must be valid, too: rdma_cm listens there.
	if err != nil || n < 1 || n > 65534 {
		return e, errors.New("a port is a number from 1 to 65534")
	}
	e.Port = uint16(n)
	return e, nil
}

// plan is what to copy, from where and to where.
type plan struct {
	push     bool
	local    bool // both ends are on this machine
	endpoint xfer.Endpoint
	far      *sshHost // the host of the peer, unless that is a server
	from     *sshHost // the host of the sources, if both ends are remote processes
	sources  []string
	dst      string
	// descriptor is the descriptor of this process that DST named by a path, or 0. If
	// it is set, dst is -.
	descriptor int
}

// planCopy parses SRC... DST and returns the plan of the copy.
func planCopy(operands []string) (*plan, error) {
	if len(operands) < 2 {
		return nil, args.UsageErrorf("a copy needs SRC... and DST (see gdrcp --help)")
	}
	targets := make([]target, len(operands))
	for i, o := range operands {
		var err error
		if targets[i], err = parseTarget(o); err != nil {
			return nil, err
		}
	}
	sources, dst := targets[:len(targets)-1], targets[len(targets)-1]
	p := &plan{push: dst.remote, dst: dst.path}
	for i := range sources {
		s := &sources[i]
		if s.remote && dst.remote && (s.ssh == nil || dst.ssh == nil) {
			return nil, bothRemote(s, &dst)
		}
		if !s.sameServer(&sources[0]) {
			return nil, args.UsageErrorf("%s and %s are on different servers: copy them one after the other", args.Quote(sources[0].given), args.Quote(s.given))
		}
		p.sources = append(p.sources, s.path)
	}
	if !dst.remote {
		if fd, is, err := writableDescriptor(dst.path); err != nil {
			return nil, err
		} else if is {
			p.dst, p.descriptor = streamName, fd
		}
	}
	there := &sources[0]
	if p.local = !there.remote && !dst.remote; p.local {
		return p, p.chooseDirection()
	}
	if dst.remote {
		p.from, there = there.ssh, &dst
	}
	p.endpoint, p.far = there.endpoint, there.ssh
	return p, nil
}

// sameServer reports whether two sources are on the same host.
func (t *target) sameServer(other *target) bool {
	if t.ssh != nil && other.ssh != nil {
		return *t.ssh == *other.ssh
	}
	return t.remote == other.remote && t.ssh == other.ssh && t.endpoint.String() == other.endpoint.String()
}

// chooseDirection chooses which end of a copy within this machine is the client: an end
// that is a stream, or else the source, which may have any number of names.
func (p *plan) chooseDirection() error {
	p.push = p.dst != streamName
	if !p.push && slices.Contains(p.sources, streamName) {
		return args.UsageErrorf("a copy of standard input to standard output does not need gdrcp: use cat")
	}
	return nil
}

// bothRemote returns the error for a copy with no end on this machine.
func bothRemote(s, dst *target) error {
	return args.UsageErrorf("%s and %s are both remote: with rdma://, one end of the copy must be this machine", args.Quote(s.given), args.Quote(dst.given))
}
