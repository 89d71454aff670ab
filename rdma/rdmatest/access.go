package rdmatest

import (
	"bytes"
	"errors"
	"math"
	"testing"
	"time"

	"gdrcp/rdma"
)

// accessCases cover remote accesses that must be refused.
var accessCases = []testCase{
	{"AccessWithinBounds", testAccessWithinBounds},
	{"AccessRefused", testAccessRefused},
	{"LocalRefused", testLocalRefused},
	{"KeysDiffer", testKeysDiffer},
	{"DeregisterWhileWritten", testDeregisterWhileWritten},
}

// The region that the accesses target is in the middle of mapped memory.
const (
	aimBytes  = 8192
	aimOffset = 4096
	aimedAt   = 512 // length of the accesses
)

// aim registers the middle of b's memory with the given rights.
func aim(t *testing.T, b *side, access rdma.Access) rdma.MR {
	t.Helper()
	mr, err := b.rail.Register(rdma.HostRegion(b.mem[aimOffset:aimOffset+aimBytes]), access)
	if err != nil {
		t.Fatalf("register: %v", err)
	}
	return mr
}

// testAccessWithinBounds accesses the first byte, the last byte, all bytes, and
// zero bytes at the end.
func testAccessWithinBounds(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	mr := aim(t, p.b, allAccess)
	fill(p.a.mem, 1)
	for i, c := range []struct{ at, n int }{
		{0, 1}, {aimBytes - 1, 1}, {0, aimBytes}, {aimBytes, 0}, {1, aimBytes - 1},
	} {
		wr := withImm(p.a.write(p.b, 0, 0, c.n), 1)
		wr.RKey, wr.RemoteAddr = mr.RKey(), mr.Addr()+uint64(c.at)
		fill(p.b.mem, uint64(i)+2)
		want := bytes.Clone(p.b.mem)
		copy(want[aimOffset+c.at:aimOffset+c.at+c.n], p.a.mem)
		p.a.post(wr)
		p.b.await("the immediate", func() bool { return len(p.b.got().imms) == i+1 })
		if !bytes.Equal(p.b.mem, want) {
			t.Errorf("write of %d bytes at %d of %d: memory is not as it should be", c.n, c.at, aimBytes)
		}
	}
}

// forbidden is a remote access that must be refused.
type forbidden struct {
	name string
	op   rdma.Op
	// granted are the rights of the region.
	granted rdma.Access
	n       int
	// spoil turns an access to the region's first byte into the forbidden one.
	spoil func(wr *rdma.WR, mr rdma.MR, p *pair)
}

var forbiddenAccesses = []forbidden{
	{"WriteOneByteBefore", rdma.OpWrite, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RemoteAddr-- }},
	{"WriteOneByteBehind", rdma.OpWrite, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RemoteAddr += aimBytes - aimedAt + 1 }},
	{"WriteAtTheEnd", rdma.OpWrite, allAccess, 1, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RemoteAddr += aimBytes }},
	{"WriteTooLong", rdma.OpWriteImm, allAccess, aimBytes + 1, nil},
	{"WriteWrapsAround", rdma.OpWrite, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RemoteAddr = math.MaxUint64 - 10 }},
	{"WriteAtNull", rdma.OpWrite, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RemoteAddr = 0 }},
	{"WriteByWrongKey", rdma.OpWrite, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RKey ^= 0x5a5a5a00 }},
	{"WriteByKeyZero", rdma.OpWriteImm, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RKey = 0 }},
	{"WriteWithoutRight", rdma.OpWrite, rdma.LocalWrite | rdma.RemoteRead, aimedAt, nil},
	{"WriteImmWithoutRight", rdma.OpWriteImm, 0, aimedAt, nil},
	{"WriteByStaleKey", rdma.OpWrite, allAccess, aimedAt, func(_ *rdma.WR, mr rdma.MR, _ *pair) { mr.Close() }},
	{"ReadWithoutRight", rdma.OpRead, rdma.LocalWrite | rdma.RemoteWrite, aimedAt, nil},
	{"ReadOneByteBehind", rdma.OpRead, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RemoteAddr += aimBytes - aimedAt + 1 }},
	{"ReadByStaleKey", rdma.OpRead, allAccess, aimedAt, func(_ *rdma.WR, mr rdma.MR, _ *pair) { mr.Close() }},
	{"ReadByWrongKey", rdma.OpRead, allAccess, aimedAt, func(wr *rdma.WR, _ rdma.MR, _ *pair) { wr.RKey ^= 0x5a5a5a00 }},
}

