package rdmatest

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// DeviceMemory allocates memory that stands in for a GPU's: a provider may
// register it, but must not touch it with the processor. An implementation
// whose memory the processor cannot touch detects violations best.
type DeviceMemory interface {
	// Alloc returns zeroed memory that is freed when the test ends, after
	// cleanups that are registered with t later.
	Alloc(t testing.TB, lenBytes int) DeviceBuffer
}

// DeviceBuffer is an allocation of DeviceMemory, with access to its bytes that
// does not use the RDMA device.
type DeviceBuffer interface {
	// Addr is the address of the first byte, page-aligned.
	Addr() uint64
	// Export returns a new descriptor of the whole buffer as a dma-buf, to be
	// closed by the caller, or -1 if the buffer is registered by its address.
	Export(t testing.TB) int
	// Peek copies bytes out of the buffer; Poke copies bytes into it.
	Peek(offset int, into []byte)
	Poke(offset int, from []byte)
}

// RunDevice runs the part of the suite that tests device memory.
func RunDevice(t *testing.T, cfg Config, memory DeviceMemory) {
	s := newSuite(t, cfg)
	var cases []testCase
	for _, c := range deviceCases {
		cases = append(cases, testCase{c.name, func(t *testing.T, s *suite) { c.run(t, s, memory) }})
	}
	s.run(t, cases)
}

var deviceCases = []struct {
	name string
	run  func(t *testing.T, s *suite, memory DeviceMemory)
}{
	{"DeviceWritten", testDeviceWritten},
	{"DeviceRead", testDeviceRead},
	{"DeviceSends", testDeviceSends},
	{"DeviceReads", testDeviceReads},
	{"DeviceAccessRefused", testDeviceAccessRefused},
	{"DeviceLoopback", testDeviceLoopback},
	{"DeviceRegistrations", testDeviceRegistrations},
	{"DeviceRegionRefused", testDeviceRegionRefused},
}

// The region in a buffer is preceded by a margin that is not part of it, so
// that its offset and address differ from the buffer's.
const (
	devicePageBytes = 64 << 10 // a multiple of every kernel's page size
	deviceMargin    = 3 * devicePageBytes
)

// devicePair is a pair whose accepting side has device memory, with its middle
// registered.
type devicePair struct {
	*pair
	n      int // bytes of the region, and of the dialling side's host memory
	buffer DeviceBuffer
	region rdma.MR
}

func (s *suite) devicePair(t *testing.T, memory DeviceMemory, n int, access rdma.Access) *devicePair {
	t.Helper()
	l := s.layout()
	l.memBytes, l.cfg.Loopbacks = n, 1
	p := &devicePair{n: n, buffer: memory.Alloc(t, n+2*deviceMargin)}
	p.pair = s.pair(t, l)
	p.region = p.b.register(p.buffer, deviceMargin, n, access)
	return p
}

// register registers part of a buffer with the side's device.
func (e *side) register(b DeviceBuffer, offset, n int, access rdma.Access) rdma.MR {
	e.t.Helper()
	r := part(e.t, b, offset, n)
	mr, err := e.rail.Register(r, access)
	closeExport(e.t, r)
	if err != nil {
		e.t.Fatalf("register %d bytes at %d of device memory: %v", n, offset, err)
	}
	if mr.Addr() != b.Addr()+uint64(offset) || mr.Len() != n {
		e.t.Errorf("region of %d bytes at %#x, want %d at %#x", mr.Len(), mr.Addr(), n, b.Addr()+uint64(offset))
	}
	return mr
}

// part describes part of a buffer. closeExport closes the descriptor that part took.
func part(t testing.TB, b DeviceBuffer, offset, n int) rdma.Region {
	t.Helper()
	return rdma.Region{Addr: b.Addr() + uint64(offset), Len: n, DMABufFD: b.Export(t), DMABufOffset: uint64(offset)}
}

func closeExport(t testing.TB, r rdma.Region) {
	t.Helper()
	if r.DMABufFD < 0 {
		return
	}
	if err := unix.Close(r.DMABufFD); err != nil {
		t.Errorf("close the dma-buf: %v", err)
	}
}

// longBytes is the length of an access that the device splits into several. It
// is not a round number.
func (s *suite) longBytes() int { return min(7<<20-devicePageBytes, s.WriteBytes) }

// aimed returns a work request of the dialling side that targets the region.
func (p *devicePair) aimed(op rdma.Op, offset, n int) rdma.WR {
	return rdma.WR{
		Op: op, Local: p.a.mr, Offset: offset, Len: n,
		RKey: p.region.RKey(), RemoteAddr: p.region.Addr() + uint64(offset),
	}
}

// holds checks that the region holds inside, and that the rest of the buffer is zero.
func (p *devicePair) holds(what string, inside []byte) {
	p.a.t.Helper()
	want := make([]byte, p.n+2*deviceMargin)
	copy(want[deviceMargin:], inside)
	got := make([]byte, len(want))
	p.buffer.Peek(0, got)
	for i := range got {
		if got[i] != want[i] {
			p.a.t.Errorf("%s: byte %d of the region of %d is %#x, want %#x", what, i-deviceMargin, p.n, got[i], want[i])
			return
		}
	}
}

