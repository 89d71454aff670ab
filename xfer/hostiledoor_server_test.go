package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

// speakingDoor is a server of the tests' own that has a key, or claims to have one, and sends its
// own messages after its preface.
func speakingDoor(t *testing.T, w hostileWay, say func(ctx context.Context, d *door.Conn, opening []byte) error) netip.AddrPort {
	t.Helper()
	l, err := w.provider.Listen(netip.AddrPortFrom(w.addr, 0), rdma.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		l.Close()
		<-done
	})
	go func() {
		defer close(done)
		for {
			req, err := l.Accept(ctx)
			if err != nil {
				return
			}
			d := &door.Conn{MayHear: 1}
			if d.Rail, err = w.provider.Open(req.Device(), door.RailConfig(door.Depth, rdma.Wire{})); err == nil {
				d.QP, err = req.Accept(ctx, d.Rail)
			}
			if err == nil {
				_ = say(ctx, d, req.PrivateData()[:rdma.MaxPrivateDataBytes]) // only the client's error counts
				_, _ = d.Take(ctx)
			}
			_ = d.Close()
		}
	}()
	return l.Addr()
}

// answers runs the server's half of the handshake.
func answers(ctx context.Context, d *door.Conn, opening []byte) error {
	first, err := d.Take(ctx)
	if err != nil {
		return err
	}
	_, answer, s, err := trust.Answer(first, opening, func(string) (trust.Secret, bool) { return testKey.Secret, true })
	if err != nil {
		return err
	}
	d.Seal, d.Open = s.Door()
	return d.Post(ctx, answer)
}

// A client goes no further than the door of a server that does not prove the key, or that sends
// what the protocol does not allow.
func TestHostileDoorOfAServer(t *testing.T) {
	rdmatest.BesideOthers(t)
	overHostile(t, testHostileDoorOfAServer)
}

