package rdmatest

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"gdrcp/rdma"
)

// Faults says what goes wrong in a provider that [Faulty] wraps. A nil function
// lets all go well. The functions are called from several goroutines at once
// and must not block.
type Faults struct {
	// Corrupt says whether, and by its offset which, byte of a Write, WriteImm
	// or Send arrives with one bit flipped. The source stays as it is, also
	// while the work request is under way: a spoiled copy travels. Reads and
	// what has no bytes are not asked about. Memory of a device cannot be
	// copied, so corrupting it makes Post fail.
	Corrupt func(Posted) (offset int, yes bool)
	// Drop ends the Conn instead of posting, as if the peer had died: this end
	// is told Closed with rdma.ErrDisconnected, and the other end loses its
	// peer as the provider tells it.
	Drop func(Posted) bool
	// Stall makes the Conn silent from this work request on: nothing is posted
	// (Post takes SendDepth work requests and is full then), nothing that it
	// has to tell is delivered, LastHeard stands still. Close works.
	Stall func(Posted) bool
	// Delay holds a completion back, and those of the same Conn behind it.
	Delay func(rdma.Completion) time.Duration
	// Register makes Rail.Register fail with the error where it is not nil,
	// for example rdma.ErrLockedMemory.
	Register func(rdma.Region, rdma.Access) error
	// Dial makes Rail.Dial fail likewise.
	Dial func(remote netip.AddrPort, privateData []byte) error
	// Loopback makes Rail.Loopback fail likewise.
	Loopback func() error
}

// Posted is a work request on its way into the provider. All counts start at 1
// and include this one.
type Posted struct {
	// Conn counts the Conns of the wrapped provider, as they came up. 0 is for
	// all Loopbacks.
	Conn int
	// Nth counts what was posted on this Conn.
	Nth int
	// NthWrite counts the Writes and WriteImms with bytes of all Conns of the
	// wrapped provider; 0 for others, and for those of Loopbacks.
	NthWrite int
	// WR is the work request. WR.Local must not be used.
	WR rdma.WR
}

// Faulty wraps a provider so that it fails as told. Rails, Listeners, Requests
// and Conns of the result work with each other only.
func Faulty(p rdma.Provider, f Faults) rdma.Provider {
	return &faultyProvider{Provider: p, faults: f}
}

type faultyProvider struct {
	rdma.Provider
	faults Faults
	conns  atomic.Int64
	writes atomic.Int64
}

func (p *faultyProvider) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	inner, err := p.Provider.Open(device, cfg)
	if err != nil {
		return nil, err
	}
	return newFaultyRail(p, inner, cfg), nil
}

func (p *faultyProvider) Listen(addr netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	inner, err := p.Provider.Listen(addr, w)
	if err != nil {
		return nil, err
	}
	return &faultyListener{inner}, nil
}

// describe numbers a work request.
func (p *faultyProvider) describe(c *faultyConn, wr *rdma.WR) Posted {
	c.posted++
	d := Posted{Conn: c.number, Nth: c.posted, WR: *wr}
	if (wr.Op == rdma.OpWrite || wr.Op == rdma.OpWriteImm) && wr.Len > 0 && c.number > 0 {
		d.NthWrite = int(p.writes.Add(1))
	}
	return d
}

// faultyMR remembers the memory, for copies of it.
type faultyMR struct {
	rdma.MR
	mem []byte
}

// spoiled returns a copy of part of the memory with one bit flipped.
func (m *faultyMR) spoiled(into []byte, wr *rdma.WR, offset int) error {
	switch {
	case m.mem == nil:
		return fmt.Errorf("corrupt a write: %w: device memory", rdma.ErrUnsupported)
	case wr.Offset < 0 || wr.Offset > len(m.mem) || wr.Len > len(m.mem)-wr.Offset:
		return fmt.Errorf("corrupt a write: %d bytes at %d of %d", wr.Len, wr.Offset, len(m.mem))
	case offset < 0 || offset >= wr.Len:
		return fmt.Errorf("corrupt a write: byte %d of %d", offset, wr.Len)
	}
	copy(into, m.mem[wr.Offset:wr.Offset+wr.Len])
	into[offset] ^= 1
	return nil
}
