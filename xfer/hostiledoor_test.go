package xfer

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

// caught is the door connection of a client of the tests' own.
type caught struct {
	*door.Conn
	opening []byte
	hand    *trust.Opening
	first   []byte
}

// atDoor dials a door with the preamble opening, and prepares the first message of the handshake.
func atDoor(t testing.TB, w hostileWay, addr netip.AddrPort, key trust.Key, opening []byte) *caught {
	t.Helper()
	c := &caught{Conn: &door.Conn{MayHear: door.ClientDepth}, opening: opening}
	t.Cleanup(func() { _ = c.Close() })
	var err error
	if c.hand, c.first, err = trust.Open(key, opening); err != nil {
		t.Fatal(err)
	}
	if c.Rail, err = w.provider.Open(w.device(t, addr), door.RailConfig(door.ClientDepth, rdma.Wire{})); err != nil {
		t.Fatal(err)
	}
	if c.QP, err = c.Rail.Dial(t.Context(), addr, opening); err != nil {
		t.Fatal(err)
	}
	return c
}

// doorOpening is the preamble of a door of 1 queue pair.
func doorOpening(session byte) []byte {
	p := door.Preamble{QPs: 1, Slots: hostileSlots, ChunkKiB: 1024, Session: [16]byte{session}}
	return p.Encode()
}

// proves runs the client's half to its end.
func (c *caught) proves(ctx context.Context) error {
	if err := c.Post(ctx, c.first); err != nil {
		return err
	}
	answer, err := c.Take(ctx)
	if err != nil {
		return err
	}
	s, err := c.hand.Finish(answer)
	if err != nil {
		return err
	}
	c.Seal, c.Open = s.Door()
	return nil
}

// Nobody passes the door without a proof: a recording, a guess or half a handshake ends there,
// without a session and without information.
func TestHostileDoor(t *testing.T) { overHostile(t, testHostileDoor) }

