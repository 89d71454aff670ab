package link

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// Lane is one queue pair of a session. Both ends may send on it at any time. On iWARP the active
// end must send first (rdma_connect(3)), so there a provider's Accept returns only after the peer
// has sent something.
type Lane struct {
	Link *Link
	Conn rdma.Conn
	open *trust.Opener // used by the link's poller only
	// damaged says that a message did not open. The messages after it are skipped, because the peer
	// sends all from that one on over another link. Only the link's poller uses it.
	damaged bool

	// OutBytes is the number of bytes in flight to the sink. The flow.Sender's lock guards it.
	OutBytes int64

	beating atomic.Bool // a heartbeat is in flight: see beat

	// A message is sealed and posted under one lock, because seals are numbered and the peer
	// accepts them only in order.
	mu    sync.Mutex
	seal  *trust.Sealer
	plain [wire.MsgBytes]byte
	buf   [wire.MsgBytes]byte
	wr    [1]rdma.WR
}

func newLane(link *Link, conn rdma.Conn, name trust.Lane) *Lane {
	l := &Lane{Link: link, Conn: conn}
	l.seal, l.open = link.keys.Messages(name)
	return l
}

// Send seals a control message and posts it with the other fields of wr. The body has at most
// wire.MaxBodyBytes. The error is the Conn's.
func (l *Lane) Send(t wire.MsgType, seq, consumed uint64, body []byte, wr rdma.WR) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	plain := l.plain[:wire.FrameBytes+copy(l.plain[wire.FrameBytes:], body)]
	wire.PutFrame(plain, t, seq, consumed)
	wr.Op, wr.Msg = rdma.OpSend, l.seal.Seal(l.buf[:0], plain)
	l.wr[0] = wr
	_, err := l.Conn.Post(l.wr[:])
	return err
}

// ErrForged says that a control message was changed on the way, by accident or on
// purpose. Its connection counts as lost.
var ErrForged = errors.New("a control message was damaged or forged on the way")

// unseal opens in place a message that arrived on a connection. ok is false for a message to skip:
// a heartbeat of a lane that is not yet part of the session, and anything on a closed or damaged
// lane.
func (r *Link) unseal(c *rdma.Completion) (f wire.Frame, ok bool, err error) {
	l := r.laneOf(c.Conn)
	if l == nil || l.damaged {
		return f, false, nil
	}
	plain, err := l.open.Open(c.Msg)
	if err != nil {
		l.damaged = true
		return f, false, ErrForged
	}
	if f, err = wire.ParseFrame(plain); err != nil {
		return f, false, err
	}
	if l != r.firstLane() && f.Type != wire.MsgHeartbeat && !r.Lost.Load() {
		return f, false, fmt.Errorf("%w: message %d beside the first queue pair", fault.ErrProtocol, f.Type)
	}
	return f, true, nil
}