func testHostileDoorOfAServer(t *testing.T, w hostileWay) {
	type say = func(ctx context.Context, d *door.Conn, opening []byte) error
	plain := func(change func(first []byte) []byte) say {
		return func(ctx context.Context, d *door.Conn, _ []byte) error {
			first, err := d.Take(ctx)
			if err != nil {
				return err
			}
			return d.Post(ctx, change(first))
		}
	}
	sealed := func(kind byte, body []byte) say {
		return func(ctx context.Context, d *door.Conn, opening []byte) error {
			return errors.Join(answers(ctx, d, opening), d.Say(ctx, kind, body))
		}
	}
	uvarints := func(vs ...uint64) (b []byte) {
		for _, v := range vs {
			b = binary.AppendUvarint(b, v)
		}
		return b
	}
	for _, tc := range []struct {
		name string
		want error
		say  say
	}{
		{"no", trust.ErrRefused, plain(func([]byte) []byte { return []byte{0} })},
		{"nothing", trust.ErrRefused, plain(func([]byte) []byte { return nil })},
		{"the client's own words", trust.ErrRefused, plain(func(first []byte) []byte { return first[len(first)-trust.AnswerBytes:] })},
		{"zeros", trust.ErrRefused, plain(func([]byte) []byte { return make([]byte, trust.AnswerBytes) })},
		{"the longest message", trust.ErrRefused, plain(func([]byte) []byte { return make([]byte, door.MsgBytes) })},
		{"an answer of another key", trust.ErrRefused, func(ctx context.Context, d *door.Conn, opening []byte) error {
			_, first, err := trust.Open(trust.Key{ID: testKey.ID, Secret: trust.NewSecret([32]byte{5})}, opening)
			if err != nil {
				return err
			}
			_, answer, _, err := trust.Answer(first, opening, func(string) (trust.Secret, bool) { return trust.NewSecret([32]byte{5}), true })
			return errors.Join(err, d.Post(ctx, answer))
		}},
		{"an answer to another opening", trust.ErrRefused, func(ctx context.Context, d *door.Conn, opening []byte) error {
			_, first, err := trust.Open(testKey, doorOpening(3))
			if err != nil {
				return err
			}
			_, answer, _, err := trust.Answer(first, doorOpening(3), func(string) (trust.Secret, bool) { return testKey.Secret, true })
			return errors.Join(err, d.Post(ctx, answer))
		}},
		{"a grant in the clear", ErrProtocol, func(ctx context.Context, d *door.Conn, opening []byte) error {
			return errors.Join(answers(ctx, d, opening), d.Post(ctx, append([]byte{wire.DoorGrant}, uvarints(1, 1)...)))
		}},
		{"a grant twice sealed alike", ErrProtocol, func(ctx context.Context, d *door.Conn, opening []byte) error {
			if err := answers(ctx, d, opening); err != nil {
				return err
			}
			b := d.Seal.Seal(nil, append([]byte{wire.DoorRail}, door.NoRailText("x")...))
			return errors.Join(d.Post(ctx, b), d.Post(ctx, b))
		}},
		{"no slots", ErrProtocol, sealed(wire.DoorGrant, uvarints(0, 1))},
		{"no queue pairs", ErrProtocol, sealed(wire.DoorGrant, uvarints(1, 0))},
		{"more slots than asked for", ErrProtocol, sealed(wire.DoorGrant, uvarints(hostileSlots+1, 1))},
		{"more queue pairs than asked for", ErrProtocol, sealed(wire.DoorGrant, uvarints(1, 2))},
		{"slots without end", ErrProtocol, sealed(wire.DoorGrant, uvarints(1<<64-1, 1))},
		{"queue pairs without end", ErrProtocol, sealed(wire.DoorGrant, uvarints(1, 1<<63))},
		{"a grant cut", ErrProtocol, sealed(wire.DoorGrant, uvarints(1))},
		{"a grant and more", ErrProtocol, sealed(wire.DoorGrant, uvarints(1, 1, 1))},
		{"a grant of no bytes", ErrProtocol, sealed(wire.DoorGrant, nil)},
		{"a refusal cut", ErrProtocol, sealed(wire.DoorRefuse, []byte{1})},
		{"a proof", ErrProtocol, sealed(wire.DoorProof, nil)},
		{"an unknown message", ErrProtocol, sealed(wire.DoorRefuse+1, nil)},
		{"message 0", ErrProtocol, sealed(0, nil)},
		{"message 255", ErrProtocol, sealed(255, nil)},
		{"addresses without end", ErrProtocol, func(ctx context.Context, d *door.Conn, opening []byte) error {
			if err := answers(ctx, d, opening); err != nil {
				return err
			}
			for {
				if err := d.Say(ctx, wire.DoorRail, []byte("192.0.2.1:1 x")); err != nil {
					return err
				}
			}
		}},
		{"an immediate", ErrProtocol, func(ctx context.Context, d *door.Conn, opening []byte) error {
			if err := answers(ctx, d, opening); err != nil {
				return err
			}
			_, err := d.QP.Post([]rdma.WR{{Op: rdma.OpWriteImm, Imm: 7}})
			return err
		}},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			addr := speakingDoor(t, w, tc.say)
			ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(w.slow*10*time.Second))
			defer cancel()
			a, err := w.options().atDoor(testKey).Authenticate(ctx, w.provider, w.device(t, addr), addr, func() {})
			if err == nil {
				_ = a.Close()
			}
			if !errors.Is(err, tc.want) {
				t.Errorf("got %v, want %v", err, tc.want)
			}
		})
	}
}

// The text of a server's refusal reaches a terminal in printable form.
func TestRefusalIsPrintable(t *testing.T) {
	OnHost(t)
	w := byTCP()
	addr := speakingDoor(t, w, func(ctx context.Context, d *door.Conn, opening []byte) error {
		return errors.Join(answers(ctx, d, opening), d.Say(ctx, wire.DoorRefuse, []byte("\x00\x00\x1b[2Jgo\r\naway\x00")))
	})
	_, err := w.options().atDoor(testKey).Authenticate(t.Context(), w.provider, "tcp", addr, func() {})
	var refused *RefusedError
	if !errors.As(err, &refused) || strings.ContainsAny(err.Error(), "\x1b\r\n\x00") {
		t.Errorf("got %q", err)
	}
}
