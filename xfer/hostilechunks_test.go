package xfer

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"

	"github.com/klauspost/compress/zstd"
)

// These tests speak the protocol by hand, to send what no gdrcp would send.

// Whatever a hostile source sends, its session ends, the server lives, and nothing is published.
func TestHostileSource(t *testing.T) { overHostile(t, testHostileSource) }

func testHostileSource(t *testing.T, w hostileWay) {
	data := make([]byte, 5000)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	wait := func(ctx context.Context, p *puppet) error {
		return p.Receive(ctx, func(*wire.Frame) error { return nil })
	}
	for _, tc := range []struct {
		name string
		say  func(ctx context.Context, p *puppet) error
	}{
		{"immediate never granted", func(ctx context.Context, p *puppet) error { return p.chunk(0, 1, 2, data, whole(0, data)) }},
		{"slot used twice", func(ctx context.Context, p *puppet) error {
			if err := p.chunk(1, 0, 1, data, whole(0, data)); err != nil { // out of turn: it remains in its slot
				return err
			}
			return p.chunk(2, 0, 1, data, whole(0, data))
		}},
		{"entry never announced", func(ctx context.Context, p *puppet) error { return p.chunk(0, 0, 1, data, whole(7, data)) }},
		{"beyond the file", func(ctx context.Context, p *puppet) error {
			x := whole(0, data)
			x.Off = manifest.DefaultPieceBytes
			return p.chunk(0, 0, 1, data, x)
		}},
		{"a chunk twice", func(ctx context.Context, p *puppet) error {
			if err := p.chunk(3, 0, 1, data, whole(0, data)); err != nil {
				return err
			}
			return p.chunk(3, 1, 1, data, whole(0, data))
		}},
		{"sent again unasked", func(ctx context.Context, p *puppet) error {
			return p.repair(0, 0, 1, data, whole(0, data))
		}},
		{"compressed, as was not agreed", func(ctx context.Context, p *puppet) error {
			h := wire.ChunkHeader{Generation: 1, Codec: wire.CodecZstd, PlainBytes: uint32(len(data)), Extents: []wire.Extent{whole(0, data)}}
			z, err := zstd.NewWriter(nil)
			if err != nil {
				return err
			}
			return p.send(&h, z.EncodeAll(data, nil))
		}},
		{"key never granted", func(ctx context.Context, p *puppet) error {
			p.target.PayloadKey ^= 0x1234
			return p.chunk(0, 0, 1, data, whole(0, data))
		}},
		{"unknown message", func(ctx context.Context, p *puppet) error { return p.Ctl.Send(ctx, 30, nil) }},
		{"roots before the end", func(ctx context.Context, p *puppet) error {
			return p.Ctl.Send(ctx, wire.MsgRoot, (&wire.Roots{}).Encode())
		}},
		{"an end of other entries", func(ctx context.Context, p *puppet) error {
			return p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 77))
		}},
		{"entries out of order", func(ctx context.Context, p *puppet) error {
			e, w := fileOf(1), wire.Writer{}
			return p.Ctl.Send(ctx, wire.MsgEntries, wire.AppendEntry([]byte{9}, &e, &w))
		}},
		{"more bytes than there can be", func(ctx context.Context, p *puppet) error {
			body, w := []byte{1}, wire.Writer{}
			for _, name := range []string{"y", "z"} {
				e := fileAt(name, wire.MaxFileBytes)
				body = wire.AppendEntry(body, &e, &w)
			}
			return p.Ctl.Send(ctx, wire.MsgEntries, body)
		}},
		{"a path that leaves", func(ctx context.Context, p *puppet) error {
			e, w := fileOf(1), wire.Writer{}
			e.Path = "../evil"
			return p.Ctl.Send(ctx, wire.MsgEntries, wire.AppendEntry([]byte{1}, &e, &w))
		}},
		{"messages beyond the window", func(ctx context.Context, p *puppet) error {
			for range 10 * wire.ControlWindow {
				p.Ctl.Mu.Lock() // the poller reads it, too
				_, below := p.Ctl.Window.Unacked()
				_, _ = p.Ctl.Window.Heard(uint32(below - 1))
				p.Ctl.Mu.Unlock()
				if _, err := p.Ctl.TrySend(wire.MsgTotal, (&wire.Totals{}).Encode()); err != nil {
					return nil
				}
			}
			return nil
		}},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			root, addr, ends := w.serve(t)
			err := w.talk(t, addr, wire.ModePush, "x", asIs, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				if err := p.announce(ctx, fileOf(len(data))); err != nil {
					return err
				}
				if err := tc.say(ctx, p); err != nil {
					return err
				}
				for {
					if err := wait(ctx, p); err != nil {
						return err
					}
				}
			})
			if err == nil {
				t.Error("the hostile end was not cut off")
			}
			if end := <-ends; end.Err == nil {
				t.Errorf("the server took it for a copy: %+v", end)
			}
			if _, err := os.Lstat(filepath.Join(root, "x")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it was published: %v", err)
			}
			names, _ := filepath.Glob(filepath.Join(root, ".gdrcp-*"))
			if len(names) > 0 {
				t.Errorf("left behind: %v", names)
			}
		})
	}
}

