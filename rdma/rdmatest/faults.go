package rdmatest

import (
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"gdrcp/rdma"
)

// Faults injects faults into a provider that [Faulty] wraps. A nil function
// injects none. The functions are called concurrently, and may block only for
// less time than either end may be silent.
type Faults struct {
	// Corrupt decides whether one bit of a Write, WriteImm or Send is flipped on the way,
	// and returns the offset of its byte. The source never changes: a corrupted copy is
	// sent. Corrupt is not called for Reads or for work requests without bytes. Device
	// memory cannot be copied, so corrupting it makes Post fail.
	Corrupt func(Posted) (offset int, yes bool)
	// Drop ends the Conn instead of posting, as if the peer had died: this end
	// gets Closed with rdma.ErrDisconnected, and the other end loses its peer
	// in the way that the provider reports.
	Drop func(Posted) bool
	// Stall makes the Conn silent from this work request on: nothing is posted
	// (Post accepts SendDepth work requests and then reports a full queue), no
	// completion is delivered, and LastHeard does not change. Close works.
	Stall func(Posted) bool
	// Delay returns for how long to hold back a completion and the later
	// completions of the same Conn.
	Delay func(rdma.Completion) time.Duration
	// Register makes Rail.Register fail if it returns an error, for example
	// rdma.ErrLockedMemory.
	Register func(rdma.Region, rdma.Access) error
	// Registered is called for each region with the number of newly registered
	// bytes, negative when the region is closed.
	Registered func(bytes int)
	// Dial makes Rail.Dial fail in the same way.
	Dial func(remote netip.AddrPort, privateData []byte) error
	// Loopback makes Rail.Loopback fail in the same way.
	Loopback func() error
	// Device changes the description of a Rail's device, for example its rate.
	Device func(rdma.Device) rdma.Device
}

// Posted is a work request on its way into the provider. All counts start at 1
// and include this work request.
type Posted struct {
	// Conn counts the Conns of the wrapped provider in the order in which they were
	// made. All Loopbacks have 0.
	Conn int
	// Nth counts the work requests posted on this Conn.
	Nth int
	// NthWrite counts the Writes and WriteImms with bytes of all Conns of the wrapped
	// provider. It is 0 for other work requests, and for those of Loopbacks.
	NthWrite int
	// WR is the work request. WR.Local must not be used.
	WR rdma.WR
}

// Faulty wraps a provider and injects the faults of f. Rails, Listeners,
// Requests and Conns of the result work only with each other.
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

// faultyMR keeps the registered memory, to copy from it.
type faultyMR struct {
	rdma.MR
	mem    []byte
	closed func() // once
}

// Close deregisters the memory and reports it to Registered.
func (m *faultyMR) Close() error {
	err := m.MR.Close()
	m.closed()
	return err
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
