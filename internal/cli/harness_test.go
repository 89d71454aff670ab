package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// buffer can be written by one goroutine while another reads it.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// deviceList is a verbs provider that only lists devices.
type deviceList struct {
	devices []rdma.Device
	err     error
}

func (d *deviceList) Name() string                    { return "verbs" }
func (d *deviceList) Devices() ([]rdma.Device, error) { return d.devices, d.err }

func (d *deviceList) Route(context.Context, netip.AddrPort) (string, netip.Addr, error) {
	return "", netip.Addr{}, d.problem()
}
func (d *deviceList) Open(string, rdma.RailConfig) (rdma.Rail, error) { return nil, d.problem() }
func (d *deviceList) Listen(netip.AddrPort, rdma.Wire) (rdma.Listener, error) {
	return nil, d.problem()
}
func (d *deviceList) problem() error {
	if d.err != nil {
		return d.err
	}
	return rdma.ErrNoDevice
}

// noDevices is a machine without RDMA.
func noDevices() *deviceList {
	return &deviceList{err: &rdma.ProbeError{Reason: rdma.NoDevices, Detail: "the kernel knows no RDMA device", Hint: "plug one in"}}
}

// softDevice is a verbs provider that uses TCP: an RDMA device at 127.0.0.1.
type softDevice struct{ rdma.Provider }

func (softDevice) Name() string { return "verbs" }
func (softDevice) Devices() ([]rdma.Device, error) {
	return []rdma.Device{{Name: "tcp", Ports: []rdma.Port{{Addrs: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}}}}, nil
}

// Listen chooses another port if the wanted one, next to the server's own, is used by
// another process.
func (d softDevice) Listen(at netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	l, err := d.Provider.Listen(at, w)
	if errors.Is(err, syscall.EADDRINUSE) {
		return d.Provider.Listen(netip.AddrPortFrom(at.Addr(), 0), w)
	}
	return l, err
}

// result is the result of a run of the program.
type result struct {
	code     int
	out, err string
}

// onlyKey returns an environment with nothing but the tests' key.
func onlyKey(name string) string {
	if name == keyFileVariable {
		return os.Getenv(name)
	}
	return ""
}

// newProgram returns a program on a machine without RDMA, and the buffers that receive
// its output.
func newProgram() (p *program, out, errs *buffer) {
	out, errs = &buffer{}, &buffer{}
	return &program{
		stdin: strings.NewReader(""), stdout: out, stderr: errs, getenv: onlyKey, started: time.Now(),
		verbs: noDevices(), tcp: tcp.New(), timeouts: xfer.DefaultTimeouts(),
	}, out, errs
}

// gdrcp runs the program.
func gdrcp(t testing.TB, args ...string) result {
	t.Helper()
	p, out, errs := newProgram()
	code := p.run(t.Context(), append([]string{"gdrcp"}, args...))
	return result{code, out.String(), errs.String()}
}

// want fails the test unless the run ended with code.
func (r result) want(t testing.TB, code int) result {
	t.Helper()
	if r.code != code {
		t.Fatalf("exit code %d, want %d; stdout:\n%s\nstderr:\n%s", r.code, code, r.out, r.err)
	}
	return r
}

// events decodes the output of --json.
func (r result) events(t testing.TB) []map[string]any {
	t.Helper()
	var all []map[string]any
	for line := range strings.Lines(r.out) {
		var e map[string]any
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// event returns the only event of a kind.
func (r result) event(t testing.TB, kind string) map[string]any {
	t.Helper()
	var found map[string]any
	for _, e := range r.events(t) {
		if e["event"] == kind && found != nil {
			t.Fatalf("two events %q in:\n%s", kind, r.out)
		} else if e["event"] == kind {
			found = e
		}
	}
	if found == nil {
		t.Fatalf("no event %q in:\n%s", kind, r.out)
	}
	return found
}

// testServer is a gdrcp serve in this process.
type testServer struct {
	root string
	addr string // host:port
	errs *buffer
	stop func() int
}

func (s *testServer) url(path string) string { return "rdma://" + s.addr + "/" + path }

var servingLine = regexp.MustCompile(`gdrcp: serving .* on (?:verbs )?tcp (\S+)\n`)
var verbsLine = regexp.MustCompile(`gdrcp: serving .* on verbs tcp (\S+)\n`)

// startServer runs `gdrcp serve` until the test ends. The server must end without an
// error.
func startServer(t testing.TB, args ...string) *testServer {
	t.Helper()
	return startServerWith(t, noDevices(), args...)
}

func startServerWith(t testing.TB, verbs rdma.Provider, args ...string) *testServer {
	t.Helper()
	s := &testServer{root: t.TempDir()}
	p, _, errs := newProgram()
	s.errs, p.verbs = errs, verbs
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	go func() {
		code <- p.run(ctx, append([]string{"gdrcp", "serve", "--root", s.root, "--listen", "127.0.0.1:0"}, args...))
	}()
	s.stop = sync.OnceValue(func() int { cancel(); return <-code })
	t.Cleanup(func() {
		if c := s.stop(); c != 0 {
			t.Errorf("serve ended with exit code %d:\n%s", c, errs)
		}
	})
	s.addr = waitFor(t, errs, servingLine)[1]
	return s
}

// startRDMAServer starts a server with softDevice that listens by verbs at the port
// after its own, as `--transport verbs` expects. Another process may have that port;
// then it tries another server.
func startRDMAServer(t testing.TB, args ...string) *testServer {
	t.Helper()
	for range 20 {
		s := startServerWith(t, softDevice{tcp.New()}, args...)
		own := netip.MustParseAddrPort(s.addr)
		verbs := netip.MustParseAddrPort(waitFor(t, s.errs, verbsLine)[1])
		if verbs.Port() == own.Port()+1 {
			return s
		}
		s.stop()
	}
	t.Fatal("20 servers found the port next to theirs taken")
	return nil
}

// waitFor waits until pattern has been written, and returns its submatches.
func waitFor(t testing.TB, b *buffer, pattern *regexp.Regexp) []string {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if m := pattern.FindStringSubmatch(b.String()); m != nil {
			return m
		}
	}
	t.Fatalf("%s was not written:\n%s", pattern, b)
	return nil
}

// makeFiles writes files below dir. The map has content by path; a path with a final
// slash is a directory.
func makeFiles(t testing.TB, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if strings.HasSuffix(name, "/") {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// listFiles is the reverse of makeFiles. It lists only empty directories, and links as
// "-> target".
func listFiles(t testing.TB, dir string) map[string]string {
	t.Helper()
	files := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		delete(files, filepath.Dir(name)+"/")
		switch {
		case d.IsDir():
			files[name+"/"] = ""
		case d.Type()&os.ModeSymlink != 0:
			target, err := os.Readlink(path)
			files[name] = "-> " + target
			return err
		case d.Type().IsRegular():
			data, err := os.ReadFile(path)
			files[name] = string(data)
			return err
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}
