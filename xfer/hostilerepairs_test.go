package xfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// spoiler is a source whose chunks arrive damaged. Each has as many pieces of a file as a chunk may
// have, all at the same place in the payload.
type spoiler struct {
	*puppet
	sent uint64 // chunks, through slot 0 alone
	next uint64 // next chunk that is no repair
}

const spoiltPieceBytes = 64 << 10

// pieces returns a chunk's extents: of a part of an entry, each of zeros.
func (s *spoiler) pieces(entry uint64, part int) (xs []wire.Extent) {
	zeros := manifest.XXH3.Piece(make([]byte, spoiltPieceBytes), 0, spoiltPieceBytes, false)
	for i := range wire.MaxExtents {
		xs = append(xs, wire.Extent{Entry: entry, Off: int64(part*wire.MaxExtents+i) * spoiltPieceBytes, Length: spoiltPieceBytes, Digest: zeros})
	}
	return xs
}

// goes sends a chunk and waits until its slot has come back.
func (s *spoiler) goes(ctx context.Context, h wire.ChunkHeader, payload []byte) error {
	s.sent++
	h.Generation = s.sent
	if err := s.send(&h, payload); err != nil {
		return err
	}
	for back := false; !back; {
		err := s.Receive(ctx, func(f *wire.Frame) error {
			if f.Type != wire.MsgCredit {
				return nil
			}
			return wire.DecodeCredit(f.Body, nil, func(r *wire.ReturnedSlot) error {
				back = back || r.Generation == h.Generation
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// spoilt sends parts of an entry in chunks that do not decode.
func (s *spoiler) spoilt(ctx context.Context, entry uint64, from, upto int) error {
	for part := from; part < upto; part++ {
		h := wire.ChunkHeader{ID: s.next, Codec: wire.CodecZstd, PlainBytes: spoiltPieceBytes, Extents: s.pieces(entry, part)}
		if err := s.goes(ctx, h, []byte("no zstd.")); err != nil {
			return fmt.Errorf("part %d of entry %d: %w", part, entry, err)
		}
		s.next++
	}
	return nil
}

// A source that sends all of a file damaged, and nothing of it again, fills no memory with
// requests: the sink keeps no more of them than an honest source leaves unsent.
func TestHostileSourceOfDamage(t *testing.T) {
	OnHost(t)
	const most = 2*hostileSlots + 1 // chunks
	var x, y wire.AnnouncedEntry
	for at, e := range map[string]*wire.AnnouncedEntry{"x": &x, "y": &y} {
		*e = fileAt(at, 2*most*wire.MaxExtents*spoiltPieceBytes)
		e.Sparse, e.AllocBytes = true, 1
	}
	_, addr, ends := hostileServer(t)
	change := func(h *wire.Hello) {
		h.Terms.Codec, h.Terms.PieceBytes, h.Terms.Flags = CompressZstd, spoiltPieceBytes, wire.FlagMany|wire.FlagMustBeDir
	}
	honest := false // so far
	err := hostileHello(t, addr, wire.ModePush, "/", change, func(ctx context.Context, s *flow.Session) error {
		p := &spoiler{puppet: &puppet{Session: s}}
		if err := p.ready(ctx); err != nil {
			return err
		}
		if err := p.announce(ctx, x, y); err != nil {
			return err
		}
		if err := p.spoilt(ctx, 0, 0, most); err != nil {
			return fmt.Errorf("what may be wanted again: %w", err)
		}
		// A request ends when the data has arrived.
		again := wire.ChunkHeader{Repair: true, Extents: p.pieces(0, 0)}
		if err := p.goes(ctx, again, make([]byte, spoiltPieceBytes)); err != nil {
			return fmt.Errorf("a repair: %w", err)
		}
		if err := p.spoilt(ctx, 0, most, most+1); err != nil {
			return fmt.Errorf("behind a repair: %w", err)
		}
		// It also ends with its entry.
		if err := p.Ctl.Send(ctx, wire.MsgFail, wire.AppendException(nil, &wire.Exception{Entry: 0, Outcome: Failed, Text: "gone"})); err != nil {
			return err
		}
		for ended := false; !ended; {
			if err := p.Receive(ctx, func(f *wire.Frame) error { ended = f.Type == wire.MsgResult; return nil }); err != nil {
				return err
			}
		}
		if err := p.spoilt(ctx, 1, 0, most); err != nil {
			return fmt.Errorf("of another entry: %w", err)
		}
		honest = true
		if err := p.spoilt(ctx, 1, most, most+1); err == nil {
			return errors.New("it keeps all that is not sent again")
		}
		return listen(ctx, s)
	})
	if end := <-ends; !honest || !errors.Is(end.Err, ErrProtocol) || !strings.Contains(end.Err.Error(), "pieces are to be sent again") {
		t.Errorf("the server ended by %v, its client by %v", end.Err, err)
	}
}
