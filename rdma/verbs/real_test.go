//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma"
)

var smallConfig = rdma.RailConfig{Conns: 2, SendDepth: 16, RecvDepth: 16, MsgBytes: 256, WriteBytes: 1 << 20}

func TestDevicesAreDescribed(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		d := deviceOf(t, p, g.device)
		if !d.Usable() || d.Transport == "" || len(d.Ports) == 0 {
			t.Fatalf("device: %+v", d)
		}
		if soft := strings.HasPrefix(g.device, "rxe") || strings.HasPrefix(g.device, "siw"); soft && d.PCIAddress != "" {
			t.Errorf("a software device at %s", d.PCIAddress)
		}
		for _, port := range d.Ports {
			if port.State != "ACTIVE" || port.MTUBytes < 256 || port.RateGbps <= 0 || port.NetDev == "" {
				t.Errorf("port: %+v", port)
			}
		}
		found := false
		for _, a := range d.Addrs() {
			found = found || a == g.addr
		}
		if !found {
			t.Errorf("%s is not among the addresses %v", g.addr, d.Addrs())
		}
	})
}

func TestRoute(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		device, local, err := p.Route(context.Background(), netip.AddrPortFrom(g.addr, 1))
		if err != nil || device != g.device || local != g.addr {
			t.Errorf("route to %s: %s, %s, %v", g.addr, device, local, err)
		}
		for _, addr := range []string{"127.0.0.1:1", "[::1]:1", "0.0.0.0:1"} {
			if device, _, err := p.Route(context.Background(), netip.MustParseAddrPort(addr)); !errors.Is(err, rdma.ErrNoDevice) {
				t.Errorf("route to %s: %s, %v", addr, device, err)
			}
		}
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		start := time.Now()
		// An address of the network that nobody has: the kernel asks for the neighbour.
		nobody := netip.AddrPortFrom(g.addr.Next().Next(), 1)
		if device, _, err := p.Route(ctx, nobody); err == nil {
			t.Errorf("route to %s: %s", nobody, device)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("route ended %s after a context of 500 ms", took)
		}
	})
}

func TestOpenRefusesWhatTheDeviceLacks(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		cfg := smallConfig
		cfg.Conns, cfg.RecvDepth = 4096, 1<<20
		if r, err := p.Open(g.device, cfg); err == nil {
			r.Close()
			t.Error("four thousand million receives were promised")
		}
		if _, err := p.Open("no-such-device", smallConfig); !errors.Is(err, rdma.ErrNoDevice) {
			t.Errorf("open a device that is not there: %v", err)
		}
	})
}

// TestLinkLocal dials an IPv6 address that needs a scope.
func TestLinkLocal(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		d := deviceOf(t, p, g.device)
		ifi, err := net.InterfaceByName(d.Ports[0].NetDev)
		if err != nil {
			t.Fatal(err)
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil || !prefix.Addr().Is6() || !prefix.Addr().IsLinkLocalUnicast() {
				continue
			}
			l := newLink(t, p, target{g.device, prefix.Addr().WithZone(ifi.Name)}, smallConfig, 4096)
			if err := sendAndReceive(l); err != nil {
				t.Error(err)
			}
			return
		}
		t.Skipf("%s has no IPv6 link-local address: sysctl net.ipv6.conf.%s.disable_ipv6=0", ifi.Name, ifi.Name)
	})
}

// sendAndReceive moves one message from a to b.
func sendAndReceive(l *link) error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if _, err := l.a.Post([]rdma.WR{{Op: rdma.OpSend, Quiet: true, Msg: []byte("ping")}}); err != nil {
		return fmt.Errorf("post: %w", err)
	}
	out := make([]rdma.Completion, 4)
	n, err := l.railB.Wait(ctx, out)
	if err != nil || n != 1 || string(out[0].Msg) != "ping" {
		return fmt.Errorf("got %+v: %w", out[:n], err)
	}
	return nil
}

