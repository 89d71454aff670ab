package rdmatest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// processCases need a peer in another process.
var processCases = []testCase{
	{"PeerKilled", testPeerKilled},
	{"PeerStopped", testPeerStopped},
}

// childEnv is set in the second process: provider, device and address to
// listen on, joined by commas.
const childEnv = "GDRCP_RDMATEST_CHILD"

// childMemBytes is how much memory the second process registers.
const childMemBytes = 1 << 20

// Main runs the tests of a test binary. If the suite started the binary as its second
// process, Main runs that process's part instead. It returns the exit code.
func Main(m *testing.M, providers ...rdma.Provider) int {
	role, ok := os.LookupEnv(childEnv)
	if !ok {
		return m.Run()
	}
	if err := runChild(role, providers, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintf(os.Stderr, "second process: %v\n", err)
		return 1
	}
	return 0
}

// runChild listens, prints its address, accepts one connection, answers its
// greeting with the key and address of its memory, and then echoes messages
// until the connection ends. The end of stdin means that the test has ended.
func runChild(role string, providers []rdma.Provider, stdin io.Reader, stdout io.Writer) error {
	parts := strings.Split(role, ",")
	if len(parts) != 3 {
		return fmt.Errorf("role %q", role)
	}
	addr, err := netip.ParseAddrPort(parts[2])
	if err != nil {
		return fmt.Errorf("role %q: %w", role, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		// Whatever ended the copying, the test has ended.
		_, _ = io.Copy(io.Discard, stdin)
		cancel()
	}()
	for _, p := range providers {
		if p.Name() == parts[0] {
			return serveChild(ctx, p, parts[1], addr, stdout)
		}
	}
	return fmt.Errorf("no provider %q", parts[0])
}

func serveChild(ctx context.Context, p rdma.Provider, device string, addr netip.AddrPort, stdout io.Writer) (err error) {
	mem, err := unix.Mmap(-1, 0, childMemBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return fmt.Errorf("map memory: %w", err)
	}
	cfg := rdma.RailConfig{Conns: 1, SendDepth: 32, RecvDepth: 32, MsgBytes: 1024, WriteBytes: childMemBytes}
	rail, err := p.Open(device, cfg)
	if err != nil {
		return fmt.Errorf("open %s: %w", device, err)
	}
	defer func() { err = errors.Join(err, rail.Close()) }()
	mr, err := rail.Register(rdma.HostRegion(mem), allAccess)
	if err != nil {
		return fmt.Errorf("register memory: %w", err)
	}
	listener, err := p.Listen(addr, rdma.Wire{})
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { err = errors.Join(err, listener.Close()) }()
	if _, err := fmt.Fprintln(stdout, listener.Addr()); err != nil {
		return fmt.Errorf("tell address: %w", err)
	}
	req, err := listener.Accept(ctx)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	conn, err := req.Accept(ctx, rail)
	if err != nil {
		return fmt.Errorf("accept: %w", err)
	}
	return echo(ctx, rail, conn, mr)
}

// echo answers the first message with the region, and sends the others back.
func echo(ctx context.Context, rail rdma.Rail, conn rdma.Conn, mr rdma.MR) error {
	answer := binary.LittleEndian.AppendUint64(nil, mr.Addr())
	answer = binary.LittleEndian.AppendUint32(answer, mr.RKey())
	out := make([]rdma.Completion, 16)
	for {
		n, err := rail.Wait(ctx, out)
		if err != nil {
			return fmt.Errorf("wait: %w", err)
		}
		for _, c := range out[:n] {
			switch c.Kind {
			case rdma.Closed:
				return nil
			case rdma.Message:
				if answer == nil {
					answer = c.Msg
				}
				if _, err := conn.Post([]rdma.WR{{Op: rdma.OpSend, Quiet: true, Msg: answer}}); err != nil {
					return fmt.Errorf("answer: %w", err)
				}
				answer = nil
			}
		}
	}
}

// child is the second process, connected to a side.
type child struct {
	side     *side
	process  *os.Process
	mem      remoteMemory
	finished chan error
}

// remoteMemory is an MR of another process, known by the key and address that it sent.
type remoteMemory struct {
	addr uint64
	rkey uint32
}

// startChild starts the second process and connects to it.
func (s *suite) startChild(t *testing.T) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^$")
	role := strings.Join([]string{s.Provider.Name(), s.AcceptDevice, s.ListenAddr.String()}, ",")
	cmd.Env = append(os.Environ(), childEnv+"="+role)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatalf("start second process: %v", err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	c := &child{process: cmd.Process, finished: make(chan error, 1)}
	go func() { c.finished <- cmd.Wait() }()
	t.Cleanup(func() {
		stdin.Close()
		_ = c.process.Kill() // the process may have ended already
		<-c.finished
	})
	if err != nil {
		t.Fatalf("read the second process's address (does TestMain call rdmatest.Main?): %v", err)
	}
	addr, err := netip.ParseAddrPort(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the second process's address: %v (does TestMain call rdmatest.Main?)", err)
	}
	c.dial(t, s, addr)
	return c
}

func (c *child) dial(t *testing.T, s *suite, addr netip.AddrPort) {
	t.Helper()
	l := s.layout()
	l.memBytes = childMemBytes
	c.side = s.side(t, "parent", s.Device, l)
	conn, err := c.side.rail.Dial(t.Context(), addr, nil)
	if err != nil {
		t.Fatalf("dial the second process: %v", err)
	}
	c.side.conn = conn
	c.side.post(quiet(send([]byte("hello"))))
	c.side.await("the second process's region", func() bool { return len(c.side.got().msgs) == 1 })
	told := c.side.got().msgs[0]
	c.mem = remoteMemory{binary.LittleEndian.Uint64(told), binary.LittleEndian.Uint32(told[8:])}
}

// write is a Write over all of the second process's memory.
func (c *child) write() rdma.WR {
	return rdma.WR{
		Op: rdma.OpWrite, Local: c.side.mr, Len: childMemBytes,
		RKey: c.mem.rkey, RemoteAddr: c.mem.addr,
	}
}

// testPeerKilled checks that the kernel ends the connections of a dead process.
func testPeerKilled(t *testing.T, s *suite) {
	c := s.startChild(t)
	c.side.post(c.write(), send([]byte("ping")))
	c.side.await("the echo", func() bool { return len(c.side.got().msgs) == 2 })
	if !bytes.Equal(c.side.got().msgs[1], []byte("ping")) {
		t.Errorf("echo is %q", c.side.got().msgs[1])
	}
	if err := c.process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	c.side.await("Closed", func() bool { return len(c.side.got().closed) == 1 })
	c.side.settle(s.scaled(20 * time.Millisecond))
	if n := len(c.side.got().closed); n != 1 {
		t.Errorf("told Closed %d times", n)
	}
}

// testPeerStopped checks that a stopped process blocks neither Post nor Close.
// Detecting a silent process is not the provider's task.
func testPeerStopped(t *testing.T, s *suite) {
	c := s.startChild(t)
	if err := c.process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(s.scaled(20 * time.Millisecond)) // for the work requests in flight
	heard := c.side.conn.LastHeard()
	if !s.StoppedPeerTakesWrites {
		s.fillQueue(t, c)
	}
	c.side.settle(s.scaled(100 * time.Millisecond))
	if now := c.side.conn.LastHeard(); now != heard {
		t.Errorf("heard of a stopped peer at %s, before at %s", now, heard)
	}
	if n := len(c.side.got().closed); n > 0 {
		t.Errorf("Closed: %v", c.side.got().closed)
	}
	start := time.Now()
	if err := c.side.conn.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if took := time.Since(start); took > s.scaled(2*time.Second) {
		t.Errorf("Close took %s", took)
	}
}

// fillQueue posts until nothing more is accepted for a while.
func (s *suite) fillQueue(t *testing.T, c *child) {
	t.Helper()
	deadline := time.Now().Add(s.patience())
	fullSince := time.Time{}
	for fullSince.IsZero() || time.Since(fullSince) < s.scaled(100*time.Millisecond) {
		start := time.Now()
		_, err := c.side.conn.Post([]rdma.WR{c.write()})
		if took := time.Since(start); took > s.limit(time.Second) {
			t.Fatalf("Post took %s", took)
		}
		switch {
		case err == nil:
			fullSince = time.Time{}
		case !errors.Is(err, rdma.ErrQueueFull):
			t.Fatalf("post to a stopped peer: %v", err)
		case fullSince.IsZero():
			fullSince = time.Now()
		}
		if start.After(deadline) {
			t.Fatal("the queue to a stopped peer does not fill up")
		}
		c.side.settle(s.scaled(time.Millisecond))
	}
}
