package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/wire"
)

// sealedChunk writes chunk 0 to a slot, encrypted for place by seals, or as it is
// where these are nil, with its tag changed by spoil.
func (p *puppet) sealedChunk(slot int, place trust.HeaderPlace, seals *trust.Chunks, spoil byte) error {
	x := whole(1, handData)
	n := len(handData)
	h := wire.ChunkHeader{
		Session: p.sessionTag(), Epoch: 1, Slot: uint32(slot), Generation: 1, Extents: []wire.Extent{x}, StoredBytes: uint32(n), PlainBytes: uint32(n),
	}
	payload := p.ring.Slot(slot)[:n]
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
	copy(p.ring.HeaderSlot(slot), header)
	_, err := p.ctl.lane.conn.Post([]rdma.WR{
		{Op: rdma.OpWrite, Quiet: true, Local: p.ring.HeaderMR, Offset: at, Len: len(header), RemoteAddr: p.target.HeaderAddr + uint64(at), RKey: p.target.HeaderKey},
		{Op: rdma.OpWriteImm, Quiet: true, Local: p.ring.PayloadMR, Offset: slot * p.ring.SlotBytes, Len: n,
			RemoteAddr: p.target.PayloadAddr + uint64(slot)*uint64(p.target.SlotBytes), RKey: p.target.PayloadKey, Imm: wire.Immediate(slot, 1)},
	})
	return err
}

// whatBecame waits until the only chunk's slot has come back, and says whether
// the chunk was taken. With settled it waits for the end of its file, too, which is
// entry 1: results of the directory before it may come alone.
func (p *puppet) whatBecame(ctx context.Context, settled bool) (back, taken bool, err error) {
	var upto uint64
	for err == nil && (!back || settled && upto < 2) {
		err = p.receive(ctx, func(f *wire.Frame) (err error) {
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

// Where chunks are encrypted, one in the clear, or sealed for another place or
// by other keys, is not taken for one.
func TestHostileEncryption(t *testing.T) { overHostile(t, testHostileEncryption) }

func testHostileEncryption(t *testing.T, w hostileWay) {
	right := trust.HeaderPlace{Epoch: 1, Generation: 1}
	for _, tc := range []struct {
		name  string
		slot  int
		place trust.HeaderPlace
		seals func(s *session) *trust.Chunks
		spoil byte
		taken bool
	}{
		{"as it should be", 0, right, func(s *session) *trust.Chunks { return s.trust.Chunks(true) }, 0, true},
		{"in the clear", 0, right, func(*session) *trust.Chunks { return nil }, 0, false},
		{"by the other end's key", 0, right, func(s *session) *trust.Chunks { return s.trust.Chunks(false) }, 0, false},
		{"for another slot", 1, right, func(s *session) *trust.Chunks { return s.trust.Chunks(true) }, 0, false},
		{"for another generation", 0, trust.HeaderPlace{Epoch: 1, Generation: 2}, func(s *session) *trust.Chunks { return s.trust.Chunks(true) }, 0, false},
		{"for another epoch", 0, trust.HeaderPlace{Generation: 1}, func(s *session) *trust.Chunks { return s.trust.Chunks(true) }, 0, false},
		{"a payload of another tag", 0, right, func(s *session) *trust.Chunks { return s.trust.Chunks(true) }, 1, false},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			root, addr, ends := w.serve(t)
			encrypt := func(h *wire.Hello) { h.Terms.Flags |= wire.FlagEncrypt }
			var back, taken bool
			err := w.talk(t, addr, wire.ModePush, "x", encrypt, func(ctx context.Context, s *session) (err error) {
				ctx, cancel := context.WithTimeout(ctx, rdmatest.Stretch(w.slow*5*time.Second))
				defer cancel()
				p := &puppet{session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				if err := p.announce(ctx, handTree()...); err != nil {
					return err
				}
				if err := p.sealedChunk(tc.slot, tc.place, tc.seals(s), tc.spoil); err != nil {
					return err
				}
				back, taken, err = p.whatBecame(ctx, tc.taken)
				return errors.Join(err, errors.New("enough"))
			})
			<-ends
			if !back || taken != tc.taken {
				t.Errorf("its slot came back: %v, and it was taken: %v: %v", back, taken, err)
			}
			if _, err := os.Stat(filepath.Join(root, "x", "a")); (err == nil) != tc.taken {
				t.Errorf("published: %v", err)
			}
		})
	}
}
