package xfer_test

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/rdma/verbs"
	"gdrcp/xfer"
)

// served is a server on loopback with a root of its own.
type served struct {
	server *xfer.Server
	root   string
	ep     xfer.Endpoint
	mu     sync.Mutex
	ends   []xfer.SessionEnd
}

// lastEnd waits for n sessions to end and returns the last.
func (s *served) lastEnd(t testing.TB, n int) xfer.SessionEnd {
	t.Helper()
	for end := time.Now().Add(rdmatest.Stretch(xfer.AbortWait)); time.Now().Before(end); {
		s.mu.Lock()
		if len(s.ends) >= n {
			e := s.ends[len(s.ends)-1]
			s.mu.Unlock()
			return e
		}
		s.mu.Unlock()
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("fewer than %d sessions ended", n)
	return xfer.SessionEnd{}
}

// endOf waits for the session of that kind and path to end. Earlier ones may end later: a server
// has some work left when its client is gone.
func (s *served) endOf(t testing.TB, what, path string) xfer.SessionEnd {
	t.Helper()
	for n := 1; ; n++ {
		s.lastEnd(t, n)
		s.mu.Lock()
		e := s.ends[n-1]
		s.mu.Unlock()
		if e.What == what && e.Path == path {
			return e
		}
	}
}

// way is a transport that copies are tested over, with an address to serve at.
type way struct {
	name     string
	provider rdma.Provider
	addr     netip.Addr
	// slow is how much longer things take than on a real machine.
	slow time.Duration
}

// leavesOut skips cases other than the named ones over an emulated device, where copies are slow,
// unless all are wanted.
func (w way) leavesOut(name string, but ...string) bool {
	return w.slow > 1 && os.Getenv("GDRCP_TEST_FULL") != "1" && !slices.Contains(but, name)
}

// client copies over w, with work requests that go wrong as f says.
func (w way) client(f rdmatest.Faults) *xfer.Client {
	p := rdmatest.Faulty(w.provider, f)
	return &xfer.Client{TCP: p, Verbs: p}
}

// options returns options for a test over w. Entries that were not copied are logged.
func (w way) options(t testing.TB) xfer.Options {
	return xfer.Options{Recursive: true, Links: true, Transport: w.provider.Name(), Timeouts: w.timeouts(), Report: func(e xfer.Event) {
		if e.Kind == xfer.EventFile && e.Outcome != xfer.Copied {
			t.Logf("not copied: %s", e.Text)
		}
	}}
}

func (w way) timeouts() xfer.Timeouts {
	return xfer.Timeouts{Handshake: rdmatest.Stretch(5 * w.slow * time.Second), Heartbeat: 200 * time.Millisecond, Silence: rdmatest.Stretch(max(5*time.Second, w.slow*time.Second)), Linger: w.slow * time.Second}
}

// ways lists the devices that GDRCP_TEST_RDMA names as device=address,…, as in the bed, or else
// tcp, because the host is tested there.
func ways(t testing.TB) (all []way) {
	list := os.Getenv("GDRCP_TEST_RDMA")
	if list == "" {
		if slices.Contains(strings.Split(os.Getenv("GDRCP_REQUIRE"), ","), "rdma") {
			t.Fatal("GDRCP_REQUIRE wants RDMA and GDRCP_TEST_RDMA names no device; tests/bed/run-tests names some")
		}
		return []way{tcpWay(t)}
	}
	for target := range strings.SplitSeq(list, ",") {
		device, addr, _ := strings.Cut(target, "=")
		all = append(all, way{device, verbs.New(), netip.MustParseAddr(addr), 10})
	}
	return all
}

// tcpWay is for tests that have nothing to do with devices.
func tcpWay(t testing.TB) way {
	xfer.OnHost(t)
	return way{"tcp", tcp.New(), netip.MustParseAddr("127.0.0.1"), 1}
}

// over runs a test on every way. Of several devices, which are emulated, it uses the one that the
// seed picks, or none, unless all combinations are wanted.
func over(t *testing.T, test func(t *testing.T, w way)) {
	all := ways(t)
	if os.Getenv("GDRCP_TEST_FULL") != "1" {
		i := rdmatest.PickDevice(t, len(all))
		all = all[i : i+1]
	}
	overAll(t, all, test)
}

func overAll(t *testing.T, all []way, test func(t *testing.T, w way)) {
	for _, w := range all {
		t.Run(w.name, func(t *testing.T) { test(t, w) })
	}
}

// serve starts a server at w and ends it with the test.
func serve(t testing.TB, w way, change ...func(*xfer.ServerConfig)) *served {
	t.Helper()
	s := &served{root: t.TempDir()}
	key, err := trust.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	cfg := xfer.ServerConfig{Keys: xfer.OneKey(key, xfer.Admission{Root: xfer.DirRoot(s.root)}), Timeouts: w.timeouts(), Log: func(e xfer.SessionEnd) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.ends = append(s.ends, e)
		if e.Err != nil {
			t.Logf("server: %s from %s ended: %v", e.What, e.Peer, e.Err)
		}
	}}
	for _, c := range change {
		c(&cfg)
	}
	server := xfer.NewServer(cfg)
	s.server = server
	at, err := server.Listen(w.provider, netip.AddrPortFrom(w.addr, 0), rdma.Device{})
	if err != nil {
		t.Fatal(err)
	}
	s.ep = xfer.Endpoint{Host: w.addr.String(), Port: at.Port(), Key: key}
	if w.provider.Name() == "verbs" {
		s.ep.Port-- // rdma_cm listens at the port after TCP's
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- server.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return s
}

// randomBytes returns different bytes with each call. They do not come from the kernel, which on an
// emulated machine takes up to 10 s for 20 MiB, nor from Go code, which the race detector makes
// slow.
func randomBytes(t testing.TB, n int) []byte {
	t.Helper()
	var seed [2 * aes.BlockSize]byte
	for i := range seed {
		seed[i] = byte(rand.Uint32())
	}
	block, err := aes.NewCipher(seed[:aes.BlockSize])
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, n)
	cipher.NewCTR(block, seed[aes.BlockSize:]).XORKeyStream(b, b)
	return b
}

