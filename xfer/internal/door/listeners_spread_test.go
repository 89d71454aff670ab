package door

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
)

// namedVerbs is a provider named verbs.
type namedVerbs struct{ rdma.Provider }

func (namedVerbs) Name() string { return "verbs" }

// Sessions are sent devices of the same rate in turn, those with the fewest
// sessions first, and faster ones always before slower ones.
func TestSessionsSpreadOverRails(t *testing.T) {
	const rails = 8
	provider := namedVerbs{tcp.New()}
	d := NewServer(Config{})
	d.listeners.list = append(d.listeners.list, &serverListener{provider: tcp.New(), device: Device{Name: "tcp", RateGbps: 800}})
	d.listeners.list = append(d.listeners.list, &serverListener{provider: provider, device: Device{Name: "slow", RateGbps: 25}})
	for i := range rails {
		for range 2 { // addresses of both families
			d.listeners.list = append(d.listeners.list, &serverListener{provider: provider, device: Device{Name: fmt.Sprint("rail", i), RateGbps: 400}})
		}
	}
	begun, of := 0, map[string][]*Session{}
	begin := func() *Session {
		h := &Session{ID: [16]byte{byte(begun)}}
		begun++
		d.queue.sessions[h.ID] = h
		told := d.railsFor(h, nil, netip.Addr{})
		if len(told) != maxRails || told[0].device.Name != h.device || told[1].device.Name != h.device {
			t.Fatalf("session %d was told %d addresses, the first of %s and %s", begun, len(told), told[0].device.Name, told[1].device.Name)
		}
		of[h.device] = append(of[h.device], h)
		return h
	}
	for range 3 * rails {
		begin()
	}
	for i := range rails {
		if name := fmt.Sprint("rail", i); len(of[name]) != 3 {
			t.Errorf("%s was told first to %d of %d sessions", name, len(of[name]), begun)
		}
	}
	// Devices whose sessions have ended have room, and a session that arrived
	// over another device than it was sent counts on that one.
	delete(d.queue.sessions, of["rail5"][0].ID)
	of["rail3"][0].device = "slow"
	of["rail3"][1].device = "slow"
	for _, want := range []string{"rail3", "rail3", "rail5", "rail0"} {
		if h := begin(); h.device != want {
			t.Errorf("a session was told %s first, want %s", h.device, want)
		}
	}
}

// Among equally near devices those with the fewest sessions still come first.
func TestNearRailsAreSpread(t *testing.T) {
	d := NewServer(Config{})
	for _, name := range []string{"a", "b", "far"} {
		d.listeners.list = append(d.listeners.list, &serverListener{provider: namedVerbs{tcp.New()}, device: Device{Name: name, RateGbps: 400}})
	}
	var got []string
	for i := range 4 {
		h := &Session{ID: [16]byte{byte(i)}}
		d.queue.sessions[h.ID] = h
		d.railsFor(h, map[string]int{"a": 2, "b": 2, "far": 4}, netip.Addr{})
		got = append(got, h.device)
	}
	if want := []string{"a", "b", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("told first %q, want %q", got, want)
	}
}

// listenerAt is a listener that only has an address.
type listenerAt struct {
	rdma.Listener
	at netip.AddrPort
}

func (l listenerAt) Addr() netip.AddrPort { return l.at }

// The address by which a client came is always among those that it gets,
// because the client can reach it.
func TestDialledAddressIsTold(t *testing.T) {
	d := NewServer(Config{})
	addr := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i), 1}) }
	for i := range 2 * maxRails {
		d.listeners.list = append(d.listeners.list, &serverListener{
			provider: namedVerbs{tcp.New()}, device: Device{Name: fmt.Sprint("rail", i), RateGbps: 400}, l: listenerAt{at: netip.AddrPortFrom(addr(i), 1)},
		})
	}
	for _, by := range []int{0, maxRails - 1, maxRails, 2*maxRails - 1} {
		told := map[netip.Addr]bool{}
		for _, l := range d.railsFor(&Session{}, nil, netip.AddrFrom16(addr(by).As16())) {
			told[l.l.Addr().Addr()] = true
		}
		if len(told) != maxRails || !told[addr(0)] || !told[addr(by)] {
			t.Errorf("a client that came by %s is told %v", addr(by), told)
		}
	}
}
