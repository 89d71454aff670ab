package xfer

import (
	"context"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/wire"
)

// A chunk that waits in its slot for one before it holds nothing up when its file has ended:
// the source then sends nothing more of it.
func TestChunksThatWaitForWhatNeverComes(t *testing.T) {
	overHostile(t, func(t *testing.T, w hostileWay) {
		_, addr, ends := w.serve(t)
		err := w.talk(t, addr, wire.ModePush, "x", asIs, func(ctx context.Context, s *session) error {
			ctx, cancel := context.WithTimeout(ctx, rdmatest.Stretch(w.timeouts().Silence))
			defer cancel()
			p := &puppet{session: s}
			if err := p.ready(ctx); err != nil {
				return err
			}
			file := fileOf(2 * manifest.DefaultPieceBytes)
			if err := p.announce(ctx, file); err != nil {
				return err
			}
			data := make([]byte, manifest.DefaultPieceBytes)
			x := wire.Extent{Off: manifest.DefaultPieceBytes, Length: manifest.DefaultPieceBytes, Flags: wire.ExtLast}
			x.Digest = p.terms.DigestOf(&x, file.Size, data)
			if err := p.chunk(1, 1, 1, data, x); err != nil { // chunk 0 was lost on its way
				return err
			}
			time.Sleep(50 * time.Millisecond) // until it waits; it comes too late otherwise, which is right, too
			failed := &wire.Exception{Entry: 0, Outcome: Failed, Text: "it changed"}
			if err := p.ctl.send(ctx, wire.MsgFail, wire.AppendException(nil, failed)); err != nil {
				return err
			}
			if err := p.ctl.send(ctx, wire.MsgEnd, []byte{1}); err != nil {
				return err
			}
			if err := p.await(ctx, wire.MsgResult); err != nil {
				return err
			}
			acct, err := newCopyResults(&p.terms, w.options())
			if err != nil {
				return err
			}
			if err := acct.book(&entryState{AnnouncedEntry: file}, failed); err != nil {
				return err
			}
			r := acct.finish()
			if err := p.ctl.send(ctx, wire.MsgRoot, r.Encode()); err != nil {
				return err
			}
			return p.await(ctx, wire.MsgDone)
		})
		if end := <-ends; err != nil || end.Err != nil {
			t.Errorf("%v, the server: %v", err, end.Err)
		}
	})
}