func testHostileDoor(t *testing.T, w hostileWay) {
	other := trust.Key{ID: testKey.ID, Secret: trust.NewSecret([32]byte{9})}
	for _, tc := range []struct {
		name string
		key  trust.Key
		say  func(ctx context.Context, t *testing.T, c *caught) error
	}{
		{"another secret", other, func(ctx context.Context, t *testing.T, c *caught) error { return c.Post(ctx, c.first) }},
		{"a key that is not there", trust.Key{ID: "nobody", Secret: testKey.Secret}, func(ctx context.Context, t *testing.T, c *caught) error {
			return c.Post(ctx, c.first)
		}},
		{"a message of none", testKey, func(ctx context.Context, t *testing.T, c *caught) error { return c.Post(ctx, nil) }},
		{"a first message cut", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			return c.Post(ctx, c.first[:len(c.first)-1])
		}},
		{"a first message and more", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			return c.Post(ctx, append(c.first, 0))
		}},
		{"a name of other length", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			c.first[0]++
			return c.Post(ctx, c.first)
		}},
		{"a name of no bytes", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			return c.Post(ctx, append([]byte{0}, c.first[1+len(testKey.ID):]...))
		}},
		{"a bit off", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			c.first[len(c.first)-1] ^= 1
			return c.Post(ctx, c.first)
		}},
		{"the longest message", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			return c.Post(ctx, bytes.Repeat([]byte{0xff}, door.MsgBytes))
		}},
		{"the longest name", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			return c.Post(ctx, bytes.Repeat([]byte{0xff}, trust.MaxOpeningBytes-trust.MaxIDBytes+0xff))
		}},
		{"recorded at another door", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			_, first, err := trust.Open(testKey, doorOpening(77))
			return errors.Join(err, c.Post(ctx, first))
		}},
		{"a wish that was changed on the way", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			wish := bytes.Clone(c.opening)
			wish[9]++
			_, first, err := trust.Open(testKey, wish)
			return errors.Join(err, c.Post(ctx, first))
		}},
		{"no proof", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			if err := c.proves(ctx); err != nil {
				return err
			}
			return c.Post(ctx, []byte{wire.DoorProof})
		}},
		{"a proof of something else", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			if err := c.proves(ctx); err != nil {
				return err
			}
			return c.Say(ctx, wire.DoorGrant, nil)
		}},
		{"a proof and more", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			if err := c.proves(ctx); err != nil {
				return err
			}
			return c.Say(ctx, wire.DoorProof, []byte{1})
		}},
		{"a sealed message of none", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			if err := c.proves(ctx); err != nil {
				return err
			}
			return c.Post(ctx, c.Seal.Seal(nil, nil))
		}},
		{"a proof that was changed", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			if err := c.proves(ctx); err != nil {
				return err
			}
			b := c.Seal.Seal(nil, []byte{wire.DoorProof})
			b[len(b)-1] ^= 1
			return c.Post(ctx, b)
		}},
		{"the server's own answer", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			if err := c.Post(ctx, c.first); err != nil {
				return err
			}
			answer, err := c.Take(ctx)
			return errors.Join(err, c.Post(ctx, answer))
		}},
		{"the first message again", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			return errors.Join(c.proves(ctx), c.Post(ctx, c.first))
		}},
		{"an immediate", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			_, err := c.QP.Post([]rdma.WR{{Op: rdma.OpWriteImm, Imm: 7}})
			return err
		}},
		{"a write to where nothing is", testKey, func(ctx context.Context, t *testing.T, c *caught) error {
			mr, err := c.Rail.Register(rdma.HostRegion(make([]byte, 4096)), rdma.LocalWrite)
			if err != nil {
				t.Fatal(err)
			}
			_, err = c.QP.Post([]rdma.WR{{Op: rdma.OpWrite, Local: mr, Len: 1, RemoteAddr: 4096, RKey: 1}})
			return err
		}},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			i := newIntruder(t, w)
			ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(w.slow*10*time.Second))
			defer cancel()
			c := atDoor(t, w, i.addr, tc.key, doorOpening(1))
			if err := tc.say(ctx, t, c); err != nil {
				t.Fatalf("say it: %v", err)
			}
			for {
				msg, err := c.Take(ctx)
				if err != nil {
					if ctx.Err() != nil {
						t.Error("the server does not hang up")
					}
					break
				}
				if len(msg) != 1 && len(msg) != trust.AnswerBytes {
					t.Errorf("it was told %d bytes", len(msg))
				}
			}
			if end := <-i.ends; end.Err == nil || end.Key != "" {
				t.Errorf("the server took it for a client: %+v", end)
			}
			if n := i.rails.rails.Load(); n != 0 {
				t.Errorf("the server opened %d rails", n)
			}
		})
	}
}

// A client's messages, recorded and sent again unchanged, get no session: neither from the same
// server, nor from one that receives them for the first time.
func TestReplayedHandshake(t *testing.T) { overHostile(t, testReplayedHandshake) }

func testReplayedHandshake(t *testing.T, w hostileWay) {
	i := newIntruder(t, w)
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(w.slow*10*time.Second))
	defer cancel()
	c := atDoor(t, w, i.addr, testKey, doorOpening(1))
	if err := c.proves(ctx); err != nil {
		t.Fatal(err)
	}
	proof := c.Seal.Seal(nil, []byte{wire.DoorProof})
	if err := c.Post(ctx, proof); err != nil {
		t.Fatal(err)
	}
	for {
		kind, _, err := c.Hear(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if kind == wire.DoorGrant {
			break
		}
	}
	for _, whole := range []bool{false, true} {
		again := atDoor(t, w, i.addr, testKey, c.opening)
		if err := again.Post(ctx, c.first); err != nil {
			t.Fatal(err)
		}
		if answer, err := again.Take(ctx); err != nil || len(answer) != trust.AnswerBytes {
			t.Fatalf("%d bytes, %v", len(answer), err)
		}
		said := proof
		if !whole {
			said = make([]byte, 1+trust.SealBytes)
		}
		if err := again.Post(ctx, said); err != nil {
			t.Fatal(err)
		}
		if msg, err := again.Take(ctx); err == nil {
			t.Errorf("a recording was told %d bytes more", len(msg))
		}
		if end := <-i.ends; !errors.Is(end.Err, ErrProtocol) || end.Key != "" {
			t.Errorf("the server took it for a client: %+v", end)
		}
	}
	if n := i.rails.rails.Load(); n != 0 {
		t.Errorf("the server opened %d rails", n)
	}
}
