package xfer_test

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// blockedNICs are twoNICs whose packets the network drops. Nobody waits: the time that a dial would
// wait is recorded.
type blockedNICs struct {
	twoNICs
	dialled []string
	limits  []time.Duration // from the beginning of a dial
	ends    []time.Time
}

func (b *blockedNICs) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	r, err := b.twoNICs.Open(device, cfg)
	return blockedRail{r, b}, err
}

type blockedRail struct {
	rdma.Rail
	b *blockedNICs
}

func (r blockedRail) Dial(ctx context.Context, to netip.AddrPort, _ []byte) (rdma.Conn, error) {
	end, _ := ctx.Deadline()
	r.b.dialled, r.b.limits, r.b.ends = append(r.b.dialled, to.Addr().String()), append(r.b.limits, time.Until(end)), append(r.b.ends, end)
	return nil, &rdma.OpError{Op: "connect to", Peer: to, Err: context.DeadlineExceeded}
}

// If the network drops RDMA packets, TCP takes over after a lead of at most 10 s for an address,
// unless RDMA is required. The address that was dialled comes first, though the server has faster
// ones. It comes second if one address carries everything.
func TestVerbsHasALead(t *testing.T) {
	const dialled, faster = "127.0.0.1", "127.0.0.2"
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("content"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		nics  []string
		o     xfer.Options
		tried []string
	}{
		{"TCP takes over", []string{"nic1"}, xfer.Options{}, []string{faster}},
		{"required", []string{"nic1"}, xfer.Options{Require: "verbs"}, []string{faster}},
		{"the dialled address first", []string{"nic1", "nic0"}, xfer.Options{}, []string{dialled, faster}},
		{"the server's best first", []string{"nic1", "nic0"}, xfer.Options{Rails: 1}, []string{faster, dialled}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := tcpWay(t)
			s := serve(t, w)
			for _, name := range c.nics {
				device := nicNamed(name)
				if name == "nic1" {
					device.Ports[0].RateGbps *= 2
				}
				if _, err := s.server.Listen(twoNICs{tcp.New()}, netip.AddrPortFrom(netip.MustParseAddr(nicAddrs[name]), 0), device); err != nil {
					t.Fatal(err)
				}
			}
			nics := &blockedNICs{twoNICs: twoNICs{tcp.New()}}
			client := &xfer.Client{TCP: tcp.New(), Verbs: nics}
			o := w.options(t)
			o.Transport, o.Require, o.Rails = "auto", c.o.Require, c.o.Rails
			begun := time.Now()
			sum, err := client.Push(t.Context(), []string{file}, s.ep, "/", o)
			if !slices.Equal(nics.dialled, c.tried) {
				t.Fatalf("tried %q, want %q: %v", nics.dialled, c.tried, err)
			}
			if c.o.Require != "" {
				if !errors.Is(err, rdma.ErrUnsupported) || nics.ends[0].Before(begun.Add(30*time.Second)) {
					t.Errorf("%v, after %v", err, nics.limits)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(s.root, "file")); string(got) != "content" {
				t.Errorf("copied %q, %v", got, err)
			}
			if sum.Link.Transport != "tcp" || !strings.Contains(sum.Link.Why, c.tried[0]) {
				t.Errorf("%+v", sum.Link)
			}
			if slices.Max(nics.limits) > 10*time.Second {
				t.Errorf("TCP waits for %v", nics.limits)
			}
		})
	}
}
