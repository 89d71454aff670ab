package xfer

import (
	"context"
	"fmt"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// DiskIO is how many bytes of a copy's files took which rung between memory and disk.
type DiskIO = wire.DiskIO

// diskIOOf reads what a tree or a store has counted.
func diskIOOf(b *chunker.RungBytes) DiskIO {
	return DiskIO{Direct: b.Of(chunker.RungDirect), DontCache: b.Of(chunker.RungDontCache), Buffered: b.Of(chunker.RungBuffered)}
}

// wroteBy notes how the sink wrote its files.
func (a *copyResults) wroteBy(b DiskIO) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written = b
}

// tellUse tells the source what the copy took of this end.
func (k *sink) tellUse(ctx context.Context) error {
	if err := k.tellWritten(func(t wire.MsgType, b []byte) error { return k.session.ctl.send(ctx, t, b) }); err != nil {
		return err
	}
	return k.session.tellCost(ctx)
}

// tellWritten tells the source how files were written, where that is not the way that the
// source takes for granted: through the page cache.
func (k *sink) tellWritten(send func(wire.MsgType, []byte) error) error {
	if k.store == nil {
		return nil
	}
	b := diskIOOf(k.store.Wrote())
	k.results.wroteBy(b)
	if b.Direct == 0 && b.DontCache == 0 {
		return nil
	}
	return send(wire.MsgWritten, b.Encode())
}

// hearWritten takes tellWritten's message. It is text for people: this end does not act on
// it.
func (s *source) hearWritten(body []byte) error {
	b, err := wire.DecodeDiskIO(body)
	if err != nil {
		return err
	}
	s.sender.mu.Lock()
	early := !s.window.rootsSent
	s.sender.mu.Unlock()
	if early {
		return fmt.Errorf("%w: how files were written, before they were", ErrProtocol)
	}
	s.results.wroteBy(b)
	return nil
}
