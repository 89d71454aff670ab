//go:build linux && cgo

package verbs

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma"
)

// troubled returns a rail with one connection to a peer over each of two ports,
// and a Loopback.
func troubled() (r *rail, first, second *conn) {
	r = &rail{dev: rdma.Device{Name: "mlx9"}, cfg: rdma.RailConfig{Conns: 2, Loopbacks: 1}}
	first = &conn{port: 1, gid: netip.MustParseAddr("::ffff:10.7.0.1"), berth: berth{slot: 0}}
	second = &conn{port: 2, gid: netip.MustParseAddr("fe80::2"), berth: berth{slot: 1}}
	r.live = map[*conn]struct{}{first: {}, second: {}, {port: 3, gid: first.gid, berth: berth{slot: 2}}: {}}
	return r, first, second
}

// wantTrouble checks that a rail's Trouble contains text, or is nil if text is empty.
func wantTrouble(t *testing.T, r *rail, when, text string) {
	t.Helper()
	err := r.Trouble()
	if text == "" && err != nil || text != "" && (err == nil || !strings.Contains(err.Error(), text) || rdma.FaultOf(err) != rdma.FaultPath) {
		t.Errorf("%s: the rail says %v, want %q and a fault of the path", when, err, text)
	}
}

func TestPortsThatCarryNoConnectionDoNotCount(t *testing.T) {
	const down = "IBV_EVENT_PORT_ERR"
	r, first, second := troubled()
	r.portWent(3, true)
	wantTrouble(t, r, "the port of the connection to itself is down", "")
	r.portWent(4, true)
	wantTrouble(t, r, "a port without a connection is down", "")
	delete(r.live, second)
	r.portWent(2, true)
	wantTrouble(t, r, "the port of a connection that has ended is down", "")
	r.portWent(1, true)
	wantTrouble(t, r, "the port is down", down)
	r.portWent(2, false)
	wantTrouble(t, r, "another port is up", down)
	r.portWent(1, false)
	wantTrouble(t, r, "the port is up again", "")
	first.port = 0
	r.portWent(7, true)
	wantTrouble(t, r, "a port is down, and it is not known which the connection has", down)
}

func TestGIDsOfOthersMayComeAndGo(t *testing.T) {
	const gone = "IBV_EVENT_GID_CHANGE"
	r, first, second := troubled()
	other := netip.MustParseAddr("::ffff:10.9.0.1")
	r.gidsChanged(1, []netip.Addr{first.gid, other})
	wantTrouble(t, r, "a GID has come", "")
	r.gidsChanged(1, []netip.Addr{first.gid})
	wantTrouble(t, r, "it has gone", "")
	r.gidsChanged(3, nil)
	wantTrouble(t, r, "another port has lost all of its own", "")
	r.gidsChanged(2, []netip.Addr{first.gid})
	wantTrouble(t, r, "one port has lost its own, and has that of the other", gone)
	r.gidsChanged(2, []netip.Addr{second.gid})
	wantTrouble(t, r, "it is back", "")
	r.gidsChanged(1, nil)
	wantTrouble(t, r, "the port has none any more", gone)
	delete(r.live, first)
	wantTrouble(t, r, "the connection has ended", "")
	second.gid = netip.Addr{}
	r.gidsChanged(2, nil)
	wantTrouble(t, r, "the connection's GID is not known", "")
}

func TestLIDsOfOthersMayChange(t *testing.T) {
	const changed = "IBV_EVENT_LID_CHANGE"
	r, first, second := troubled()
	first.lid = "0x7"
	r.lidChanged(1, "0x7")
	wantTrouble(t, r, "the LID is the same", "")
	r.lidChanged(2, "0x9")
	wantTrouble(t, r, "a port has one whose connection began without", "")
	r.lidChanged(3, "0x9")
	wantTrouble(t, r, "another port has another", "")
	r.lidChanged(1, "0x8")
	wantTrouble(t, r, "the port has another", changed)
	r.lidChanged(1, "")
	wantTrouble(t, r, "the port has none", changed)
	r.lidChanged(1, "0x7")
	wantTrouble(t, r, "it is back", "")
	first.lid, second.lid = "", "0x7"
	r.lidChanged(1, "0x8")
	wantTrouble(t, r, "the connection's LID is not known", "")
}

