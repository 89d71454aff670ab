package xfer

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/wire"
)

// These tests speak the protocol by hand, to say what no gdrcp would say.

const hostileSlots = 4

func shortTimeouts() Timeouts {
	return Timeouts{Handshake: rdmatest.Stretch(5 * time.Second), Heartbeat: 100 * time.Millisecond, Silence: rdmatest.Stretch(5 * time.Second), Linger: 100 * time.Millisecond}
}

// testKey is what the ends of these tests share.
var testKey = trust.Key{ID: "test", Secret: trust.NewSecret([32]byte{1, 2, 3})}

func endpointAt(addr netip.AddrPort) Endpoint {
	return Endpoint{Host: addr.Addr().String(), Port: addr.Port(), Key: testKey}
}

// hostileServer serves a temporary root and tells how each session ended.
func hostileServer(t *testing.T, change ...func(*ServerConfig)) (root string, at netip.AddrPort, ends chan SessionEnd) {
	t.Helper()
	return byTCP().serve(t, change...)
}

// hostile runs talk as the client of a session, after its hello was answered.
func hostile(t *testing.T, addr netip.AddrPort, m wire.Mode, path string, talk func(ctx context.Context, s *session) error) error {
	t.Helper()
	return hostileHello(t, addr, m, path, func(*wire.Hello) {}, talk)
}

// hostileHello is hostile with a hello that change has changed.
func hostileHello(t *testing.T, addr netip.AddrPort, m wire.Mode, path string, change func(*wire.Hello), talk func(ctx context.Context, s *session) error) error {
	t.Helper()
	return byTCP().talk(t, addr, m, path, change, talk)
}

// puppet sends chunks of any content to any slot.
type puppet struct {
	*session
	target wire.RingInfo
}

// ready makes a ring and takes the sink's.
func (p *puppet) ready(ctx context.Context) error {
	if err := p.makeRing(ctx, hostileSlots, rdma.LocalWrite); err != nil {
		return err
	}
	return p.expect(ctx, wire.MsgRing, "ring", func(body []byte) (err error) {
		p.target, err = wire.DecodeRing(body, hostileSlots, p.terms.ChunkBytes)
		return err
	})
}

// announce tells of entries and waits until their data may come.
func (p *puppet) announce(ctx context.Context, entries ...wire.AnnouncedEntry) error {
	body := []byte{0}
	var scratch wire.Writer
	for i := range entries {
		body = wire.AppendEntry(body, &entries[i], &scratch)
	}
	if err := p.ctl.send(ctx, wire.MsgEntries, body); err != nil {
		return err
	}
	total := wire.Totals{Entries: uint64(len(entries)), Final: true}
	if err := p.ctl.send(ctx, wire.MsgTotal, total.Encode()); err != nil {
		return err
	}
	for {
		planned := false
		err := p.receive(ctx, func(f *wire.Frame) error {
			planned = f.Type == wire.MsgPlan
			return nil
		})
		if planned || err != nil {
			return err
		}
	}
}

// chunk writes a chunk to a slot; the payload may be other than what the
// extents' digests say.
func (p *puppet) chunk(id uint64, slot int, generation uint64, payload []byte, xs ...wire.Extent) error {
	return p.send(&wire.ChunkHeader{ID: id, Slot: uint32(slot), Generation: generation, Extents: xs}, payload)
}

// repair is chunk with extents that were sent before.
func (p *puppet) repair(id uint64, slot int, generation uint64, payload []byte, xs ...wire.Extent) error {
	return p.send(&wire.ChunkHeader{ID: id, Slot: uint32(slot), Generation: generation, Extents: xs, Repair: true}, payload)
}

// send completes a header and writes it, and the payload, to the slot.
func (p *puppet) send(h *wire.ChunkHeader, payload []byte) error {
	h.Session, h.Epoch = p.sessionTag(), 1
	h.StoredBytes = uint32(len(payload))
	if h.Codec == wire.CodecPlain {
		h.PlainBytes = h.StoredBytes
	}
	slot := int(h.Slot)
	n := h.Encode(p.ring.HeaderSlot(slot))
	copy(p.ring.Slot(slot), payload)
	_, err := p.ctl.lane.conn.Post([]rdma.WR{
		{Op: rdma.OpWrite, Quiet: true, Local: p.ring.HeaderMR, Offset: slot * wire.HeaderStride, Len: n,
			RemoteAddr: p.target.HeaderAddr + uint64(slot)*wire.HeaderStride, RKey: p.target.HeaderKey},
		{Op: rdma.OpWriteImm, Quiet: true, Local: p.ring.PayloadMR, Offset: slot * p.ring.SlotBytes, Len: len(payload),
			RemoteAddr: p.target.PayloadAddr + uint64(slot)*uint64(p.target.SlotBytes), RKey: p.target.PayloadKey, Imm: wire.Immediate(slot, h.Generation)},
	})
	return err
}

// whole is an extent that is a whole file, with the digest of data.
func whole(entry uint64, data []byte) wire.Extent {
	return wire.Extent{Entry: entry, Length: int64(len(data)), Flags: wire.ExtLast, Digest: manifest.XXH3.Piece(data, 0, manifest.DefaultPieceBytes, true)}
}

func fileOf(n int) wire.AnnouncedEntry {
	return wire.AnnouncedEntry{Entry: manifest.Entry{Type: manifest.File, Path: "x", Size: int64(n), Mode: 0o644}, AllocBytes: int64(n)}
}

