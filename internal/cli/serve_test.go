package cli

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

func TestServeNeedsAKey(t *testing.T) {
	for _, args := range [][]string{{"serve", "--root", t.TempDir()}, {"rdma://localhost/x", t.TempDir()}, {"bench", "rdma://localhost"}} {
		p, _, errs := newProgram()
		p.getenv = func(string) string { return "" }
		if code := p.run(t.Context(), append([]string{"gdrcp"}, args...)); code != exitUsage || !strings.Contains(errs.String(), "gdrcp: no key is named") || strings.Count(errs.String(), "hint: ") != 1 {
			t.Errorf("%v: exit code %d, and it wrote %q", args, code, errs)
		}
	}
}

func TestParseListen(t *testing.T) {
	for in, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "10.0.0.1": "10.0.0.1:7473", "[::1]:5": "[::1]:5", "::1": "[::1]:7473", "localhost:0": "127.0.0.1:0",
		":80": "[::]:80", ":0": "[::]:0", "[::1]": "[::1]:7473", "[fe80::1%eth0]": "[fe80::1%eth0]:7473", "localhost": "127.0.0.1:7473",
		"[::ffff:127.0.0.1]:9": "127.0.0.1:9",
	} {
		if got, err := parseListen(in); err != nil || got.String() != want {
			t.Errorf("%s: %v, %v; want %s", in, got, err, want)
		}
	}
	for _, in := range []string{"", ":", "[]", "[host]", "host:80", "127.0.0.1:", "127.0.0.1:65535", "127.0.0.1:x", "1.2.3", "[::1"} {
		if got, err := parseListen(in); err == nil || codeOf(err) != exitUsage {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
}

func TestServeErrors(t *testing.T) {
	taken := startServer(t)
	r := gdrcp(t, "serve", "--root", t.TempDir(), "--listen", taken.addr).want(t, exitError)
	if !strings.Contains(r.err, taken.addr) || !strings.Contains(r.err, "address already in use") || !strings.Contains(r.err, "hint: another program uses that port") {
		t.Errorf("port taken: it wrote %q", r.err)
	}
	r = gdrcp(t, "serve", "--root", t.TempDir()+"/none").want(t, exitError)
	if !strings.Contains(r.err, "no such file or directory") {
		t.Errorf("no root: it wrote %q", r.err)
	}
	r = gdrcp(t, "serve", "--root", t.TempDir(), "--transport", "verbs", "--listen", "127.0.0.1:0").want(t, exitUnsupported)
	if r.err != "gdrcp: listen by verbs: the kernel knows no RDMA device\nhint: plug one in\n" {
		t.Errorf("no device: it wrote %q", r.err)
	}
	p, _, errs := newProgram()
	p.verbs = &deviceList{devices: []rdma.Device{{Name: "mlx", Problem: "its port is down"}}}
	code := p.run(t.Context(), []string{"gdrcp", "serve", "--root", t.TempDir(), "--transport", "verbs", "--listen", "127.0.0.1:0"})
	if code != exitUnsupported || !strings.HasSuffix(errs.String(), ": no usable RDMA device here: mlx: its port is down\n") {
		t.Errorf("no usable device: exit code %d, it wrote %q", code, errs)
	}
}

func TestReadOnly(t *testing.T) {
	s := startServer(t, "--read-only")
	makeFiles(t, s.root, map[string]string{"a": "A"})
	dir := t.TempDir()
	gdrcp(t, s.url("a"), dir).want(t, exitOK)
	r := gdrcp(t, dir+"/a", s.url("b")).want(t, exitError)
	if !strings.Contains(r.err, "the server is read-only") {
		t.Errorf("it wrote %q", r.err)
	}
	if got := listFiles(t, s.root); !maps.Equal(got, map[string]string{"a": "A"}) {
		t.Errorf("the server has %v", got)
	}
	waitFor(t, s.errs, regexp.MustCompile(`: push "/b": .*the server is read-only`))
}

// Nothing below the root leads outside it.
func TestServedRootIsAWall(t *testing.T) {
	s := startServer(t)
	outside := t.TempDir()
	makeFiles(t, outside, map[string]string{"secret": "S"})
	if err := os.Symlink(outside, s.root+"/way-out"); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	for _, path := range []string{"../secret", "%2e%2e/secret", "way-out/secret", "x/../../secret"} {
		gdrcp(t, s.url(path), dir+"/got").want(t, exitError)
		if r := gdrcp(t, dir+"/a", s.url(path)); r.code == exitOK {
			t.Errorf("a copy to %s went well:\n%s", path, r.err)
		}
	}
	if got := listFiles(t, outside); !maps.Equal(got, map[string]string{"secret": "S"}) {
		t.Errorf("outside there is %v", got)
	}
	if got := listFiles(t, dir); !maps.Equal(got, map[string]string{"a": "A"}) {
		t.Errorf("here there is %v", got)
	}
}

// endpointOf returns the address of a server for the engine.
func endpointOf(t *testing.T, s *testServer) xfer.Endpoint {
	t.Helper()
	k, err := trust.ReadKeyFile(os.Getenv(keyFileVariable))
	if err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort(s.addr)
	return xfer.Endpoint{Host: at.Addr().String(), Port: at.Port(), Key: k}
}

// A client beyond the limit is informed that it waits, and why, and is finally refused.
func TestMaxSessions(t *testing.T) {
	for _, wait := range []string{"0", "1"} {
		s := startServer(t, "--max-sessions", "1", "--max-wait", wait)
		makeFiles(t, s.root, map[string]string{"a": "A"})
		p, _, _ := newProgram()
		o := xfer.Options{Transport: "tcp", Report: func(e xfer.Event) {
			if e.Kind != xfer.EventConnected {
				return
			}
			want := "gdrcp: " + s.addr + " refused the session: 1 session is running, and it takes no more\nhint: try again later, or give the server a higher --max-sessions, or its access file a higher max-sessions for the key\n"
			if wait != "0" {
				want = "gdrcp: waiting: 1 session is running, and it takes no more; waiting for up to 1s\n" + want
			}
			if r := gdrcp(t, "--transport", "tcp", s.url("a"), t.TempDir()); r.code != exitError || r.err != want {
				t.Errorf("exit code %d, and it wrote %q, not %q", r.code, r.err, want)
			}
			r := gdrcp(t, "--transport", "tcp", "--json", s.url("a"), t.TempDir()).want(t, exitError)
			if kinds := len(r.events(t)); (kinds == 2) != (wait != "0") || (wait != "0" && r.event(t, "waiting")["text"] == "") {
				t.Errorf("it wrote %q", r.out)
			}
		}}
		if _, err := p.client().Pull(t.Context(), endpointOf(t, s), []string{"/a"}, t.TempDir(), o); err != nil {
			t.Error(err)
		}
	}
}

// A server that stops during a copy reports that to the client, which leaves nothing
// behind.
func TestServerStopsDuringACopy(t *testing.T) {
	s := startServer(t)
	makeFiles(t, s.root, map[string]string{"a": strings.Repeat("x", 1<<20)})
	dir := t.TempDir()
	p, _, errs := newProgram()
	o := xfer.Options{Transport: "tcp", Report: func(e xfer.Event) {
		if e.Kind == xfer.EventConnected {
			s.stop()
		}
	}}
	_, err := p.client().Pull(t.Context(), endpointOf(t, s), []string{"/a"}, dir, o)
	if err == nil {
		t.Fatal("the copy went well")
	}
	if code := p.fail(t.Context(), err); code != exitError || strings.Count(errs.String(), "gdrcp: ") != 1 {
		t.Errorf("exit code %d, and it wrote %q", code, errs)
	}
	if got := listFiles(t, dir); len(got) != 0 {
		t.Errorf("%d files are left", len(got))
	}
}

func TestNobodyListens(t *testing.T) {
	url := "rdma://" + rdmatest.DeafAddr(t).String() + "/x"
	r := gdrcp(t, url, t.TempDir()).want(t, exitError)
	if !strings.Contains(r.err, "connection refused\nhint: is gdrcp serve running there?") {
		t.Errorf("it wrote %q", r.err)
	}
	r = gdrcp(t, "rdma://no-such-host.invalid/x", t.TempDir()).want(t, exitError)
	if !strings.HasPrefix(r.err, "gdrcp: look up no-such-host.invalid: ") || strings.Count(r.err, "\n") > 2 {
		t.Errorf("it wrote %q", r.err)
	}
}

func TestRequireVerbs(t *testing.T) {
	s := startServer(t)
	r := gdrcp(t, "--require", "verbs", s.url("x"), t.TempDir()).want(t, exitUnsupported)
	if !strings.Contains(r.err, "verbs is required") || !strings.Contains(r.err, "the kernel knows no RDMA device") {
		t.Errorf("it wrote %q", r.err)
	}
	gdrcp(t, "--transport", "verbs", s.url("x"), t.TempDir()).want(t, exitUnsupported)
	gdrcp(t, "--transport", "tcp", "--require", "verbs", s.url("x"), t.TempDir()).want(t, exitUsage)
}

// A client that names a device gets that device, or the reason that it cannot be used.
func TestRailThatIsNotThere(t *testing.T) {
	s := startServer(t)
	makeFiles(t, s.root, map[string]string{"a": "A"})
	for _, c := range []struct {
		verbs rdma.Provider
		text  string
	}{
		{noDevices(), "the kernel knows no RDMA device"},
		{&deviceList{devices: []rdma.Device{{Name: "mlx5_0", Problem: "port 1 is down"}}}, "port 1 is down"},
		{softDevice{tcp.New()}, `no RDMA device named or at "mlx5_0" here`},
	} {
		p, _, errs := newProgram()
		p.verbs = c.verbs
		if code := p.run(t.Context(), []string{"gdrcp", "--rail", "mlx5_0", s.url("a"), t.TempDir()}); code != exitUnsupported || !strings.Contains(errs.String(), c.text) {
			t.Errorf("exit code %d, and it wrote %q, without %q", code, errs, c.text)
		}
	}
}

// A server lists its rails and says why there are none. If listening on a device's
// address fails, TCP still works.
func TestRails(t *testing.T) {
	good := rdma.Device{Name: "rxe0", Ports: []rdma.Port{{Addrs: []netip.Addr{netip.MustParseAddr("10.7.0.1"), netip.MustParseAddr("fe80::1"), netip.MustParseAddr("169.254.7.1")}}}}
	bad := rdma.Device{Name: "mlx5_0", Problem: "port 1 is down"}
	local := rdma.Device{Name: "mlx5_1", Ports: []rdma.Port{{Addrs: []netip.Addr{netip.MustParseAddr("fe80::1")}}}}
	for _, c := range []struct {
		name     string
		s        serveRun
		list     deviceList
		rails    int
		why      string
		wantCode int
	}{
		{name: "tcp only", s: serveRun{transport: "tcp"}, list: deviceList{devices: []rdma.Device{good}}, why: "the server serves tcp only (--transport tcp)"},
		{name: "loopback", s: serveRun{transport: "auto", loopback: true}, list: deviceList{devices: []rdma.Device{good}}, why: "the server listens on loopback only"},
		{name: "no device", s: serveRun{transport: "auto"}, list: *noDevices(), why: "no RDMA device there: the kernel knows no RDMA device"},
		{name: "port down", s: serveRun{transport: "auto"}, list: deviceList{devices: []rdma.Device{bad}}, why: "no usable RDMA device there: mlx5_0: port 1 is down"},
		{name: "link-local", s: serveRun{transport: "auto"}, list: deviceList{devices: []rdma.Device{local}}, why: "no usable RDMA device there: mlx5_1: it has IPv6 link-local addresses only"},
		{name: "one works", s: serveRun{transport: "auto"}, list: deviceList{devices: []rdma.Device{bad, good}}, rails: 1},
	} {
		p, _, _ := newProgram()
		p.verbs = &c.list
		c.s.program = p
		if _, devices, why := c.s.rails(); len(devices) != c.rails || why != c.why {
			t.Errorf("%s: %v, %q", c.name, devices, why)
		}
	}
	if got := railAddrs(good); len(got) != 2 || got[0].String() != "10.7.0.1" || got[1].String() != "169.254.7.1" {
		t.Errorf("addresses %v", got)
	}
	p, _, errs := newProgram()
	p.verbs = &deviceList{devices: []rdma.Device{good}}
	s := &serveRun{program: p, transport: "auto", console: &console{w: errs}, admissions: oneRoot(t, "/srv")}
	server := xfer.NewServer(xfer.ServerConfig{})
	_, err := s.listenAt(server, netip.MustParseAddrPort("127.0.0.1:0"))
	if err = errors.Join(err, server.Close()); err != nil || !regexp.MustCompile(`^gdrcp: serving /srv on tcp 127\.0\.0\.1:\d+\ngdrcp: no RDMA device\n$`).MatchString(errs.String()) {
		t.Errorf("%v, and it wrote %q", err, errs)
	}
}

// deafDevice is a device on which listening fails.
type deafDevice struct{ softDevice }

func (deafDevice) Listen(netip.AddrPort, rdma.Wire) (rdma.Listener, error) {
	return nil, errors.New("it is deaf")
}

// A client receives the reason that a server with a device has no RDMA address.
func TestWhyNoRails(t *testing.T) {
	cpus := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	s := startServerWith(t, deafDevice{softDevice{tcp.New()}}, "--listen", ":0")
	makeFiles(t, s.root, map[string]string{"a": "A"})
	p, _, errs := newProgram()
	p.verbs = softDevice{p.tcp}
	code := p.run(t.Context(), []string{"gdrcp", s.url("a"), t.TempDir()})
	if want := "gdrcp: using tcp: the server offers no RDMA address: the server cannot listen on tcp: it is deaf\n"; code != exitOK || !strings.HasPrefix(errs.String(), want) {
		t.Errorf("exit code %d, and it wrote %q", code, errs)
	}
}

// twoAddresses is a device with two addresses.
type twoAddresses struct{ softDevice }

func (d twoAddresses) Devices() ([]rdma.Device, error) {
	list, err := d.softDevice.Devices()
	list[0].Ports[0].Addrs = []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2")}
	return list, err
}

// unheardDevice is a device whose rails can reach only the door. It records when they
// try and their deadlines.
type unheardDevice struct {
	twoAddresses
	tries *[]unheardTry
}

type unheardTry struct{ at, until time.Time }

func (d unheardDevice) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	r, err := d.twoAddresses.Open(device, cfg)
	return unheardRail{r, d.tries}, err
}