// testDeviceWritten checks that a Write with immediate lands, and that a Read
// of its last byte by a Loopback, as in a flush, completes after it.
func testDeviceWritten(t *testing.T, s *suite, memory DeviceMemory) {
	p := s.devicePair(t, memory, s.longBytes(), rdma.RemoteWrite|rdma.RemoteRead)
	loop := p.b.loop(t)
	for round := range 2 {
		fill(p.a.mem, uint64(round)+1)
		p.a.post(withImm(p.aimed(rdma.OpWrite, 0, p.n), uint32(round)))
		p.b.await("the immediate", func() bool { return len(p.b.got().imms) == round+1 })
		p.b.postTo(loop, rdma.WR{
			Op: rdma.OpRead, Local: p.b.mr, Len: 1, RKey: p.region.RKey(), RemoteAddr: p.region.Addr() + uint64(p.n-1),
		})
		p.b.await("the flush", func() bool { return len(p.b.of(loop).dones) == round+1 })
		p.holds("written", p.a.mem)
		if p.b.mem[0] != p.a.mem[p.n-1] {
			t.Errorf("the flush read %#x, want %#x", p.b.mem[0], p.a.mem[p.n-1])
		}
	}
}

// testDeviceRead lets the peer read device memory.
func testDeviceRead(t *testing.T, s *suite, memory DeviceMemory) {
	p := s.devicePair(t, memory, s.longBytes(), rdma.RemoteRead)
	want := make([]byte, p.n)
	fill(want, 1)
	p.buffer.Poke(deviceMargin, want)
	p.a.post(p.aimed(rdma.OpRead, 0, p.n))
	p.a.await("the Done", func() bool { return len(p.a.got().dones) == 1 })
	if !bytes.Equal(p.a.mem, want) {
		t.Error("what was read is not what is in device memory")
	}
	p.holds("read", want)
}

// testDeviceSends uses device memory as the source of Writes: of many bytes,
// and of few enough that a provider might pass them inline.
func testDeviceSends(t *testing.T, s *suite, memory DeviceMemory) {
	p := s.devicePair(t, memory, s.longBytes(), 0)
	want := make([]byte, p.n)
	fill(want, 1)
	p.buffer.Poke(deviceMargin, want)
	for i, n := range []int{1, 8, 64, 65, 4096, p.n} {
		clear(p.a.mem)
		wr := withImm(p.b.write(p.a, 0, 0, n), uint32(i))
		wr.Local = p.region
		plain := wr
		plain.Op, plain.Quiet = rdma.OpWrite, true
		p.b.post(plain, wr)
		p.a.await("the immediate", func() bool { return len(p.a.got().imms) == i+1 })
		p.b.await("the Done", func() bool { return len(p.b.got().dones) == i+1 })
		if !bytes.Equal(p.a.mem[:n], want[:n]) || len(bytes.Trim(p.a.mem[n:], "\x00")) > 0 {
			t.Errorf("%d bytes of device memory arrived otherwise", n)
		}
	}
	p.holds("sent", want)
}

// testDeviceReads checks that Reads land in device memory that has only the right for
// that.
func testDeviceReads(t *testing.T, s *suite, memory DeviceMemory) {
	p := s.devicePair(t, memory, s.longBytes(), rdma.LocalWrite)
	fill(p.a.mem, 1)
	wr := p.b.read(p.a, 0, 0, p.n)
	wr.Local = p.region
	p.b.post(wr)
	p.b.await("the Done", func() bool { return len(p.b.got().dones) == 1 })
	p.holds("read into", p.a.mem)
}

// testDeviceAccessRefused checks that key, bounds and rights are enforced as
// for host memory.
func testDeviceAccessRefused(t *testing.T, s *suite, memory DeviceMemory) {
	cases := []struct {
		name   string
		access rdma.Access
		spoil  func(p *devicePair, wr *rdma.WR)
	}{
		{"OneByteBehind", rdma.RemoteWrite, func(p *devicePair, wr *rdma.WR) { wr.RemoteAddr += uint64(p.n - wr.Len + 1) }},
		{"OneByteBefore", rdma.RemoteWrite, func(_ *devicePair, wr *rdma.WR) { wr.RemoteAddr-- }},
		{"ByOffset", rdma.RemoteWrite, func(_ *devicePair, wr *rdma.WR) { wr.RemoteAddr = deviceMargin }},
		{"WrongKey", rdma.RemoteWrite, func(_ *devicePair, wr *rdma.WR) { wr.RKey ^= 0x5a5a5a00 }},
		{"NoRight", rdma.RemoteRead, nil},
		{"StaleKey", rdma.RemoteWrite, func(p *devicePair, _ *rdma.WR) { p.region.Close() }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := s.devicePair(t, memory, devicePageBytes, c.access)
			fill(p.a.mem, 1)
			wr := p.aimed(rdma.OpWrite, 0, 4096)
			if c.spoil != nil {
				c.spoil(p, &wr)
			}
			p.a.post(wr)
			for _, e := range []*side{p.a, p.b} {
				e.await("Closed", func() bool { return len(e.got().closed) == 1 })
			}
			p.holds("refused", nil)
			s.checkAccessTold(t, p.pair)
		})
	}
}

