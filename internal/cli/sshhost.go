package cli

import (
	"os"
	"runtime"
	"strings"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/internal/remote"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// sshHost is the host, with an optional user, on which a remote process is started.
type sshHost struct{ user, host string }

func (h sshHost) String() string {
	if h.user == "" {
		return h.host
	}
	return h.user + "@" + h.host
}

// splitHost parses [user@]host:path as scp does: a colon before the first slash makes
// an operand remote unless it is the first character. An IPv6 address is in brackets,
// which may contain the user, too.
func splitHost(operand string) (where sshHost, path string, ok bool) {
	host, path, found := strings.Cut(operand, ":")
	switch {
	case strings.Contains(host, "/"):
		return where, "", false
	case strings.HasPrefix(operand, "[") || strings.Contains(host, "@["):
		if host, path, found = strings.Cut(operand, "]:"); !found || strings.Contains(host, "/") {
			return where, "", false
		}
		host = strings.Replace(host, "[", "", 1)
	case !found || host == "":
		return where, "", false
	}
	where.host = host
	if at := strings.LastIndexByte(host, '@'); at >= 0 {
		where.user, where.host = host[:at], host[at+1:]
	}
	return where, path, true
}

// parseSSH makes a target of [user@]host:path. An empty path is the directory in which
// the remote process starts.
func (t *target) parseSSH(where sshHost, path string) error {
	if err := remote.CheckHost(where.user, where.host); err != nil {
		return args.UsageErrorf("%s: %v (a local file of that name is ./%s)", args.Quote(t.given), err, args.Quote(t.given))
	}
	if printable.Text(where.String()) != where.String() {
		return args.UsageErrorf("%s: not a host name", args.Quote(t.given))
	}
	if where.user == "" && strings.EqualFold(where.host+"://", scheme) && strings.HasPrefix(path, "/") && !strings.HasPrefix(path, "//") {
		return args.UsageErrorf("%s: a server is rdma://host[:port]/path, with two slashes (a host of the name %s needs a user: USER@%s)",
			args.Quote(t.given), where.host, args.Quote(t.given))
	}
	if strings.HasPrefix(path, "//") {
		return args.UsageErrorf("%s: the only form of URL is rdma://host[:port]/path", args.Quote(t.given))
	}
	t.remote, t.ssh, t.path = true, &where, path
	if path == "" {
		t.path = "."
	}
	return nil
}

// sshOptions are the options for starting a remote process.
type sshOptions struct {
	rsh        string
	remotePath string
	bootstrap  bool
}

// sshOptionNames returns the options that are meaningless to a remote process.
func sshOptionNames() []string { return []string{"rsh", "remote-path", "bootstrap"} }

func (s *sshOptions) flags() []cli.Flag {
	return about(topicFarEnd,
		&cli.StringFlag{Name: "rsh", Aliases: []string{"e"}, Usage: "`COMMAND` the remote shell that starts gdrcp at the host of host:path ($GDRCP_RSH, else ssh)", Destination: &s.rsh},
		&cli.StringFlag{Name: "remote-path", Usage: "`PATH` the gdrcp of that host, as the shell there evaluates it (gdrcp)", Destination: &s.remotePath},
		&cli.BoolFlag{Name: "bootstrap", Usage: "if gdrcp is missing there, or has another version, copy this gdrcp to the user's cache directory there and use it", Destination: &s.bootstrap},
	)
}

// origin prepares the start of a remote process.
func (p *program) origin(s *sshOptions, where sshHost) (*remote.Origin, error) {
	rsh, by := s.rsh, "--rsh"
	if rsh == "" {
		rsh, by = p.getenv("GDRCP_RSH"), "GDRCP_RSH"
	}
	if rsh == "" {
		rsh = "ssh"
	}
	words, err := remote.SplitCommand(rsh)
	if err != nil {
		return nil, args.UsageErrorf("%s %s: %v", by, args.Quote(rsh), err)
	}
	return &remote.Origin{
		Rsh: words, User: where.user, Host: where.host, RemotePath: s.remotePath,
		Protocol: xfer.ProtocolVersion, Version: p.versionText(), Stderr: unwrapWriter(p.stderr),
	}, nil
}

// machines returns, for each architecture, the output of uname -sm on hosts on which
// its binary starts.
func machines() map[string]string {
	return map[string]string{"amd64": "Linux x86_64", "arm64": "Linux aarch64"}
}

// binaries returns the programs that --bootstrap may copy: this program, and those
// without a C library that were installed with it.
func binaries() []remote.Binary {
	var all []remote.Binary
	exe, err := os.Executable()
	if err != nil {
		return nil
	}
	if runtime.GOOS == "linux" {
		all = append(all, remote.Binary{Path: exe, Machine: machines()[runtime.GOARCH]})
	}
	dir := exe[:strings.LastIndexByte(exe, '/')+1]
	for _, arch := range []string{"amd64", "arm64"} {
		for _, at := range []string{dir, dir + "../lib/gdrcp/"} {
			all = append(all, remote.Binary{Path: at + "gdrcp-static-linux-" + arch, Machine: machines()[arch], Beside: exe})
		}
	}
	return all
}
