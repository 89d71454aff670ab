package cli

import (
	"context"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/remote"
	"gdrcp/internal/trust"
	"gdrcp/xfer"
)

// beOfferer makes the test binary a remote process that offers the addresses in its
// value, separated by commas, and then fails.
const beOfferer = "GDRCP_TEST_BE_OFFERER"

func offerer(addresses string) int {
	mux, talk, err := remote.Answer(context.Background(), stdio{os.Stdin, os.Stdout}, remote.Banner{Protocol: xfer.ProtocolVersion, Version: "offers"})
	if err != nil {
		return 1
	}
	defer mux.Close()
	if _, err := talk.Asked(); err != nil {
		return 1
	}
	o := &remote.Offer{Home: "/", Machine: []byte("another one")}
	for at := range strings.SplitSeq(addresses, ",") {
		o.Addresses = append(o.Addresses, remote.Address{Transport: "tcp", Addr: netip.MustParseAddrPort(at)})
	}
	if talk.Offer(o) == nil {
		time.Sleep(300 * time.Millisecond)
		_ = talk.Refuse("it gives up", 0)
		_ = talk.Hear(context.Background())
	}
	return 0
}

// The copy never dials loopback or this host's own addresses for a remote process on
// another host, whatever that offers.
func TestFarEndOffersThisHost(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var dialled atomic.Int64
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			dialled.Add(1)
			c.Close()
		}
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	offers := []string{netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port).String(), netip.AddrPortFrom(netip.MustParseAddr("::ffff:127.0.0.2"), port).String()}
	own, err := net.InterfaceAddrs()
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLinkLocalUnicast() {
			offers = append(offers, netip.AddrPortFrom(p.Addr(), port).String())
		}
	}
	rsh := `sh -c 'host=$1; shift; if [ $host = evil ]; then export ` + beOfferer + `=` + strings.Join(offers, ",") + `; fi; exec sh -c "$*"' rsh`
	src := t.TempDir()
	makeFiles(t, src, map[string]string{"a": "one"})
	for _, source := range []string{src + "/a", "good:" + src + "/a"} {
		r := gdrcp(t, "--retries", "0", "--rsh", rsh, "--remote-path", beMain+"=1 "+exe, source, "evil:/tmp/none").want(t, exitError)
		if n := dialled.Load(); n != 0 {
			t.Errorf("from %s: this host's own port got %d connections; it wrote %q", source, n, r.err)
		}
	}
}

func TestDialable(t *testing.T) {
	k, err := trust.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	other, err := trust.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	at := func(s string) remote.Address { return remote.Address{Addr: netip.MustParseAddrPort(s)} }
	offered := []remote.Address{at("192.0.2.1:1"), at("127.0.0.1:1"), at("[::1]:1"), at("[2001:db8::1]:1"), at("[::ffff:127.8.9.10]:1")}
	for _, c := range []struct {
		name  string
		proof []byte
		want  int
	}{
		{"this machine", machineProof(k), 5},
		{"none", nil, 2},
		{"empty", []byte{}, 2},
		{"by another key", machineProof(other), 2},
		{"a part", machineProof(k)[:16], 2},
	} {
		if got := dialable(offered, k, c.proof); len(got) != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}