// testDeviceLoopback uses a registration in both directions.
func testDeviceLoopback(t *testing.T, s *suite, memory DeviceMemory) {
	p := s.devicePair(t, memory, devicePageBytes, allAccess)
	loop := p.b.loop(t)
	fill(p.b.mem, 1)
	half := p.n / 2
	want := bytes.Clone(p.b.mem[:half])
	own := rdma.WR{Op: rdma.OpWrite, Local: p.b.mr, Len: half, RKey: p.region.RKey(), RemoteAddr: p.region.Addr(), Quiet: true}
	back := rdma.WR{Op: rdma.OpRead, Local: p.b.mr, Offset: half, Len: half, RKey: p.region.RKey(), RemoteAddr: p.region.Addr()}
	p.b.postTo(loop, own, back)
	p.b.await("the Done", func() bool { return len(p.b.of(loop).dones) == 1 })
	if !bytes.Equal(p.b.mem[half:], want) {
		t.Error("what was written to device memory is not what was read back")
	}
	p.holds("written", want)
	// From device memory to host memory by a Write, then by a Read.
	clear(p.b.mem)
	out := rdma.WR{Op: rdma.OpWrite, Local: p.region, Len: half, RKey: p.b.mr.RKey(), RemoteAddr: p.b.mr.Addr(), Quiet: true}
	in := rdma.WR{Op: rdma.OpRead, Local: p.region, Offset: half, Len: half, RKey: p.b.mr.RKey(), RemoteAddr: p.b.mr.Addr()}
	p.b.postTo(loop, out, in)
	p.b.await("the Done", func() bool { return len(p.b.of(loop).dones) == 2 })
	if !bytes.Equal(p.b.mem[:half], want) {
		t.Error("what was written from device memory is not what is there")
	}
	p.holds("read into", append(bytes.Clone(want), want...))
}

// testDeviceRegistrations checks that one buffer can be registered several times, whole
// and in part, each independent of the others.
func testDeviceRegistrations(t *testing.T, s *suite, memory DeviceMemory) {
	p := s.devicePair(t, memory, 4*devicePageBytes, rdma.RemoteWrite)
	keys := map[uint32]bool{p.region.RKey(): true}
	for i := range 8 {
		mr := p.b.register(p.buffer, i%3*devicePageBytes, (i%4+1)*devicePageBytes, rdma.RemoteWrite)
		if keys[mr.RKey()] {
			t.Errorf("key %#x given twice", mr.RKey())
		}
		keys[mr.RKey()] = true
		if i%2 == 1 {
			continue // the rail closes it
		}
		for range 2 {
			if err := mr.Close(); err != nil {
				t.Errorf("close region: %v", err)
			}
		}
	}
	fill(p.a.mem, 1)
	p.a.post(withImm(p.aimed(rdma.OpWrite, 0, p.n), 1))
	p.b.await("the immediate", func() bool { return len(p.b.got().imms) == 1 })
	p.holds("written", p.a.mem)
}

// testDeviceRegionRefused checks that a region that cannot be registered is
// refused, and that no descriptor leaks.
func testDeviceRegionRefused(t *testing.T, s *suite, memory DeviceMemory) {
	p := s.devicePair(t, memory, devicePageBytes, rdma.RemoteWrite)
	cases := []struct {
		name   string
		dmaBuf bool // only for a region with a descriptor
		spoil  func(r *rdma.Region)
	}{
		{"NoBytes", false, func(r *rdma.Region) { r.Len = 0 }},
		{"NoAddress", false, func(r *rdma.Region) { r.Addr = 0 }},
		{"WrapsAround", false, func(r *rdma.Region) { r.Addr = ^uint64(0) - devicePageBytes + 1; r.Len = 2 * devicePageBytes }},
		{"NotCongruent", true, func(r *rdma.Region) { r.DMABufOffset += 64 }},
		{"BehindTheEnd", true, func(r *rdma.Region) { r.Len += deviceMargin + devicePageBytes }},
		{"OffsetWrapsAround", true, func(r *rdma.Region) { r.DMABufOffset = ^uint64(0) - devicePageBytes + 1; r.Len = 2 * devicePageBytes }},
	}
	for _, c := range cases {
		r := part(t, p.buffer, deviceMargin, devicePageBytes)
		c.spoil(&r)
		if !c.dmaBuf || r.DMABufFD >= 0 {
			if mr, err := p.b.rail.Register(r, rdma.RemoteWrite); err == nil {
				t.Errorf("%s: %+v was registered as %#x", c.name, r, mr.RKey())
			}
		}
		closeExport(t, r)
	}
	p.a.post(withImm(p.aimed(rdma.OpWrite, 0, p.n), 1))
	p.b.await("an immediate after that", func() bool { return len(p.b.got().imms) == 1 })
}
