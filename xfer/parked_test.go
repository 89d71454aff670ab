package xfer

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// A chunk that waits in its slot for an earlier one does not hold up the copy when its file has
// ended: the source then sends nothing more of it.
func TestChunksThatWaitForWhatNeverComes(t *testing.T) {
	overHostile(t, func(t *testing.T, w hostileWay) {
		_, addr, ends := w.serve(t)
		err := w.talk(t, addr, wire.ModePush, "x", asIs, func(ctx context.Context, s *flow.Session) error {
			ctx, cancel := context.WithTimeout(ctx, rdmatest.Stretch(w.timeouts().Silence))
			defer cancel()
			p := &puppet{Session: s}
			if err := p.ready(ctx); err != nil {
				return err
			}
			file := fileOf(2 * manifest.DefaultPieceBytes)
			if err := p.announce(ctx, file); err != nil {
				return err
			}
			data := make([]byte, manifest.DefaultPieceBytes)
			x := wire.Extent{Off: manifest.DefaultPieceBytes, Length: manifest.DefaultPieceBytes, Flags: wire.ExtLast}
			x.Digest = p.Terms.DigestOf(&x, file.Size, data)
			if err := p.chunk(1, 1, 1, data, x); err != nil { // chunk 0 was lost on its way
				return err
			}
			time.Sleep(50 * time.Millisecond) // until it waits; otherwise it comes too late, which is also valid
			failed := &wire.Exception{Entry: 0, Outcome: Failed, Text: "it changed"}
			if err := p.Ctl.Send(ctx, wire.MsgFail, wire.AppendException(nil, failed)); err != nil {
				return err
			}
			if err := p.Ctl.Send(ctx, wire.MsgEnd, []byte{1}); err != nil {
				return err
			}
			if err := p.await(ctx, wire.MsgResult); err != nil {
				return err
			}
			return p.endOf(ctx, w.options(), file, failed)
		})
		if end := <-ends; err != nil || end.Err != nil {
			t.Errorf("%v, the server: %v", err, end.Err)
		}
	})
}

// endOf ends the conversation about one file, which failed, when that is settled.
func (p *puppet) endOf(ctx context.Context, o *Options, file wire.AnnouncedEntry, failed *wire.Exception) error {
	acct, err := newCopyResults(&p.Terms, o)
	if err != nil {
		return err
	}
	if err := acct.book(&entryState{AnnouncedEntry: file}, failed); err != nil {
		return err
	}
	r := acct.finish()
	if err := p.Ctl.Send(ctx, wire.MsgRoot, r.Encode()); err != nil {
		return err
	}
	return p.await(ctx, wire.MsgDone)
}

// The same holds for chunks of a stream that wait for a damaged piece, and those that wait for
// their turn after these.
func TestChunksOfAStreamThatEnded(t *testing.T) {
	OnHost(t)
	const piece = manifest.DefaultPieceBytes
	good, evil := make([]byte, piece), bytes.Repeat([]byte("e"), piece)
	for name, last := range map[string]uint64{"waiting": 1, "out of turn": 2} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan error, 1)
			ep := hostileServing(t, "f", func(ctx context.Context, p *puppet) error {
				ctx, cancel := context.WithTimeout(ctx, rdmatest.Stretch(shortTimeouts().Silence))
				defer cancel()
				file := fileAt("f", 4*piece)
				err := errors.Join(p.announce(ctx, file), p.chunk(0, 0, 1, evil, pieceOf(0, good, 0)),
					p.chunk(last, 1, 1, good, pieceOf(int64(last)*piece, good, 0)), p.asked(ctx))
				time.Sleep(50 * time.Millisecond)
				failed := &wire.Exception{Entry: 0, Outcome: Failed, Text: "it changed"}
				err = errors.Join(err, p.Ctl.Send(ctx, wire.MsgFail, wire.AppendException(nil, failed)),
					p.Ctl.Send(ctx, wire.MsgEnd, []byte{1}), p.await(ctx, wire.MsgResult))
				if err == nil {
					err = p.endOf(ctx, byTCP().options(), file, failed)
				}
				ended <- err
				return err
			})
			out := &kept{}
			c := Client{TCP: tcp.New()}
			sum, err := c.PullStream(t.Context(), ep, "f", out, Options{Transport: "tcp", Slots: hostileSlots, Timeouts: shortTimeouts()})
			if err := <-ended; err != nil {
				t.Errorf("the server: %v", err)
			}
			if err != nil || sum.Failed != 1 || out.String() != "" {
				t.Errorf("%+v, %v, and %d bytes were written", sum, err, len(out.String()))
			}
		})
	}
}
