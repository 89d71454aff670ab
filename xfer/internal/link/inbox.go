package link

import (
	"context"
	"fmt"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// inMsg is a message on its way from the poller to the control goroutine.
type inMsg struct {
	buf []byte
	f   wire.Frame
}

// message processes one control message that arrived over a link.
func (s *Session) message(l *Link, role *Role, c *rdma.Completion) error {
	s.hearing.Lock()
	defer s.hearing.Unlock()
	f, ok, err := l.unseal(c)
	if !ok || err != nil {
		return err
	}
	switch f.Type {
	case wire.MsgHeartbeat:
		return nil
	case wire.MsgAbort:
		a, err := wire.DecodeAbort(f.Body)
		if err != nil {
			return err
		}
		return &fault.RemoteError{Peer: s.Peer, Class: a.Class, Text: a.Text}
	}
	s.moves()
	news, opened, err := s.Ctl.seen(&f)
	if err != nil {
		return err
	}
	if opened && role != nil {
		(*role).Opened()
	}
	if f.Type == wire.MsgAck || !news {
		return nil
	}
	if handled, err := s.hearLost(&f); handled || err != nil {
		if err == nil {
			s.Ctl.consume()
		}
		return err
	}
	if role != nil {
		handled, err := (*role).Fast(&f)
		if err != nil {
			return err
		}
		if handled {
			s.Ctl.consume()
			return nil
		}
	}
	return s.deliver(&f)
}

// deliver passes a message to the control goroutine, in memory of its own.
func (s *Session) deliver(f *wire.Frame) error {
	var m *inMsg
	select {
	case m = <-s.spare:
	default:
		m = &inMsg{buf: make([]byte, wire.MsgBytes)}
	}
	if len(f.Body) > len(m.buf) {
		return fmt.Errorf("%w: message of %d bytes", fault.ErrProtocol, len(f.Body))
	}
	m.f = *f
	m.f.Body = m.buf[:copy(m.buf, f.Body)]
	select {
	case s.Inbox <- m:
		return nil
	default:
		return fmt.Errorf("%w: %w", fault.ErrProtocol, credit.ErrWindow)
	}
}

// Receive waits for the next message and passes it to handle. The message then counts as consumed.
// Receive itself handles the messages that are the same for every role.
func (s *Session) Receive(ctx context.Context, handle func(f *wire.Frame) error) error {
	for {
		select {
		case m := <-s.Inbox:
			aside, err := s.Aside(&m.f)
			if !aside {
				err = handle(&m.f)
			}
			if err != nil {
				return err
			}
			select {
			case s.spare <- m:
			default:
			}
			s.Ctl.consume()
			if !aside {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Converse passes messages to handle until handle reports the end of the conversation.
func (s *Session) Converse(ctx context.Context, handle func(ctx context.Context, f *wire.Frame) (done bool, err error)) error {
	for done := false; !done; {
		err := s.Receive(ctx, func(f *wire.Frame) (err error) {
			done, err = handle(ctx, f)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Expect waits for one message of type t, no longer than Timeouts.Handshake.
func (s *Session) Expect(ctx context.Context, t wire.MsgType, what string, handle func(body []byte) error) error {
	hctx, cancel := context.WithTimeoutCause(ctx, s.Timeouts.Handshake,
		fmt.Errorf("%w: %s sent no %s within %v", fault.ErrPeerSilent, s.Peer, what, s.Timeouts.Handshake))
	defer cancel()
	return s.Receive(hctx, func(f *wire.Frame) error {
		if f.Type != t {
			return fmt.Errorf("%w: message %d from %s instead of the %s", fault.ErrProtocol, f.Type, s.Peer, what)
		}
		return handle(f.Body)
	})
}
