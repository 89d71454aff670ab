package cli

import (
	"context"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
)

func TestBench(t *testing.T) {
	s := startServer(t)
	r := gdrcp(t, "bench", "rdma://"+s.addr, "--bytes", "8M", "--rounds", "20", "--qps", "2", "--slots=4", "--chunk-size", "512K").want(t, exitOK)
	var first []string
	for line := range strings.Lines(r.out) {
		if f := strings.Fields(line); len(f) > 2 {
			first = append(first, f[0]+" "+f[2])
		}
	}
	want := []string{"BANDWIDTH DIGEST", "tcp none", "tcp xxh3", "TIME DIGEST", "tcp none", "tcp none", "tcp xxh3", "tcp xxh3", "LATENCY OPERATION", "tcp send", "tcp write", "tcp write-imm"}
	if !slices.Equal(first, want) || r.err != autoLine {
		t.Errorf("it wrote\n%s%s", r.out, r.err)
	}
}

func TestBenchEvents(t *testing.T) {
	s := startServer(t)
	r := gdrcp(t, "bench", "--json", "--transport", "tcp", "--hash", "blake3,none", "--bytes=3MiB", "--rounds", "20", "rdma://"+s.addr).want(t, exitOK)
	var seen []string
	for _, e := range r.events(t) {
		switch e["event"] {
		case "bandwidth":
			seen = append(seen, e["hash"].(string))
			if e["transport"] != "tcp" || e["bytes"] != 3145728.0 || e["mib_per_s"].(float64) <= 0 || e["seconds"].(float64) <= 0 || e["imm"] != "write-with-imm" || e["qps"] != 1.0 {
				t.Errorf("event %v", e)
			}
		case "latency":
			seen = append(seen, e["op"].(string))
			least, median, p99 := e["min_us"].(float64), e["median_us"].(float64), e["p99_us"].(float64)
			if least <= 0 || median < least || p99 < median || e["rounds"] != 20.0 {
				t.Errorf("event %v", e)
			}
		default:
			t.Errorf("event %v", e)
		}
	}
	if !slices.Equal(seen, []string{"blake3", "none", "send", "write", "write-imm"}) || r.err != "" {
		t.Errorf("events for %v, and it wrote %q", seen, r.err)
	}
	if r := gdrcp(t, "bench", "--json", "--rounds", "0", "--bytes", "1M", "rdma://"+s.addr).want(t, exitOK); strings.Contains(r.out, "latency") {
		t.Errorf("--rounds 0 wrote %s", r.out)
	}
}

// canceling is TCP as if the user pressed ^C when it is opened.
type canceling struct {
	rdma.Provider
	cancel context.CancelFunc
}

func (c canceling) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	c.cancel()
	return c.Provider.Open(device, cfg)
}

// A bench over verbs is compared with TCP if the server offers that. Its results are
// printed whatever happens to the comparison.
func TestBenchWithoutComparison(t *testing.T) {
	cpus := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	s := startServerWith(t, softDevice{tcp.New()}, "--transport", "verbs")
	at := netip.MustParseAddrPort(s.addr)
	addr := netip.AddrPortFrom(at.Addr(), at.Port()-1).String() // where TCP would be
	for _, interrupted := range []bool{false, true} {
		p, out, errs := newProgram()
		p.verbs = softDevice{p.tcp}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		want, text := exitOK, "gdrcp: no comparison with tcp: "
		if interrupted {
			p.tcp = canceling{p.tcp, cancel}
			want, text = exitInterrupted, "gdrcp: interrupted\n"
		}
		code := p.run(ctx, []string{"gdrcp", "bench", "--transport", "verbs", "--bytes", "1M", "--rounds", "10", "rdma://" + addr})
		if code != want || !strings.Contains(errs.String(), text) {
			t.Errorf("interrupted %v: exit code %d, and it wrote %q", interrupted, code, errs)
		}
		if n := strings.Count(out.String(), "verbs "); n != 9 {
			t.Errorf("interrupted %v: %d results, want 9:\n%s", interrupted, n, out)
		}
	}
}

// Naming RDMA devices does not prevent the comparison with TCP.
func TestBenchOfNamedRailsIsCompared(t *testing.T) {
	cpus := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	s := startRDMAServer(t, "--listen", ":0")
	for _, options := range []string{"--remote-rail tcp", "--rail tcp --rail 127.0.0.1"} {
		p, out, errs := newProgram()
		p.verbs = softDevice{p.tcp}
		code := p.run(t.Context(), append([]string{"gdrcp", "bench", "--transport", "verbs", "--bytes", "1M", "--rounds", "10", "rdma://" + s.addr}, strings.Fields(options)...))
		if code != exitOK || strings.Contains(errs.String(), "no comparison") || strings.Count(out.String(), "\ntcp ") != 3 {
			t.Errorf("%s: exit code %d, and it wrote\n%s%s", options, code, out, errs)
		}
	}
}

// After an error, earlier results are still printed.
func TestBenchErrorKeepsResults(t *testing.T) {
	s := startServer(t)
	p, out, errs := newProgram()
	p.tcp = &forOneSession{Provider: p.tcp}
	code := p.run(t.Context(), []string{"gdrcp", "bench", "--transport", "tcp", "--bytes", "1M", "rdma://" + s.addr})
	if code != exitUnsupported || strings.Count(out.String(), "tcp     none") != 1 || strings.Contains(out.String(), "LATENCY") {
		t.Errorf("exit code %d, and it wrote\n%s%s", code, out, errs)
	}
}

// forOneSession can be opened twice: for the door and for the session.
type forOneSession struct {
	rdma.Provider
	opened int
}

func (o *forOneSession) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	if o.opened == 2 {
		return nil, rdma.ErrUnsupported
	}
	o.opened++
	return o.Provider.Open(device, cfg)
}

// With few CPUs, one is left free for RDMA and used again for TCP.
func TestLeaveCPUs(t *testing.T) {
	if runtime.NumCPU() > 2 {
		t.Skip("needs a machine of one or two CPUs")
	}
	t.Setenv("GOMAXPROCS", "")
	cpus := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	p, _, _ := newProgram()
	for _, c := range []struct {
		transport string
		want      int
	}{{"tcp", cpus}, {"verbs", 1}, {"verbs", 1}, {"tcp", min(cpus, runtime.NumCPU())}} {
		if p.limitCPUs(c.transport); runtime.GOMAXPROCS(0) != c.want {
			t.Errorf("%s: %d CPUs, want %d", c.transport, runtime.GOMAXPROCS(0), c.want)
		}
	}
}
