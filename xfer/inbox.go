package xfer

import (
	"context"
	"fmt"

	"gdrcp/rdma"
)

// inMsg is a message on its way from the poller to the control goroutine.
type inMsg struct {
	buf []byte
	f   frame
}

// message takes one control message.
func (s *session) message(role *role, c *rdma.Completion) error {
	f, ok, err := s.unseal(c)
	if !ok || err != nil {
		return err
	}
	switch f.typ {
	case msgHeartbeat:
		return nil
	case msgAbort:
		a, err := decodeAbort(f.body)
		if err != nil {
			return err
		}
		return &RemoteError{Peer: s.peer, Class: a.class, Text: a.text}
	}
	opened, err := s.ctl.seen(&f)
	if err != nil {
		return err
	}
	if opened && role != nil {
		(*role).opened()
	}
	if f.typ == msgAck {
		return nil
	}
	if role != nil {
		handled, err := (*role).fast(&f)
		if err != nil {
			return err
		}
		if handled {
			s.ctl.consume()
			return nil
		}
	}
	return s.deliver(&f)
}

// deliver hands a message to the control goroutine, in memory of its own.
func (s *session) deliver(f *frame) error {
	var m *inMsg
	select {
	case m = <-s.spare:
	default:
		m = &inMsg{buf: make([]byte, msgBytes)}
	}
	if len(f.body) > len(m.buf) {
		return fmt.Errorf("%w: message of %d bytes", ErrProtocol, len(f.body))
	}
	m.f = *f
	m.f.body = m.buf[:copy(m.buf, f.body)]
	select {
	case s.inbox <- m:
		return nil
	default:
		return errWindow
	}
}

// receive waits for the next message and hands it to handle, after which it
// counts as consumed. Where the peer has its slots is for every role the same,
// and taken on the way.
func (s *session) receive(ctx context.Context, handle func(f *frame) error) error {
	for {
		select {
		case m := <-s.inbox:
			aside := m.f.typ == msgMemory
			err := error(nil)
			if aside {
				err = s.heardMemory(m.f.body)
			} else {
				err = handle(&m.f)
			}
			if err != nil {
				return err
			}
			select {
			case s.spare <- m:
			default:
			}
			s.ctl.consume()
			if !aside {
				return nil
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// expect waits for one message of type t within the handshake's bound.
func (s *session) expect(ctx context.Context, t msgType, what string, handle func(body []byte) error) error {
	hctx, cancel := context.WithTimeoutCause(ctx, s.timeouts.Handshake,
		fmt.Errorf("%w: %s sent no %s within %v", ErrPeerSilent, s.peer, what, s.timeouts.Handshake))
	defer cancel()
	return s.receive(hctx, func(f *frame) error {
		if f.typ != t {
			return fmt.Errorf("%w: message %d from %s instead of the %s", ErrProtocol, f.typ, s.peer, what)
		}
		return handle(f.body)
	})
}
