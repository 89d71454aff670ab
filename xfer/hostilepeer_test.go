package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"

	"golang.org/x/sync/errgroup"

	"gdrcp/internal/trust"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

const hostileSlots = 4

// testKey is shared by the ends of these tests.
var testKey = trust.Key{ID: "test", Secret: trust.NewSecret([32]byte{1, 2, 3})}

func endpointAt(addr netip.AddrPort) Endpoint {
	return Endpoint{Host: addr.Addr().String(), Port: addr.Port(), Key: testKey}
}

// hostile runs talk as the client of a session, after its hello was answered.
func hostile(t *testing.T, addr netip.AddrPort, m wire.Mode, path string, talk func(ctx context.Context, s *flow.Session) error) error {
	t.Helper()
	return hostileHello(t, addr, m, path, func(*wire.Hello) {}, talk)
}

// hostileHello is hostile with a hello that change has changed.
func hostileHello(t *testing.T, addr netip.AddrPort, m wire.Mode, path string, change func(*wire.Hello), talk func(ctx context.Context, s *flow.Session) error) error {
	t.Helper()
	return byTCP().talk(t, addr, m, path, change, talk)
}

func asIs(*wire.Hello) {}

// wantCutOff fails the test unless the server has ended a hostile client's session, which ended
// with err here, because of its messages.
func wantCutOff(t *testing.T, err error, ends <-chan SessionEnd) {
	t.Helper()
	if err == nil {
		t.Error("the hostile end was not cut off")
	}
	if end := <-ends; !errors.Is(end.Err, ErrProtocol) {
		t.Errorf("the server ended with %v", end.Err)
	}
}

// hostileSink pulls from a server by TCP, and after the first entries sends messages that no honest
// sink sends. It fails the test unless the server ends the conversation.
func hostileSink(t *testing.T, addr netip.AddrPort, change func(*wire.Hello), say []message) {
	t.Helper()
	err := hostileHello(t, addr, wire.ModePull, "/", change, func(ctx context.Context, s *flow.Session) error {
		if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
			return err
		}
		for _, m := range say {
			if err := s.Ctl.Send(ctx, m.typ, m.body); err != nil {
				return err
			}
		}
		return listen(ctx, s)
	})
	if err == nil {
		t.Error("the hostile end was not cut off")
	}
}

// talk runs a conversation as the client of a session, after its hello, as changed by change, was
// answered.
func (w hostileWay) talk(t *testing.T, addr netip.AddrPort, m wire.Mode, path string, change func(*wire.Hello), talk func(ctx context.Context, s *flow.Session) error) error {
	t.Helper()
	o := w.options()
	h, err := o.hello(m)
	if err != nil {
		t.Fatal(err)
	}
	if m == wire.ModePing || m == wire.ModeBench {
		h.Terms.Codec, h.Terms.Flags = CompressOff, 0
	} else {
		h.Paths, h.Terms.Name = []string{path}, "x"
	}
	change(h)
	c := Client{TCP: w.provider, Verbs: w.provider}
	_, err = c.benchSession(t.Context(), w.endpoint(addr), o, h, func(ctx context.Context, s *flow.Session, g *errgroup.Group) error {
		return talk(ctx, s)
	})
	return err
}

// puppet sends chunks of any content to any slot.
type puppet struct {
	*flow.Session
	target wire.RingInfo
}

// ready makes a ring and receives the sink's.
func (p *puppet) ready(ctx context.Context) error {
	if err := p.MakeRing(ctx, hostileSlots, rdma.LocalWrite); err != nil {
		return err
	}
	return p.Expect(ctx, wire.MsgRing, "ring", func(body []byte) (err error) {
		p.target, err = wire.DecodeRing(body, hostileSlots, p.Terms.ChunkBytes)
		return err
	})
}

// announce announces entries and waits until their data may come.
func (p *puppet) announce(ctx context.Context, entries ...wire.AnnouncedEntry) error {
	body := []byte{0}
	var scratch wire.Writer
	for i := range entries {
		body = wire.AppendEntry(body, &entries[i], &scratch)
	}
	if err := p.Ctl.Send(ctx, wire.MsgEntries, body); err != nil {
		return err
	}
	total := wire.Totals{Entries: uint64(len(entries)), Final: true}
	if err := p.Ctl.Send(ctx, wire.MsgTotal, total.Encode()); err != nil {
		return err
	}
	for {
		planned := false
		err := p.Receive(ctx, func(f *wire.Frame) error {
			planned = f.Type == wire.MsgPlan
			return nil
		})
		if planned || err != nil {
			return err
		}
	}
}

// chunk writes a chunk to a slot. The payload need not match the extents' digests.
func (p *puppet) chunk(id uint64, slot int, generation uint64, payload []byte, xs ...wire.Extent) error {
	return p.send(&wire.ChunkHeader{ID: id, Slot: uint32(slot), Generation: generation, Extents: xs}, payload)
}

