package program

import (
	"fmt"
	"strings"
	"testing"
)

// rails counts the events of a copy that runs about a rail in a state.
func (p *process) rails(name, state string) int {
	return strings.Count(p.stdout.String(), fmt.Sprintf(`{"event":"rail","rail":%q,"state":%q`, name, state))
}

// awaitRail waits until a copy has told for the nth time that a rail is in a state.
func (p *process) awaitRail(n int, name, state string) {
	p.t.Helper()
	until(p.t, slow(patience), func() bool {
		select {
		case <-p.ended:
			p.t.Fatalf("the copy ended before %s was %s: %s", name, state, p)
		default:
		}
		return p.rails(name, state) >= n
	}, func() string { return fmt.Sprintf("%s is not %s for time %d: %s", name, state, n, p) })
}

// TestRailsGoDownInTheMiddle takes down the port of each of two devices, one after the
// other, in the middle of a copy over both. The copy goes on over the other one each time,
// the device joins again, and no byte is lost.
func TestRailsGoDownInTheMiddle(t *testing.T) {
	needRDMA(t)
	ownGuest(t, "takes devices down")
	netdevs := map[string]string{}
	for _, r := range softRails(t) {
		netdevs[r.name] = r.netdev
	}
	s := newSides(t, tcpLink(), "--listen", "0.0.0.0:0")
	write(t, s.here+"/file", strings.Repeat("0123456789abcdef", 8<<20))
	p := start(t, how{}, "--json", "--bwlimit", "4M", s.here+"/file", s.url("there"))
	first := ""
	until(t, slow(patience), func() bool { return strings.Contains(p.stdout.String(), `"connected"`) }, func() string { return "no copy begins: " + p.String() })
	first, _ = p.event("connected")["device"].(string)
	second := map[string]string{"rxe0": "rxe1", "rxe1": "rxe0", "siw0": "siw1", "siw1": "siw0"}[first]
	p.awaitRail(1, second, "joined")
	for i, rail := range []string{second, first} {
		command(t, "ip", "link", "set", netdevs[rail], "down")
		p.awaitRail(1, rail, "lost")
		command(t, "ip", "link", "set", netdevs[rail], "up")
		p.awaitRail(2-i, rail, "joined") // the first one joins by the first connection at first
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
