package program

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"gdrcp/tests/launch"
)

// rails counts the events of a running copy about a rail in a state.
func (p *process) rails(name, state string) int {
	return strings.Count(p.stdout.String(), fmt.Sprintf(`{"event":"rail","rail":%q,"state":%q`, name, state))
}

// awaitRail waits until a copy has reported for the nth time that a rail is in a state.
func (p *process) awaitRail(n int, name, state string) {
	p.t.Helper()
	until(p.t, launch.Slow(patience), func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("the copy ended before %s was %s: %s", name, state, p)
		default:
		}
		return p.rails(name, state) >= n
	}, func() string { return fmt.Sprintf("%s is not %s for time %d: %s", name, state, n, p) })
}

// netdevs returns the interfaces of the machine's devices, by the devices' names.
func netdevs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, r := range softRails(t) {
		all[r.name] = r.netdev
	}
	return all
}

// overTwo starts a copy over two devices that takes a while. first is the device of the
// first connection.
func overTwo(t *testing.T, s *sides, args ...string) (p *process, first, second string) {
	t.Helper()
	write(t, s.here+"/file", strings.Repeat("0123456789abcdef", 8<<20))
	p = start(t, how{}, append(args, "--json", "--bwlimit", "4M", s.here+"/file", s.url("there"))...)
	until(t, launch.Slow(patience), func() bool { return strings.Contains(p.stdout.String(), `"connected"`) }, func() string { return "no copy begins: " + p.String() })
	first, _ = p.event("connected")["device"].(string)
	second = map[string]string{"rxe0": "rxe1", "rxe1": "rxe0", "siw0": "siw1", "siw1": "siw0"}[first]
	p.awaitRail(1, second, "joined")
	return p, first, second
}

// TestRailsGoDownInTheMiddle takes down the port of each of two devices in turn during
// a copy over both. The copy continues over the other device each time, the device
// rejoins, and no byte is lost.
func TestRailsGoDownInTheMiddle(t *testing.T) {
	needRDMA(t)
	ownGuest(t, "takes devices down")
	netdev := netdevs(t)
	s := newSides(t, tcpLink(), "--listen", "0.0.0.0:0")
	p, first, second := overTwo(t, s)
	for i, rail := range []string{second, first} {
		command(t, "ip", "link", "set", netdev[rail], "down")
		p.awaitRail(1, rail, "lost")
		command(t, "ip", "link", "set", netdev[rail], "up")
		p.awaitRail(2-i, rail, "joined") // the first rail was already joined once, by the first connection
	}
	p.wantCode(0)
	e := p.event("summary")
	for _, r := range e["rails"].([]any) {
		if use := r.(map[string]any); use["bytes"] == 0.0 || use["faults"] == 0.0 {
			t.Errorf("a rail was not used, or not lost: %v", use)
		}
	}
	if why := differAt(s.here+"/file", s.there+"/there"); why != "" {
		t.Error(why)
	}
}

// TestRailLosesItsAddressInTheMiddle removes the address of one of two RoCE devices
// during a copy over both: that rail is lost, and the other one continues. When the
// address is back, the rail rejoins.
func TestRailLosesItsAddressInTheMiddle(t *testing.T) {
	needRDMA(t)
	onlyInFull(t)
	ownGuest(t, "changes addresses")
	netdev, addr := netdevs(t), map[string]string{"rxe0": "10.7.0.1/24", "rxe1": "10.17.0.1/24"}
	s := newSides(t, tcpLink(), "--listen", "0.0.0.0:0")
	p, first, second := overTwo(t, s, "--rail", "rxe0", "--rail", "rxe1")
	command(t, "ip", "addr", "del", addr[second], "dev", netdev[second])
	t.Cleanup(func() { _ = exec.Command("ip", "addr", "add", addr[second], "dev", netdev[second]).Run() }) // it may already be there
	p.awaitRail(1, second, "lost")
	command(t, "ip", "addr", "add", addr[second], "dev", netdev[second])
	p.awaitRail(2, second, "joined")
	p.wantCode(0)
	if p.rails(first, "lost") > 0 {
		t.Errorf("the other rail was lost, too: %s", p)
	}
	if why := differAt(s.here+"/file", s.there+"/there"); why != "" {
		t.Error(why)
	}
}