// repair is chunk with extents that were sent before.
func (p *puppet) repair(id uint64, slot int, generation uint64, payload []byte, xs ...wire.Extent) error {
	return p.send(&wire.ChunkHeader{ID: id, Slot: uint32(slot), Generation: generation, Extents: xs, Repair: true}, payload)
}

// send completes a header and writes it, and the payload, to the slot.
func (p *puppet) send(h *wire.ChunkHeader, payload []byte) error {
	h.Session, h.Link = p.SessionTag(), 1
	h.StoredBytes = uint32(len(payload))
	if h.Codec == wire.CodecPlain {
		h.PlainBytes = h.StoredBytes
	}
	slot := int(h.Slot)
	n := h.Encode(p.Link.Ring.HeaderSlot(slot))
	copy(p.Link.Ring.Slot(slot), payload)
	_, err := p.Ctl.Lane.Conn.Post([]rdma.WR{
		{Op: rdma.OpWrite, Quiet: true, Local: p.Link.Ring.HeaderMR, Offset: slot * wire.HeaderStride, Len: n,
			RemoteAddr: p.target.HeaderAddr + uint64(slot)*wire.HeaderStride, RKey: p.target.HeaderKey},
		{Op: rdma.OpWriteImm, Quiet: true, Local: p.Link.Ring.PayloadMR, Offset: slot * p.Link.Ring.SlotBytes, Len: len(payload),
			RemoteAddr: p.target.PayloadAddr + uint64(slot)*uint64(p.target.SlotBytes), RKey: p.target.PayloadKey, Imm: wire.Immediate(slot, h.Generation)},
	})
	return err
}

// sealedChunk writes chunk 0 to a slot, encrypted for place by seals, or unencrypted if these are
// nil, with its tag changed by spoil.
func (p *puppet) sealedChunk(slot int, place trust.HeaderPlace, seals *trust.Chunks, spoil byte) error {
	x := whole(1, handData)
	n := len(handData)
	h := wire.ChunkHeader{
		Session: p.SessionTag(), Link: 1, Slot: uint32(slot), Generation: 1, Extents: []wire.Extent{x}, StoredBytes: uint32(n), PlainBytes: uint32(n),
	}
	payload := p.Link.Ring.Slot(slot)[:n]
	copy(payload, handData)
	header := make([]byte, wire.HeaderStride)
	if seals != nil {
		h.SealNumber, h.SealTag = seals.SealPayload(payload)
		h.SealTag[0] ^= spoil
	}
	header = header[:h.Encode(header)]
	if seals != nil {
		binary.LittleEndian.PutUint32(header[4:], uint32(len(header)-wire.HopBytes+trust.TagBytes))
		sealed := seals.SealHeader(append([]byte(nil), header[wire.HopBytes:]...), header[:wire.HopBytes], place)
		header = append(header[:wire.HopBytes:wire.HopBytes], sealed...)
	}
	at := slot * wire.HeaderStride
	copy(p.Link.Ring.HeaderSlot(slot), header)
	_, err := p.Ctl.Lane.Conn.Post([]rdma.WR{
		{Op: rdma.OpWrite, Quiet: true, Local: p.Link.Ring.HeaderMR, Offset: at, Len: len(header), RemoteAddr: p.target.HeaderAddr + uint64(at), RKey: p.target.HeaderKey},
		{Op: rdma.OpWriteImm, Quiet: true, Local: p.Link.Ring.PayloadMR, Offset: slot * p.Link.Ring.SlotBytes, Len: n,
			RemoteAddr: p.target.PayloadAddr + uint64(slot)*uint64(p.target.SlotBytes), RKey: p.target.PayloadKey, Imm: wire.Immediate(slot, 1)},
	})
	return err
}

// whatBecame waits until the only chunk's slot has come back, and reports whether the chunk was
// accepted. With settled it also waits for the end of its file, which is entry 1: results of the
// directory before it may arrive alone.
func (p *puppet) whatBecame(ctx context.Context, settled bool) (back, taken bool, err error) {
	var upto uint64
	for err == nil && (!back || settled && upto < 2) {
		err = p.Receive(ctx, func(f *wire.Frame) (err error) {
			switch f.Type {
			case wire.MsgResult:
				upto, _, err = wire.DecodeResult(f.Body)
			case wire.MsgCredit:
				err = wire.DecodeCredit(f.Body, nil, func(r *wire.ReturnedSlot) error {
					back, taken = true, !r.Again && len(r.Bad) == 0
					return nil
				})
			}
			return err
		})
	}
	return back, taken, err
}