// TestHeadersGoInline: Post itself copies a Write of a header's length if the
// device supports inline data of that length, so the memory may change
// immediately. An earlier Write keeps the device busy meanwhile.
func TestHeadersGoInline(t *testing.T) {
	const headerBytes, payloadBytes = 192, 1 << 20
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		if strings.HasPrefix(g.device, "siw") {
			t.Skip("siw takes 80 bytes inline")
		}
		l := newLink(t, p, g, smallConfig, 2*payloadBytes)
		header, arrived := l.memA[payloadBytes:][:headerBytes], l.memB[payloadBytes:][:headerBytes]
		for round := range byte(20) {
			for i := range header {
				header[i] = round
			}
			write := func(at, n int, id uint64, op rdma.Op) rdma.WR {
				return rdma.WR{ID: id, Op: op, Quiet: op == rdma.OpWrite, Local: l.mrA, Offset: at, Len: n, RemoteAddr: l.mrB.Addr() + uint64(at), RKey: l.mrB.RKey()}
			}
			n, err := l.a.Post([]rdma.WR{write(0, payloadBytes, 0, rdma.OpWrite), write(payloadBytes, headerBytes, 1, rdma.OpWrite), write(0, 1, 2, rdma.OpWriteImm)})
			if err != nil || n != 3 {
				t.Fatalf("posted %d: %v", n, err)
			}
			for i := range header {
				header[i] = 0xff
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			out := make([]rdma.Completion, 4)
			if n, err := l.railB.Wait(ctx, out); err != nil || n != 1 || out[0].Kind != rdma.Immediate {
				t.Fatalf("got %+v: %v", out[:n], err)
			}
			if n, err := l.railA.Wait(ctx, out); err != nil || n != 1 || out[0].Kind != rdma.Done {
				t.Fatalf("got %+v: %v", out[:n], err)
			}
			cancel()
			for i, b := range arrived {
				if b != round {
					t.Fatalf("round %d: byte %d is %d", round, i, b)
				}
			}
		}
	})
}

// TestNoAllocations: a post and its completion, and sleeping in Wait, allocate nothing.
func TestNoAllocations(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		l := newLink(t, p, g, smallConfig, 1<<20)
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		out := make([]rdma.Completion, 8)
		wrs := []rdma.WR{
			{Op: rdma.OpSend, Quiet: true, Msg: make([]byte, 100)},
			{Op: rdma.OpWriteImm, Local: l.mrA, Len: 300 << 10, RKey: l.mrB.RKey(), RemoteAddr: l.mrB.Addr()},
		}
		await := func(r rdma.Rail, want int) {
			for got := 0; got < want; {
				n, err := r.Wait(ctx, out)
				if err != nil {
					t.Fatal(err)
				}
				got += n
			}
		}
		round := func() {
			if n, err := l.a.Post(wrs); n != len(wrs) {
				t.Fatal(err)
			}
			await(l.railB, 2)
			await(l.railA, 1)
		}
		round() // does what is done once
		if n := testing.AllocsPerRun(20, round); n > 0 {
			t.Errorf("%v allocations for two work requests and three completions", n)
		}
	})
}

// TestStrangers: programs other than gdrcp get no connection, as client or server.
func TestStrangers(t *testing.T) {
	rping, err := exec.LookPath("rping")
	if err != nil {
		t.Skip("rping is missing: apt install rdmacm-utils")
	}
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		ln, err := p.Listen(netip.AddrPortFrom(g.addr, 0), rdma.Wire{})
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		port := fmt.Sprint(ln.Addr().Port())
		if out, err := exec.Command(rping, "-c", "-a", g.addr.String(), "-p", port, "-C", "1").CombinedOutput(); err == nil {
			t.Errorf("rping was served: %s", out)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if q, err := ln.Accept(ctx); err == nil {
			t.Errorf("a stranger's request was handed out: %q", q.PrivateData())
		}
		dialStranger(t, p, g, rping)
	})
}

