package door

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

func TestPreamble(t *testing.T) {
	door := Preamble{QPs: 3, Slots: 4, ChunkKiB: 5, Session: [16]byte{6}}
	join := Preamble{Join: true, Lane: trust.Lane{QP: 2, Epoch: 300}, Session: [16]byte{6}, Token: [16]byte{7}}
	for _, want := range []Preamble{door, join} {
		got, err := decodePreamble(append(want.Encode(), make([]byte, 100)...))
		if err != nil || got != want {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	b := door.Encode()
	b[4]++
	if _, err := decodePreamble(b); !errors.As(err, new(errVersion)) {
		t.Errorf("another version: %v", err)
	}
	b[0]++
	if _, err := decodePreamble(b); !errors.Is(err, rdma.ErrNotGdrcp) {
		t.Errorf("another magic: %v", err)
	}
	if _, err := decodePreamble(b[:20]); !errors.Is(err, rdma.ErrNotGdrcp) {
		t.Errorf("too short: %v", err)
	}
}

// TestDoorMessages covers the server's messages at the door.
func TestDoorMessages(t *testing.T) {
	for _, want := range []RailAddr{{netip.MustParseAddrPort("10.7.0.1:7474"), "rxe0"}, {netip.MustParseAddrPort("[fe80::1%eth0]:7474"), "mlx5_0"}} {
		if got, why, ok := decodeRail(want.railText()); got != want || why != "" || !ok {
			t.Errorf("got %+v, %q, %v", got, why, ok)
		}
	}
	long := strings.Repeat("why ", 200)
	if _, why, ok := decodeRail(NoRailText(long)); !ok || why == "" || !strings.HasPrefix(long, why) {
		t.Errorf("got %q, %v", why, ok)
	}
	for _, text := range []string{"no address", "[fe80::1%\x1bc]:7474 mlx5_0", "[fe80::1%\u009b2J]:7474"} {
		if _, _, ok := decodeRail([]byte(text)); ok {
			t.Errorf("%q was taken for an address", text)
		}
	}
	if got, err := decodeGrant(Grant{16, 3}.encode()); err != nil || got != (Grant{16, 3}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, bad := range []Grant{{0, 1}, {1, 0}, {wire.MaxSlots + 1, 1}, {1, wire.MaxQPs + 1}} {
		if _, err := decodeGrant(bad.encode()); !errors.Is(err, wire.ErrProtocol) {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if got, err := decodeRefusal(refusal{rdma.RejectBusy, "full"}.encode()); err != nil || got != (refusal{rdma.RejectBusy, "full"}) {
		t.Errorf("got %+v, %v", got, err)
	}
	for _, b := range [][]byte{NoRailText(long), RailAddr{netip.MustParseAddrPort("1.2.3.4:5"), long}.railText(), refusal{1, long}.encode()} {
		if len(b)+1+trust.SealBytes > MsgBytes {
			t.Errorf("a message of %d bytes does not fit the door", len(b))
		}
	}
}

// FuzzDoorDecoders runs the decoders of the messages that precede a session.
func FuzzDoorDecoders(f *testing.F) {
	f.Add((&Preamble{QPs: 1, Slots: 1, ChunkKiB: 1}).Encode())
	f.Add(Grant{1, 1}.encode())
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodePreamble(b)
		_, _, _ = decodeRail(b)
		_, _ = decodeRefusal(b)
		if g, err := decodeGrant(b); err == nil && (g.Slots > wire.MaxSlots || g.QPs > wire.MaxQPs) {
			t.Fatalf("granted are %+v", g)
		}
	})
}