type unheardRail struct {
	rdma.Rail
	tries *[]unheardTry
}

func (r unheardRail) Dial(ctx context.Context, _ netip.AddrPort, _ []byte) (rdma.Conn, error) {
	until, _ := ctx.Deadline()
	*r.tries = append(*r.tries, unheardTry{time.Now(), until})
	return nil, errors.New("nobody is heard")
}

// Each of a server's addresses has 5 s to answer before TCP is used, or up to 10 s if
// the server was slow to answer over TCP.
func TestEachAddressHasTime(t *testing.T) {
	cpus := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	var tries []unheardTry
	var began time.Time
	for try := 0; try < 5 && len(tries) < 2; try++ { // another process may have one of the ports
		tries = nil
		s := startServerWith(t, twoAddresses{softDevice{tcp.New()}}, "--listen", ":0")
		makeFiles(t, s.root, map[string]string{"a": "A"})
		p, _, errs := newProgram()
		p.verbs = unheardDevice{twoAddresses{softDevice{p.tcp}}, &tries}
		began = time.Now()
		if code := p.run(t.Context(), []string{"gdrcp", s.url("a"), t.TempDir()}); code != exitOK {
			t.Errorf("exit code %d, and it wrote %q", code, errs)
		}
	}
	if len(tries) != 2 {
		t.Fatalf("two addresses were tried %d times", len(tries))
	}
	// Its time starts after the last event before it and before the attempt: the
	// machine may be slow.
	const least, most = 5 * time.Second, 10 * time.Second
	for i, try := range tries {
		if try.until.Before(began.Add(least)) || try.until.After(try.at.Add(most)) {
			t.Errorf("address %d had %v from the try before, and %v from its own", i, try.until.Sub(began), try.until.Sub(try.at))
		}
		began = try.at
	}
}

// A server's log has the client's address and the whole request.
func TestServerTellsWhose(t *testing.T) {
	s := startServer(t, "-v")
	makeFiles(t, s.root, map[string]string{"a": "A", "b": "B"})
	gdrcp(t, s.url("a"), s.url("none"), s.url("b"), t.TempDir()).want(t, exitPartial)
	waitFor(t, s.errs, regexp.MustCompile(`gdrcp: 127\.0\.0\.1:\d+: .*"none".*no such file`))
	waitFor(t, s.errs, regexp.MustCompile(`gdrcp: test@127\.0\.0\.1:\d+: pull "/a" and 2 more: 2 files`))
}
