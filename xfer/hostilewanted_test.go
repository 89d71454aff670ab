package xfer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gdrcp/manifest"
)

// spoiler is a source whose chunks arrive damaged. Each has as many pieces of a file
// as a chunk may have, all at the same place in the payload.
type spoiler struct {
	*puppet
	sent uint64 // chunks, by slot 0 alone
	next uint64 // chunk that is no repair
}

const spoiltPieceBytes = 64 << 10

// pieces are a chunk's extents: of a part of an entry, each of zeros.
func (s *spoiler) pieces(entry uint64, part int) (xs []extent) {
	zeros := manifest.XXH3.Piece(make([]byte, spoiltPieceBytes), 0, spoiltPieceBytes, false)
	for i := range maxExtents {
		xs = append(xs, extent{entry: entry, off: int64(part*maxExtents+i) * spoiltPieceBytes, length: spoiltPieceBytes, digest: zeros})
	}
	return xs
}

// goes sends a chunk and waits until its slot has come back.
func (s *spoiler) goes(ctx context.Context, h chunkHeader, payload []byte) error {
	s.sent++
	h.generation = s.sent
	if err := s.send(&h, payload); err != nil {
		return err
	}
	for back := false; !back; {
		err := s.receive(ctx, func(f *frame) error {
			if f.typ != msgCredit {
				return nil
			}
			return decodeCredit(f.body, nil, func(r *returned) error {
				back = back || r.generation == h.generation
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
		h := chunkHeader{id: s.next, codec: codecZstd, plainBytes: spoiltPieceBytes, extents: s.pieces(entry, part)}
		if err := s.goes(ctx, h, []byte("no zstd.")); err != nil {
			return fmt.Errorf("part %d of entry %d: %w", part, entry, err)
		}
		s.next++
	}
	return nil
}

// A source that sends all of a file damaged, and nothing of it again, fills no memory
// with what is wanted again: no more of that is kept than an honest one leaves unsent.
func TestHostileSourceOfDamage(t *testing.T) {
	OnHost(t)
	const most = 2*hostileSlots + 1 // chunks
	var x, y planned
	for at, e := range map[string]*planned{"x": &x, "y": &y} {
		*e = fileAt(at, 2*most*maxExtents*spoiltPieceBytes)
		e.sparse, e.allocBytes = true, 1
	}
	_, addr, ends := hostileServer(t)
	change := func(h *hello) {
		h.codec, h.pieceBytes, h.flags = uint64(CompressZstd), spoiltPieceBytes, flagMany|flagMustBeDir
	}
	honest := false // so far
	err := hostileHello(t, addr, modePush, "/", change, func(ctx context.Context, s *session) error {
		p := &spoiler{puppet: &puppet{session: s}}
		if err := p.ready(ctx); err != nil {
			return err
		}
		if err := p.announce(ctx, x, y); err != nil {
			return err
		}
		if err := p.spoilt(ctx, 0, 0, most); err != nil {
			return fmt.Errorf("what may be wanted again: %w", err)
		}
		// What has come again is not wanted any more.
		again := chunkHeader{repair: true, extents: p.pieces(0, 0)}
		if err := p.goes(ctx, again, make([]byte, spoiltPieceBytes)); err != nil {
			return fmt.Errorf("a repair: %w", err)
		}
		if err := p.spoilt(ctx, 0, most, most+1); err != nil {
			return fmt.Errorf("behind a repair: %w", err)
		}
		// Nor is what an entry lacks that has ended.
		if err := p.ctl.send(ctx, msgFail, appendException(nil, &exception{entry: 0, outcome: Failed, text: "gone"})); err != nil {
			return err
		}
		for ended := false; !ended; {
			if err := p.receive(ctx, func(f *frame) error { ended = f.typ == msgResult; return nil }); err != nil {
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