// Whatever a hostile source says, its session ends, the server lives, and
// nothing is published.
func TestHostileSource(t *testing.T) { overHostile(t, testHostileSource) }

func testHostileSource(t *testing.T, w hostileWay) {
	data := make([]byte, 5000)
	if _, err := rand.Read(data); err != nil {
		t.Fatal(err)
	}
	wait := func(ctx context.Context, p *puppet) error {
		return p.receive(ctx, func(*wire.Frame) error { return nil })
	}
	for _, tc := range []struct {
		name string
		say  func(ctx context.Context, p *puppet) error
	}{
		{"immediate never granted", func(ctx context.Context, p *puppet) error { return p.chunk(0, 1, 2, data, whole(0, data)) }},
		{"slot used twice", func(ctx context.Context, p *puppet) error {
			if err := p.chunk(1, 0, 1, data, whole(0, data)); err != nil { // out of turn: it stays in its slot
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
		{"key never granted", func(ctx context.Context, p *puppet) error {
			p.target.PayloadKey ^= 0x1234
			return p.chunk(0, 0, 1, data, whole(0, data))
		}},
		{"unknown message", func(ctx context.Context, p *puppet) error { return p.ctl.send(ctx, 30, nil) }},
		{"roots before the end", func(ctx context.Context, p *puppet) error {
			return p.ctl.send(ctx, wire.MsgRoot, (&wire.Roots{}).Encode())
		}},
		{"an end of other entries", func(ctx context.Context, p *puppet) error {
			return p.ctl.send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 77))
		}},
		{"entries out of order", func(ctx context.Context, p *puppet) error {
			e, w := fileOf(1), wire.Writer{}
			return p.ctl.send(ctx, wire.MsgEntries, wire.AppendEntry([]byte{9}, &e, &w))
		}},
		{"more bytes than there can be", func(ctx context.Context, p *puppet) error {
			body, w := []byte{1}, wire.Writer{}
			for _, name := range []string{"y", "z"} {
				e := fileAt(name, wire.MaxFileBytes)
				body = wire.AppendEntry(body, &e, &w)
			}
			return p.ctl.send(ctx, wire.MsgEntries, body)
		}},
		{"a path that leaves", func(ctx context.Context, p *puppet) error {
			e, w := fileOf(1), wire.Writer{}
			e.Path = "../evil"
			return p.ctl.send(ctx, wire.MsgEntries, wire.AppendEntry([]byte{1}, &e, &w))
		}},
		{"messages beyond the window", func(ctx context.Context, p *puppet) error {
			for range 10 * wire.ControlWindow {
				p.ctl.mu.Lock() // the poller looks at it, too
				p.ctl.acked = p.ctl.sent
				p.ctl.mu.Unlock()
				if _, err := p.ctl.trySend(wire.MsgTotal, (&wire.Totals{}).Encode()); err != nil {
					return nil
				}
			}
			return nil
		}},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			root, addr, ends := w.serve(t)
			err := w.talk(t, addr, wire.ModePush, "x", asIs, func(ctx context.Context, s *session) error {
				p := &puppet{session: s}
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
	_ = hostile(t, addr, wire.ModePush, "x", func(ctx context.Context, s *session) error {
		p := &puppet{session: s}
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
		if err := p.ctl.send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 1)); err != nil {
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

// Whatever a hostile sink says, the source's session ends and the server lives.
func TestHostileSink(t *testing.T) { overHostile(t, testHostileSink) }

func testHostileSink(t *testing.T, w hostileWay) {
	for _, tc := range []struct {
		name string
		say  func(ctx context.Context, s *session) error
	}{
		{"a slot never granted", func(ctx context.Context, s *session) error {
			return s.ctl.send(ctx, wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Slot: hostileSlots, Generation: 1}))
		}},
		{"a generation to come", func(ctx context.Context, s *session) error {
			return s.ctl.send(ctx, wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Slot: 0, Generation: 9}))
		}},
		{"extents wanted twice", func(ctx context.Context, s *session) error {
			return s.ctl.send(ctx, wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Slot: 0, Generation: 1, Bad: []uint16{0, 0, 0}}))
		}},
		{"more accepted than announced", func(ctx context.Context, s *session) error {
			return s.ctl.send(ctx, wire.MsgPlan, binary.AppendUvarint(nil, 1<<40))
		}},
		{"published before it was sent", func(ctx context.Context, s *session) error {
			return s.ctl.send(ctx, wire.MsgResult, binary.AppendUvarint(nil, 2))
		}},
		{"done before its time", func(ctx context.Context, s *session) error {
			return s.ctl.send(ctx, wire.MsgDone, (&wire.Roots{}).Encode())
		}},
		{"a second ring of another size", func(ctx context.Context, s *session) error {
			return s.ctl.send(ctx, wire.MsgRing, (&wire.RingInfo{Slots: 1000, SlotBytes: 1}).Encode())
		}},
		{"an immediate", func(ctx context.Context, s *session) error {
			_, err := s.ctl.lane.conn.Post([]rdma.WR{{Op: rdma.OpWriteImm, Quiet: true, Imm: 5}})
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
			err := w.talk(t, addr, wire.ModePull, "/", asIs, func(ctx context.Context, s *session) error {
				// Wait for the entries, then lie.
				if err := s.receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
					return err
				}
				if err := tc.say(ctx, s); err != nil {
					return err
				}
				for {
					if err := s.receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
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
