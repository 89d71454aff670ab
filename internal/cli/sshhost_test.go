package cli

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/remote"
	"gdrcp/rdma"
	"gdrcp/xfer"
)

func TestRemoteShellCommand(t *testing.T) {
	for _, c := range []struct {
		option, variable string
		want             []string
	}{
		{"", "", []string{"ssh"}},
		{"", "rsh -x", []string{"rsh", "-x"}},
		{"ssh -F 'a b'", "rsh", []string{"ssh", "-F", "a b"}},
	} {
		p, _, _ := newProgram()
		p.getenv = func(string) string { return c.variable }
		o, err := p.origin(&sshOptions{rsh: c.option}, sshHost{"me", "h"})
		if err != nil || !slices.Equal(o.Rsh, c.want) || o.RemotePath != "" || o.User != "me" || o.Host != "h" {
			t.Errorf("%q, %q: %+v, %v", c.option, c.variable, o, err)
		}
	}
	gdrcp(t, "--rsh", "ssh 'x", "a", "h:b").want(t, exitUsage)
}

// Options for the origin are not passed on, options that name its files are refused,
// and filter rules are read here.
func TestRelayedOptions(t *testing.T) {
	got, err := relayedArgs([]string{"--recursive", "--rsh=x", "--remote-path=y", "--bootstrap", "--exclude=*.rsh", "--exclude-from=f", "--filter=- x", "--from0", "--json"})
	if want := []string{"--recursive", "--json"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	for _, name := range localFiles() {
		if got, err := relayedArgs([]string{"--" + name + "=f"}); err == nil {
			t.Errorf("%q is passed on", got)
		}
	}
	known := args.EveryOption((&program{}).app().Commands)
	for _, name := range sshOptionNames() {
		if _, ok := known[name]; !ok {
			t.Errorf("there is no option --%s", name)
		}
	}
}

// The hidden command for remote processes prints only its banner.
func TestFarEndIsHidden(t *testing.T) {
	if r := gdrcp(t, "--help").want(t, exitOK); strings.Contains(r.out, remote.FarEndCommand) {
		t.Error("the help names the far end's command")
	}
	gdrcp(t, remote.FarEndCommand, "x").want(t, exitUsage)
	// Without an origin, it prints its banner and ends.
	if r := gdrcp(t, remote.FarEndCommand); r.code != exitError || !strings.HasPrefix(r.out, "gdrcp-far-end: protocol ") {
		t.Errorf("%+v", r)
	}
}

func TestListenEverywhere(t *testing.T) {
	p, _, _ := newProgram()
	p.verbs = softDevice{p.tcp}
	rails, why := usableRails(p.verbs)
	if len(rails) != 1 || why != "" {
		t.Fatalf("%v, %q", rails, why)
	}
	server := xfer.NewServer(xfer.ServerConfig{})
	defer server.Close()
	heard := p.listenEverywhere(server, rails)
	at := heard.at
	if heard.noRails != "" || heard.noTCP != "" {
		t.Errorf("%+v", heard)
	}
	if len(at) < 2 || at[0].Transport != "verbs" || at[0].Device != "tcp" {
		t.Fatalf("%+v", at)
	}
	for i, a := range at {
		if a.Addr.Port() == 0 || i > 1 && at[i-1].Addr.Addr().IsLoopback() && !a.Addr.Addr().IsLoopback() && at[i-1].Transport == "tcp" {
			t.Errorf("%d: %+v", i, a)
		}
	}
	if reached, err := remote.Reach(t.Context(), at[1:]); err != nil || len(reached) == 0 {
		t.Errorf("none of %v is reached: %v", at, err)
	}
	rates := p.localRates()
	interfaces, err := p.interfaceAddresses()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range interfaces {
		if rate, ok := rates[a.Addr.Addr()]; rate != a.RateGbps || !ok && !a.Addr.Addr().IsLoopback() {
			t.Errorf("%+v: here the rate is %v", a, rate)
		}
	}
	for _, c := range [][3]float64{{0, 0, 0}, {0, 25, 25}, {100, 0, 100}, {100, 25, 25}, {25, 100, 25}} {
		if got := slower(c[0], c[1]); got != c[2] {
			t.Errorf("of %v and %v: %v", c[0], c[1], got)
		}
	}
	if _, why := usableRails(noDevices()); !strings.Contains(why, "no RDMA device there") {
		t.Errorf("%q", why)
	}
}

// deafTCP has addresses, and listening fails on all of them.
type deafTCP struct{ rdma.Provider }

func (deafTCP) Listen(netip.AddrPort, rdma.Wire) (rdma.Listener, error) { return nil, syscall.EMFILE }

// If listening fails everywhere, the offer contains the reason.
func TestListenNowhere(t *testing.T) {
	p, _, _ := newProgram()
	p.tcp = deafTCP{p.tcp}
	p.verbs = &deviceList{err: syscall.ENOMEM}
	rails, _ := softDevice{p.tcp}.Devices()
	server := xfer.NewServer(xfer.ServerConfig{})
	defer server.Close()
	heard := p.listenEverywhere(server, rails)
	if len(heard.at) > 0 || !strings.Contains(heard.noRails, "listened on: tcp: cannot allocate memory") || !strings.Contains(heard.noTCP, "too many open files") {
		t.Errorf("%+v", heard)
	}
	_, noTCP := p.pathsTo(t.Context(), "node2", nil, heard.noTCP, &xfer.Options{})
	if noTCP == nil || !strings.Contains(noTCP.Error(), "too many open files") {
		t.Errorf("%v", noTCP)
	}
}

// This program is the first that --bootstrap may copy.
func TestBinaries(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := binaries()
	if len(all) == 0 || all[0].Path != exe {
		t.Fatalf("%+v", all)
	}
	beside := filepath.Join(filepath.Dir(exe), "gdrcp-static-linux-amd64")
	if !slices.ContainsFunc(all, func(b remote.Binary) bool { return b.Path == beside && b.Machine == "Linux x86_64" }) {
		t.Errorf("%+v lacks %s", all, beside)
	}
}