func testAccessRefused(t *testing.T, s *suite) {
	for _, c := range forbiddenAccesses {
		t.Run(c.name, func(t *testing.T) {
			if s.ReadsUnchecked && c.op == rdma.OpRead && c.granted&rdma.RemoteRead == 0 {
				t.Skip("the device's driver does not check the right to read; run it on another device")
			}
			testForbidden(t, s, c)
		})
	}
}

// testForbidden checks that no byte moves, that each of the two Conns dies
// once, and that nothing posted afterwards arrives.
func testForbidden(t *testing.T, s *suite, c forbidden) {
	p := s.pair(t, s.layout())
	mr := aim(t, p.b, c.granted)
	wr := p.a.write(p.b, 0, 0, c.n)
	wr.Op, wr.RKey, wr.RemoteAddr = c.op, mr.RKey(), mr.Addr()
	if c.spoil != nil {
		c.spoil(&wr, mr, p)
	}
	fill(p.a.mem, 1)
	fill(p.b.mem, 2)
	wantA, wantB := bytes.Clone(p.a.mem), bytes.Clone(p.b.mem)
	// The Conn may be dead before the second is accepted.
	if n, err := p.a.conn.Post([]rdma.WR{wr, withImm(p.a.write(p.b, 0, 0, 64), 9)}); n == 0 {
		t.Fatalf("post: %v", err)
	}
	for _, e := range []*side{p.a, p.b} {
		e.await("Closed", func() bool { return len(e.got().closed) > 0 })
	}
	for _, e := range []*side{p.a, p.b} {
		e.settle(20 * time.Millisecond)
		if n := len(e.got().closed); n != 1 {
			t.Errorf("%s: told Closed %d times", e.name, n)
		}
		if _, err := e.conn.Post([]rdma.WR{send(nil)}); err == nil || errors.Is(err, rdma.ErrQueueFull) {
			t.Errorf("%s: Post on a dead Conn: %v", e.name, err)
		}
	}
	if !bytes.Equal(p.b.mem, wantB) || !bytes.Equal(p.a.mem, wantA) {
		t.Error("memory changed")
	}
	if h := p.b.got(); len(h.imms) > 0 {
		t.Error("the work request behind arrived")
	}
	s.checkAccessTold(t, p)
}

func (s *suite) checkAccessTold(t *testing.T, p *pair) {
	t.Helper()
	for told, e := range map[AccessTold]*side{TellInitiator: p.a, TellOwner: p.b} {
		if s.AccessTold&told == 0 {
			continue
		}
		var opErr *rdma.OpError
		if err := e.got().closed[0]; !errors.Is(err, rdma.ErrAccess) || !errors.As(err, &opErr) {
			t.Errorf("%s: Closed with %v, want an OpError of ErrAccess", e.name, err)
		}
	}
}

