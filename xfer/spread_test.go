package xfer

import (
	"fmt"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
)

// verbsNamed is a provider by the name of verbs.
type verbsNamed struct{ rdma.Provider }

func (verbsNamed) Name() string { return "verbs" }

// Sessions are told devices of the same rate in turn, those with the fewest
// sessions first, and faster ones always before slower ones.
func TestSessionsSpreadOverRails(t *testing.T) {
	OnHost(t)
	const rails = 8
	provider := verbsNamed{tcp.New()}
	v := NewServer(ServerConfig{})
	v.listeners = append(v.listeners, &serverListener{provider: tcp.New(), device: "tcp", rateGbps: 800})
	v.listeners = append(v.listeners, &serverListener{provider: provider, device: "slow", rateGbps: 25})
	for i := range rails {
		for range 2 { // addresses of either family
			v.listeners = append(v.listeners, &serverListener{provider: provider, device: fmt.Sprint("rail", i), rateGbps: 400})
		}
	}
	begun, of := 0, map[string][]*serverSession{}
	begin := func() *serverSession {
		h := &serverSession{id: [16]byte{byte(begun)}}
		begun++
		v.sessions[h.id] = h
		told := v.railsFor(h, nil)
		if len(told) != maxRails || told[0].device != h.device || told[1].device != h.device {
			t.Fatalf("session %d was told %d addresses, the first of %s and %s", begun, len(told), told[0].device, told[1].device)
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
	// Where sessions have ended there is room, and one that came by another device
	// than it was told counts where it is.
	delete(v.sessions, of["rail5"][0].id)
	of["rail3"][0].device = "slow"
	of["rail3"][1].device = "slow"
	for _, want := range []string{"rail3", "rail3", "rail5", "rail0"} {
		if h := begin(); h.device != want {
			t.Errorf("a session was told %s first, want %s", h.device, want)
		}
	}
}