// Bytes that were never booked must not end up in a file, even if they verify
// against their own digest.
func TestUnbookedBytesAreNotPublished(t *testing.T) {
	OnHost(t)
	root, addr, ends := hostileServer(t)
	good, evil := make([]byte, 5000), make([]byte, 5000)
	copy(good, "good")
	copy(evil, "evil")
	_ = hostile(t, addr, wire.ModePush, "x", func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		if err := p.announce(ctx, fileOf(len(good))); err != nil {
			return err
		}
		// Out of turn, and never in turn: chunk 4 with bytes of its own.
		if err := p.chunk(4, 1, 1, evil, whole(0, evil)); err != nil {
			return err
		}
		// In turn: the claim, with a payload that does not verify.
		if err := p.chunk(0, 0, 1, evil, whole(0, good)); err != nil {
			return err
		}
		if err := p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 1)); err != nil {
			return err
		}
		t0 := time.NewTimer(time.Second)
		defer t0.Stop()
		select {
		case <-t0.C:
		case <-ctx.Done():
		}
		return errors.New("enough")
	})
	<-ends
	if got, err := os.ReadFile(filepath.Join(root, "x")); err == nil {
		t.Errorf("published %q…", got[:4])
	}
}

// Whatever a hostile sink sends, the source's session ends and the server lives.
func TestHostileSink(t *testing.T) { overHostile(t, testHostileSink) }

func testHostileSink(t *testing.T, w hostileWay) {
	for _, tc := range []struct {
		name string
		say  func(ctx context.Context, s *flow.Session) error
	}{
		{"a slot never granted", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Slot: hostileSlots, Generation: 1}))
		}},
		{"a generation to come", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Slot: 0, Generation: 9}))
		}},
		{"extents wanted twice", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Slot: 0, Generation: 1, Bad: []uint16{0, 0, 0}}))
		}},
		{"more accepted than announced", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgPlan, binary.AppendUvarint(nil, 1<<40))
		}},
		{"published before it was sent", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgResult, binary.AppendUvarint(nil, 2))
		}},
		{"done before its time", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgDone, (&wire.Roots{}).Encode())
		}},
		{"a second ring of another size", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgRing, (&wire.RingInfo{Slots: 1000, SlotBytes: 1}).Encode())
		}},
		{"a first ring of more slots than agreed", func(ctx context.Context, s *flow.Session) error {
			return s.Ctl.Send(ctx, wire.MsgRing, (&wire.RingInfo{Link: 1, Slots: MaxSlots, SlotBytes: uint32(s.Terms.ChunkBytes)}).Encode())
		}},
		{"an immediate", func(ctx context.Context, s *flow.Session) error {
			_, err := s.Ctl.Lane.Conn.Post([]rdma.WR{{Op: rdma.OpWriteImm, Quiet: true, Imm: 5}})
			return err
		}},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			root, addr, ends := w.serve(t)
			for _, name := range []string{"a", "b"} {
				if err := os.WriteFile(filepath.Join(root, name), []byte(strings.Repeat(name, 1000)), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			err := w.talk(t, addr, wire.ModePull, "/", func(*wire.Hello) {}, func(ctx context.Context, s *flow.Session) error {
				// Wait for the entries, then lie.
				if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
					return err
				}
				if err := tc.say(ctx, s); err != nil {
					return err
				}
				for {
					if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
						return err
					}
				}
			})
			if err == nil {
				t.Error("the hostile end was not cut off")
			}
			if end := <-ends; end.Err == nil {
				t.Errorf("the server took it for a copy: %+v", end)
			}
		})
	}
}