func write(t testing.TB, path string, data []byte) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// makeTree writes a tree with entries of all kinds.
func makeTree(t testing.TB, dir string) {
	t.Helper()
	write(t, filepath.Join(dir, "empty"), nil)
	write(t, filepath.Join(dir, "one"), []byte{1})
	for _, n := range []int{1<<20 - 1, 1 << 20, 1<<20 + 1, 5<<20 + 12345} {
		write(t, filepath.Join(dir, fmt.Sprintf("big/%d", n)), randomBytes(t, n))
	}
	for i := range 300 {
		write(t, filepath.Join(dir, fmt.Sprintf("many/%d/f%d", i%7, i)), randomBytes(t, i*13))
	}
	write(t, filepath.Join(dir, "a", "x"), []byte("x"))
	write(t, filepath.Join(dir, "a-b"), []byte("between a and its contents"))
	write(t, filepath.Join(dir, "new\nline \xff"), []byte("odd name"))
	if err := os.MkdirAll(filepath.Join(dir, "emptydir"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("../nowhere", filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
}

// sameTree fails the test if two trees differ.
func sameTree(t testing.TB, a, b string) {
	t.Helper()
	list := func(dir string) map[string]string {
		m := make(map[string]string)
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			rel, _ := filepath.Rel(dir, p)
			switch {
			case d.IsDir():
				m[rel] = "dir"
			case d.Type() == fs.ModeSymlink:
				m[rel], err = os.Readlink(p)
			default:
				m[rel] = "file"
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	ma, mb := list(a), list(b)
	buffers := new([2][64 << 10]byte)
	for p, v := range ma {
		w, ok := mb[p]
		equal := ok && w == v && (v != "file" || sameFile(t, filepath.Join(a, p), filepath.Join(b, p), buffers))
		if !equal {
			t.Errorf("%q: there: %v, equal: %v", p, ok, equal)
		}
	}
	for p := range mb {
		if _, ok := ma[p]; !ok {
			t.Errorf("%q should not be there", p)
		}
	}
}

// sameFile compares two files through buffers: memory for whole files costs the race detector more
// than anything else.
func sameFile(t testing.TB, a, b string, buffers *[2][64 << 10]byte) bool {
	t.Helper()
	var open [2]*os.File
	for i, path := range []string{a, b} {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		open[i] = f
	}
	for {
		n, errA := io.ReadFull(open[0], buffers[0][:])
		m, errB := io.ReadFull(open[1], buffers[1][:])
		if !bytes.Equal(buffers[0][:n], buffers[1][:m]) {
			return false
		}
		ended := errA == io.EOF || errA == io.ErrUnexpectedEOF
		switch {
		case ended && (errB == io.EOF || errB == io.ErrUnexpectedEOF):
			return true
		case errA != nil && !ended, errB != nil:
			t.Fatal(errA, errB)
		}
	}
}

// onlyPartials fails the test if a copy that was cut off left anything but partial files with their
// journals.
func onlyPartials(t testing.TB, dir string) {
	t.Helper()
	partials := 0
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		switch name := filepath.Base(p); {
		case strings.HasPrefix(name, ".gdrcp-journal-"):
			partials--
		case strings.HasPrefix(name, ".gdrcp-"):
			partials++
		}
		return err
	})
	if err != nil || partials != 0 {
		t.Errorf("there are %d more files than journals: %v", partials, err)
	}
}

// noTemps fails the test if a copy left a file without its final name.
func noTemps(t testing.TB, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
		if strings.HasPrefix(filepath.Base(p), ".gdrcp-") {
			t.Errorf("left behind: %s", p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// notPublished fails the test if a file of a copy that failed exists, under its name or another.
func notPublished(t testing.TB, root, path string) {
	t.Helper()
	onlyPartials(t, root)
	if _, err := os.Lstat(filepath.Join(root, path)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s was published: %v", path, err)
	}
}

// isHeader distinguishes a chunk's header from its payload: payloads come with an immediate.
func isHeader(p rdmatest.Posted) bool { return p.WR.Op == rdma.OpWrite }

func isPayload(p rdmatest.Posted) bool { return p.WR.Op == rdma.OpWriteImm && p.WR.Len > 0 }

// some damages the third, sixth and ninth of those that match: fewer times than a chunk is sent
// again, whichever they hit.
func some(match func(rdmatest.Posted) bool) func(rdmatest.Posted) (int, bool) {
	var seen atomic.Int64
	return func(p rdmatest.Posted) (int, bool) {
		if !match(p) {
			return 0, false
		}
		n := seen.Add(1)
		return p.WR.Len / 2, n%3 == 0 && n < 10
	}
}