func TestLIDOfAPort(t *testing.T) {
	sysfs := t.TempDir()
	dir := filepath.Join(sysfs, "class/infiniband/mlx9/ports/1")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"0x1f\n": "0x1f", "0x0\n": "", "garbage\n": "", "": ""} {
		if err := os.WriteFile(filepath.Join(dir, "lid"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := lidOf(sysfs, "mlx9", 1); got != want {
			t.Errorf("a port whose LID reads %q has %q, want %q", text, got, want)
		}
	}
	if got := lidOf(sysfs, "mlx9", 2); got != "" {
		t.Errorf("a port that is gone has the LID %q", got)
	}
}

func TestGIDsOfAPort(t *testing.T) {
	sysfs := t.TempDir()
	if list, ok := gidsOf(sysfs, "mlx9", 1); ok || list != nil {
		t.Errorf("the GIDs of a device that is gone are %v", list)
	}
	dir := filepath.Join(sysfs, "class/infiniband/mlx9/ports/1/gids")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for entry, gid := range map[string]string{
		"0": "fe80:0000:0000:0000:0202:c9ff:fe00:0001", "1": "0000:0000:0000:0000:0000:ffff:0a07:0001",
		"2": "0000:0000:0000:0000:0000:0000:0000:0000", "3": "garbage",
	} {
		if err := os.WriteFile(filepath.Join(dir, entry), []byte(gid+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := []netip.Addr{netip.MustParseAddr("fe80::202:c9ff:fe00:1"), netip.MustParseAddr("::ffff:10.7.0.1")}
	if list, ok := gidsOf(sysfs, "mlx9", 1); !ok || !slices.Equal(list, want) {
		t.Errorf("the GIDs are %v, want %v", list, want)
	}
}

// TestGoneAddress removes addresses from a RoCE device's interface: first one
// that no connection uses, then that of a connection, which is reported until
// the address is restored.
func TestGoneAddress(t *testing.T) {
	eachTarget(t, func(t *testing.T, p *Provider, g target) {
		d := deviceOf(t, p, g.device)
		if line, err := os.ReadFile("/proc/cmdline"); err != nil || !strings.Contains(string(line), "bed.node=") {
			t.Skip("it changes the machine's addresses: run it in the bed")
		}
		if d.Transport != rdma.RoCE {
			t.Skip("the GIDs of iWARP are no addresses")
		}
		l := newLink(t, p, g, smallConfig, 4096)
		if err := sendAndReceive(l); err != nil {
			t.Fatal(err)
		}
		ip := func(args ...string) {
			t.Helper()
			if out, err := exec.Command("ip", append(append([]string{"addr"}, args...), "dev", d.Ports[0].NetDev)...).CombinedOutput(); err != nil {
				t.Fatalf("ip addr %v: %v: %s", args, err, out)
			}
		}
		own, other := g.addr.String()+"/24", "10.99.0.1/24"
		r := l.a.(*conn).r
		t.Cleanup(func() { _ = exec.Command("ip", "addr", "add", own, "dev", d.Ports[0].NetDev).Run() }) // it may still be there
		ip("add", other)
		ip("del", other)
		time.Sleep(time.Second) // the device updates its GIDs some time after that
		wantTrouble(t, r, "another address came and went", "")
		ip("del", own)
		awaitTrouble(t, r, func(err error) bool { return err != nil && strings.Contains(err.Error(), "IBV_EVENT_GID_CHANGE") })
		ip("add", own)
		awaitTrouble(t, r, func(err error) bool { return err == nil })
	})
}

// awaitTrouble waits until a rail's Trouble satisfies is.
func awaitTrouble(t *testing.T, r *rail, is func(error) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for !is(r.Trouble()) {
		select {
		case <-ctx.Done():
			t.Fatalf("the rail says %v", errors.Join(r.Trouble(), ctx.Err()))
		case <-time.After(20 * time.Millisecond):
		}
	}
}