// push plays the source.
func (p *puppet) push(ctx context.Context, o *Options, sp *spoilt) error {
	tree, x := handTree(), whole(1, handData)
	if sp != nil {
		if m, ok := besides()[sp.what]; ok {
			if err := p.Ctl.Send(ctx, m.t, sp.of(sp.what, m.body)); err != nil {
				return err
			}
		}
	}
	entries, scratch := []byte{0}, wire.Writer{}
	for i := range tree {
		entries = wire.AppendEntry(entries, &tree[i], &scratch)
	}
	total := wire.Totals{Entries: 3, Bytes: uint64(len(handData)), Final: true}
	if err := p.Ctl.Send(ctx, wire.MsgEntries, sp.of("entries", entries)); err != nil {
		return err
	}
	if err := p.Ctl.Send(ctx, wire.MsgTotal, sp.of("total", total.Encode())); err != nil {
		return err
	}
	if err := p.await(ctx, wire.MsgPlan); err != nil {
		return err
	}
	if err := p.post(x, sp); err != nil {
		return err
	}
	if err := p.Ctl.Send(ctx, wire.MsgEnd, sp.of("end", []byte{3})); err != nil {
		return err
	}
	acct, err := newCopyResults(&p.Terms, o)
	if err != nil {
		return err
	}
	for i := range tree {
		b := entryState{AnnouncedEntry: tree[i], id: uint64(i)}
		if b.Type == manifest.File {
			b.Root = x.Digest
		}
		if err := acct.book(&b, nil); err != nil {
			return err
		}
	}
	r := acct.finish()
	if err := p.Ctl.Send(ctx, wire.MsgRoot, sp.of("root", r.Encode())); err != nil {
		return err
	}
	return p.await(ctx, wire.MsgDone)
}

// await skips messages until one of that type.
func (p *puppet) await(ctx context.Context, t wire.MsgType) error {
	for {
		var got wire.MsgType
		err := p.Receive(ctx, func(f *wire.Frame) error {
			got = f.Type
			return nil
		})
		if err != nil || got == t {
			return err
		}
	}
}

// post writes the only chunk to slot 0.
func (p *puppet) post(x wire.Extent, sp *spoilt) error {
	h := wire.ChunkHeader{Session: p.SessionTag(), Link: 1, Generation: 1, Extents: []wire.Extent{x}, StoredBytes: uint32(x.Length), PlainBytes: uint32(x.Length)}
	header := make([]byte, wire.HeaderStride)
	header = sp.of("header", header[:h.Encode(header)])
	imm := sp.of("immediate", binary.LittleEndian.AppendUint32(nil, wire.Immediate(0, 1)))
	copy(p.Link.Ring.HeaderSlot(0), header)
	copy(p.Link.Ring.Slot(0), handData)
	_, err := p.Ctl.Lane.Conn.Post([]rdma.WR{
		{Op: rdma.OpWrite, Quiet: true, Local: p.Link.Ring.HeaderMR, Len: len(header), RemoteAddr: p.target.HeaderAddr, RKey: p.target.HeaderKey},
		{Op: rdma.OpWriteImm, Quiet: true, Local: p.Link.Ring.PayloadMR, Len: len(handData), RemoteAddr: p.target.PayloadAddr, RKey: p.target.PayloadKey,
			Imm: binary.LittleEndian.Uint32(append(imm, 0, 0, 0, 0))},
	})
	return err
}

// asked waits until something is requested again.
func (p *puppet) asked(ctx context.Context) error {
	for again := false; !again; {
		err := p.Receive(ctx, func(f *wire.Frame) error {
			if f.Type != wire.MsgCredit {
				return nil
			}
			return wire.DecodeCredit(f.Body, nil, func(r *wire.ReturnedSlot) error {
				again = again || len(r.Bad) > 0
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// whole is an extent that is a whole file, with the digest of data.
func whole(entry uint64, data []byte) wire.Extent {
	return wire.Extent{Entry: entry, Length: int64(len(data)), Flags: wire.ExtLast, Digest: manifest.XXH3.Piece(data, 0, manifest.DefaultPieceBytes, true)}
}

func fileOf(n int) wire.AnnouncedEntry {
	return wire.AnnouncedEntry{Entry: manifest.Entry{Type: manifest.File, Path: "x", Size: int64(n), Mode: 0o644}, AllocBytes: int64(n)}
}

func linkTo(path, target string) wire.AnnouncedEntry {
	return wire.AnnouncedEntry{Entry: manifest.Entry{Type: manifest.Symlink, Path: path, Target: target, Mode: 0o777}}
}

func dirAt(path string) wire.AnnouncedEntry {
	return wire.AnnouncedEntry{Entry: manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755}}
}

func fileAt(path string, n int) wire.AnnouncedEntry {
	e := fileOf(n)
	e.Path = path
	return e
}
