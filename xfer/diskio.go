package xfer

import (
	"context"
	"fmt"

	"gdrcp/internal/fileset"
	"gdrcp/xfer/internal/wire"
)

// DiskIO is how many bytes of a copy's files used which I/O mode between memory and disk.
type DiskIO = wire.DiskIO

// diskIOOf converts the counts of a tree or a store.
func diskIOOf(b *fileset.IOBytes) DiskIO {
	return DiskIO{Direct: b.Of(fileset.IODirect), DontCache: b.Of(fileset.IODontCache), Buffered: b.Of(fileset.IOBuffered)}
}

// readBy records how the source read its files.
func (a *copyResults) readBy(b DiskIO) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.read = b
}

// wroteBy records how the sink wrote its files.
func (a *copyResults) wroteBy(b DiskIO) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.written = b
}

// tellUse reports to the source what the copy used at this end.
func (k *sink) tellUse(ctx context.Context) error {
	if err := k.tellWritten(func(t wire.MsgType, b []byte) error { return k.Session.Ctl.Send(ctx, t, b) }); err != nil {
		return err
	}
	return k.Session.TellCost(ctx)
}

// tellWritten reports to the source how files were written, unless that is the way that the source
// assumes: through the page cache.
func (k *sink) tellWritten(send func(wire.MsgType, []byte) error) error {
	if k.store == nil {
		return nil
	}
	b := diskIOOf(k.store.Wrote())
	k.results.wroteBy(b)
	if b.CacheOnly() {
		return nil
	}
	return send(wire.MsgWritten, b.Encode())
}

// tellUse reports to the sink what the copy used at this end. It reports how files were read,
// unless that is the way that the sink assumes: through the page cache.
func (s *source) tellUse(ctx context.Context) error {
	if s.tree != nil {
		b := diskIOOf(s.tree.Read())
		s.results.readBy(b)
		if !b.CacheOnly() {
			if err := s.Session.Ctl.Send(ctx, wire.MsgRead, b.Encode()); err != nil {
				return err
			}
		}
	}
	return s.Session.TellCost(ctx)
}

// hearRead processes the source's message. It is text for people: this end does not act on it.
func (k *sink) hearRead(body []byte) error {
	b, err := diskIOAtTheEnd(body, k.heardEnd(), "read")
	if err == nil {
		k.results.readBy(b)
	}
	return err
}

// hearWritten processes tellWritten's message. It is text for people: this end does not act on it.
func (s *source) hearWritten(body []byte) error {
	s.sender.Mu.Lock()
	atTheEnd := s.window.rootsSent
	s.sender.Mu.Unlock()
	b, err := diskIOAtTheEnd(body, atTheEnd, "written")
	if err == nil {
		s.results.wroteBy(b)
	}
	return err
}

// diskIOAtTheEnd decodes how the peer's files were read or written, which it reports only at the
// end of the copy.
func diskIOAtTheEnd(body []byte, atTheEnd bool, verb string) (DiskIO, error) {
	b, err := wire.DecodeDiskIO(body)
	if err == nil && !atTheEnd {
		err = fmt.Errorf("%w: how files were %s, before they were", ErrProtocol, verb)
	}
	return b, err
}
