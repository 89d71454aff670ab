package main

import (
	"errors"
	"io/fs"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"gdrcp/xfer"
)

const scheme = "rdma://"

// target is a SRC or a DST.
type target struct {
	given    string // as it was written
	remote   bool
	endpoint xfer.Endpoint
	// path is local, or below the root of the server.
	path string
}

// parseTarget reads an operand. What begins with rdma:// is remote, all else
// is a local path. The path of a remote one is percent-decoded; '?' and '#'
// stand for themselves.
func parseTarget(given string) (target, error) {
	t := target{given: given, path: given}
	if given == "" {
		return t, usageError("an empty name is neither a file nor a place")
	}
	if len(given) < len(scheme) || !strings.EqualFold(given[:len(scheme)], scheme) {
		return t, nil
	}
	t.remote = true
	authority, path := given[len(scheme):], ""
	if i := strings.IndexByte(authority, '/'); i >= 0 {
		authority, path = authority[:i], authority[i:]
	}
	var err error
	if t.endpoint, err = parseEndpoint(authority); err != nil {
		return t, usageError("%s: %v", quoteArg(given), err)
	}
	if t.path, err = url.PathUnescape(path); err != nil {
		return t, usageError("%s: bad percent-encoding (a %% in a name is written %%25)", quoteArg(given))
	}
	if strings.IndexByte(t.path, 0) >= 0 {
		return t, usageError("%s: a name cannot hold a NUL", quoteArg(given))
	}
	if t.path == "" {
		t.path = "/"
	}
	return t, nil
}

// parseEndpoint reads host, host:port, [v6] or [v6]:port.
func parseEndpoint(s string) (xfer.Endpoint, error) {
	e := xfer.Endpoint{Host: s, Port: xfer.DefaultPort}
	port, hasPort := "", false
	if rest, bracketed := strings.CutPrefix(s, "["); bracketed {
		var closed bool
		if e.Host, rest, closed = strings.Cut(rest, "]"); !closed {
			return e, errors.New("the [ of an IPv6 address has no ]")
		}
		e.Host = strings.Replace(e.Host, "%25", "%", 1) // RFC 6874 writes a zone so
		if a, err := netip.ParseAddr(e.Host); err != nil || !a.Is6() {
			return e, errors.New("in brackets must be an IPv6 address")
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
	case strings.ContainsAny(e.Host, " \t\r\n\x00") || xfer.Printable(e.Host) != e.Host:
		return e, errors.New("that is no host name")
	}
	if !hasPort {
		return e, nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	// The next port belongs to it too: rdma_cm listens there.
	if err != nil || n < 1 || n > 65534 {
		return e, errors.New("a port is a number from 1 to 65534")
	}
	e.Port = uint16(n)
	return e, nil
}

// plan is what is to be copied where.
type plan struct {
	push     bool
	endpoint xfer.Endpoint
	sources  []string
	dst      string
}

// planCopy reads SRC... DST and says which way the copy goes.
func planCopy(operands []string) (*plan, error) {
	if len(operands) < 2 {
		return nil, usageError("a copy needs SRC... and DST (gdrcp --help tells more)")
	}
	targets := make([]target, len(operands))
	for i, o := range operands {
		var err error
		if targets[i], err = parseTarget(o); err != nil {
			return nil, err
		}
	}
	sources, dst := targets[:len(targets)-1], targets[len(targets)-1]
	p := &plan{push: dst.remote, endpoint: dst.endpoint, dst: dst.path}
	for _, s := range sources {
		if s.remote == dst.remote {
			return nil, sameSide(s, dst)
		}
		if s.remote && len(p.sources) > 0 && s.endpoint.String() != p.endpoint.String() {
			return nil, usageError("%s and %s are on different servers: copy them one after the other", quoteArg(sources[0].given), quoteArg(s.given))
		}
		if s.remote {
			p.endpoint = s.endpoint
		}
		p.sources = append(p.sources, s.path)
	}
	return p, nil
}

// sameSide is the error of a copy that crosses no network.
func sameSide(s, dst target) error {
	if dst.remote {
		return usageError("%s and %s are both remote: one end of a copy is this machine", quoteArg(s.given), quoteArg(dst.given))
	}
	err := usageError("%s and %s are both local: one of SRC and DST is rdma://host[:port]/path", quoteArg(s.given), quoteArg(dst.given))
	for _, t := range []target{dst, s} {
		if h := hintOfColon(t.path); h != "" {
			return &hinted{err, h}
		}
	}
	return err
}

// hintOfColon tells who writes host:path, as for scp, how it is written here.
func hintOfColon(path string) string {
	host, rest, found := strings.Cut(path, ":")
	if !found || host == "" || strings.Contains(host, "/") {
		return ""
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return "for " + quoteArg(path) + " on a host that runs gdrcp serve write " + quoteArg(scheme+host+"/"+strings.TrimPrefix(rest, "/"))
}