// testLocalRefused checks that an invalid local access is an error of Post or
// kills the Conn; in both cases no byte moves.
func testLocalRefused(t *testing.T, s *suite) {
	cases := []struct {
		name  string
		spoil func(t *testing.T, wr *rdma.WR, p *pair, l layout)
	}{
		{"OffsetBehindRegion", func(_ *testing.T, wr *rdma.WR, p *pair, _ layout) { wr.Offset = len(p.a.mem) + 1 }},
		{"LengthBehindRegion", func(_ *testing.T, wr *rdma.WR, p *pair, _ layout) { wr.Offset = len(p.a.mem) - wr.Len + 1 }},
		{"OffsetNegative", func(_ *testing.T, wr *rdma.WR, _ *pair, _ layout) { wr.Offset = -1 }},
		{"OffsetOverflows", func(_ *testing.T, wr *rdma.WR, _ *pair, _ layout) { wr.Offset = math.MaxInt }},
		{"LengthNegative", func(_ *testing.T, wr *rdma.WR, _ *pair, _ layout) { wr.Len = -1 }},
		{"LengthAboveWriteBytes", func(_ *testing.T, wr *rdma.WR, _ *pair, l layout) { wr.Len = l.cfg.WriteBytes + 1 }},
		{"MessageTooLong", func(_ *testing.T, wr *rdma.WR, _ *pair, l layout) { *wr = send(make([]byte, l.cfg.MsgBytes+1)) }},
		{"NoRegion", func(_ *testing.T, wr *rdma.WR, _ *pair, _ layout) { wr.Local = nil }},
		{"RegionOfAnotherRail", func(_ *testing.T, wr *rdma.WR, p *pair, _ layout) { wr.Local = p.b.mr }},
		{"UnknownOperation", func(_ *testing.T, wr *rdma.WR, _ *pair, _ layout) { wr.Op = 99 }},
		{"ReadWithoutLocalWrite", func(t *testing.T, wr *rdma.WR, p *pair, _ layout) {
			mr, err := p.a.rail.Register(rdma.HostRegion(p.a.mem), rdma.RemoteRead)
			if err != nil {
				t.Fatal(err)
			}
			wr.Op, wr.Local = rdma.OpRead, mr
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			l := s.layout()
			l.cfg.WriteBytes = 16 << 10
			p := s.pair(t, l)
			wr := withImm(p.a.write(p.b, 0, 0, 4096), 3)
			c.spoil(t, &wr, p, l)
			fill(p.a.mem, 1)
			wantA := bytes.Clone(p.a.mem)
			if n, err := p.a.conn.Post([]rdma.WR{wr}); err == nil {
				p.a.await("Closed", func() bool { return len(p.a.got().closed) == 1 })
			} else if n != 0 || errors.Is(err, rdma.ErrQueueFull) {
				t.Errorf("Post took %d: %v", n, err)
			}
			p.b.settle(20 * time.Millisecond)
			if !bytes.Equal(p.b.mem, make([]byte, len(p.b.mem))) || !bytes.Equal(p.a.mem, wantA) {
				t.Error("memory changed")
			}
			if h := p.b.got(); len(h.imms)+len(h.msgs) > 0 {
				t.Error("the work request arrived")
			}
		})
	}
}

// testKeysDiffer checks that regions of one rail have different keys, and that
// the key of one does not grant access to another.
func testKeysDiffer(t *testing.T, s *suite) {
	p := s.pair(t, s.layout())
	keys := make(map[uint32]bool)
	for range 32 {
		mr, err := p.b.rail.Register(rdma.HostRegion(p.b.mem[:4096]), rdma.RemoteWrite|rdma.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		if keys[mr.RKey()] {
			t.Errorf("key %#x given twice", mr.RKey())
		}
		keys[mr.RKey()] = true
	}
	readOnly := aim(t, p.b, rdma.RemoteRead)
	wr := p.a.write(p.b, 0, 0, 64)
	wr.RKey = readOnly.RKey() // with the address of the writable region
	wr.RemoteAddr = p.b.mr.Addr()
	fill(p.a.mem, 1)
	p.a.post(wr)
	p.b.await("Closed", func() bool { return len(p.b.got().closed) == 1 })
	if !bytes.Equal(p.b.mem, make([]byte, len(p.b.mem))) {
		t.Error("memory changed")
	}
}

// testDeregisterWhileWritten checks that nothing lands once MR.Close has returned.
func testDeregisterWhileWritten(t *testing.T, s *suite) {
	l := s.layout()
	l.memBytes = min(8<<20, s.WriteBytes)
	p := s.pair(t, l)
	fill(p.a.mem, 1)
	late := p.a.write(p.b, 0, 0, l.memBytes)
	for range l.cfg.SendDepth {
		p.a.post(late)
	}
	p.a.await("a first Done", func() bool { return len(p.a.got().dones) > 0 })
	if err := p.b.mr.Close(); err != nil {
		t.Errorf("close region: %v", err)
	}
	time.Sleep(s.limit(s.LandsLate))
	clear(p.b.mem)
	// On a busy machine all Writes may have landed already: one more is too
	// late in any case.
	p.a.await("Closed", func() bool {
		if len(p.a.got().closed) == 0 {
			_, _ = p.a.conn.Post([]rdma.WR{late}) // the queue may be full, or the Conn dead
		}
		return len(p.a.got().closed) == 1
	})
	p.b.await("Closed", func() bool { return len(p.b.got().closed) == 1 })
	if !bytes.Equal(p.b.mem, make([]byte, l.memBytes)) {
		t.Error("a write landed after the region was closed")
	}
	if err := p.b.mr.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}