func dialStranger(t *testing.T, p *Provider, g target, rping string) {
	t.Helper()
	const port = "7999"
	server := exec.Command(rping, "-s", "-a", g.addr.String(), "-p", port, "-C", "1")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	r, err := p.Open(g.device, smallConfig)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		_, err = r.Dial(context.Background(), netip.MustParseAddrPort(g.addr.String()+":"+port), nil)
		if !errors.Is(err, syscall.ECONNREFUSED) {
			break // otherwise it does not listen yet
		}
	}
	if !errors.Is(err, rdma.ErrNotGdrcp) {
		t.Errorf("dial a stranger: %v", err)
	}
}

// removesDevice, in the environment, makes TestDeviceRemoved run as the process
// that loses its device.
const removesDevice = "GDRCP_TEST_REMOVES_DEVICE"

// TestDeviceRemoved removes a device that has a live connection. It creates the device, of
// the same kind as the targets, and so must be root. The kernel waits for every process
// that has the device open, and meanwhile holds locks that the other devices need, and
// librdmacm keeps the device open. So a separate process does this, and exits.
func TestDeviceRemoved(t *testing.T) {
	eachTarget(t, func(t *testing.T, _ *Provider, g target) {
		kind := strings.TrimRight(g.device, "0123456789")
		if os.Getuid() != 0 || (kind != "rxe" && kind != "siw") {
			t.Skip("needs root and a software device, named rxe… or siw…")
		}
		dev, netdev := kind+"gone", kind+"net"
		if os.Getenv(removesDevice) != "" {
			loseDevice(t, kind, dev, netdev)
			return
		}
		pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
		cmd := exec.Command(os.Args[0], "-test.run="+pattern, "-test.v", "-test.timeout=2m")
		cmd.Env = append(os.Environ(), removesDevice+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v:\n%s", err, out)
		}
		for _, name := range []string{"/sys/class/infiniband/" + dev, "/sys/class/net/" + netdev} {
			for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
				if _, err := os.Stat(name); err != nil {
					break
				}
				if time.Now().After(end) {
					t.Fatalf("%s is still there", name)
				}
			}
		}
	})
}

// loseDevice creates a device, has it removed under a connection, and checks
// how the connection ends.
func loseDevice(t *testing.T, kind, dev, netdev string) {
	run(t, "ip", "link", "add", netdev, "type", "veth", "peer", "name", netdev+"p")
	run(t, "ip", "link", "set", netdev, "up")
	run(t, "ip", "link", "set", netdev+"p", "up")
	run(t, "ip", "addr", "add", "10.99.0.1/32", "dev", netdev)
	run(t, "rdma", "link", "add", dev, "type", kind, "netdev", netdev)
	l := newLink(t, New(), target{dev, netip.MustParseAddr("10.99.0.1")}, smallConfig, 4096)
	if err := sendAndReceive(l); err != nil {
		t.Fatal(err)
	}
	// The commands return after this process has exited. The pauses give the
	// kernel time to report the removal to both ends: an end that looks earlier
	// may see a disconnect of its peer first.
	for _, args := range [][]string{{"rdma", "link", "del", dev}, {"ip", "link", "del", netdev}} {
		if err := exec.Command(args[0], args[1:]...).Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	out := make([]rdma.Completion, 4)
	rails := map[string]rdma.Rail{"dialler": l.railA, "acceptor": l.railB}
	for name, r := range rails {
		n, err := r.Wait(ctx, out)
		for err == nil && out[n-1].Kind != rdma.Closed {
			n, err = r.Wait(ctx, out)
		}
		if err != nil {
			t.Fatalf("%s: wait for Closed: %v", name, err)
		}
		if err := out[n-1].Err; !strings.Contains(err.Error(), "DEVICE_REMOVAL") {
			t.Errorf("%s: Closed says %v", name, err)
		}
	}
	// Only now, because closing one end disconnects the other.
	for name, r := range rails {
		start := time.Now()
		if err := r.Close(); err != nil {
			t.Logf("%s: close rail: %v", name, err)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%s: closing took %s", name, took)
		}
	}
}

func run(t *testing.T, name string, args ...string) {
	t.Helper()
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
}
