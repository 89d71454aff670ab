//go:build linux && cgo

package verbs

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"gdrcp/rdma"
)

func TestFit(t *testing.T) {
	cfg := rdma.RailConfig{Conns: 4, SendDepth: 32, RecvDepth: 60, MsgBytes: 64, WriteBytes: 1 << 20}
	const perWrite = 5 // four pieces and the Send that carries the immediate
	// For each two: one end with the shortest queue for 16 operations, one with
	// the greeting, and four receives each.
	const loopbacks = 2 * (17 + 4 + 1 + 4)
	cases := []struct {
		name           string
		change         func(*rdma.RailConfig)
		maxWR, maxCQE  int
		sends, entries int // 0: it must be refused
	}{
		{"Roomy", nil, 1 << 15, 1 << 20, 32*perWrite + 1, 4 * (32*perWrite + 1 + 64)},
		{"ShortQueue", nil, 100, 1 << 20, 100, 4 * (100 + 64)},
		{"FewEntries", nil, 1 << 15, 4 * 164, 100, 4 * 164},
		{"QueueTooShort", nil, 32, 1 << 20, 0, 0},
		{"TooFewEntries", nil, 1 << 15, 4 * (64 + 32), 0, 0},
		{"ReceivesAboveTheDevice", func(c *rdma.RailConfig) { c.RecvDepth = 200 }, 150, 1 << 20, 0, 0},
		{"LongestWriteBesideQuietOnes", func(c *rdma.RailConfig) { c.WriteBytes = 16 << 20 }, 80, 1 << 20, 0, 0},
		{"LongestWriteAboveTheDevice", func(c *rdma.RailConfig) { c.WriteBytes = 64 << 20 }, 256, 1 << 20, 0, 0},
		{"Loopbacks", func(c *rdma.RailConfig) { c.Loopbacks = 2 }, 1 << 15, 1 << 20, 32*perWrite + 1, 4*(32*perWrite+1+64) + loopbacks},
		{"LoopbacksTakeEntries", func(c *rdma.RailConfig) { c.Loopbacks = 2 }, 1 << 15, 4*164 + loopbacks, 100, 4*164 + loopbacks},
		{"LoopbackAboveTheDevice", func(c *rdma.RailConfig) { c.Loopbacks, c.SendDepth, c.RecvDepth, c.WriteBytes = 1, 1, 1, 1 }, 16, 1 << 20, 0, 0},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			cfg := cfg
			if c.change != nil {
				c.change(&cfg)
			}
			s := sizes{splitBytes: splitBytes}
			err := s.fit(cfg, c.maxWR, c.maxCQE)
			if (err == nil) != (c.sends > 0) {
				t.Fatalf("%+v: %v", s, err)
			}
			if err == nil && (s.conn.sends != c.sends || s.cqe != c.entries || s.conn.recvs != 64) {
				t.Errorf("%+v, want %d sends and %d entries", s, c.sends, c.entries)
			}
			if err == nil && s.cqe > c.maxCQE {
				t.Errorf("%d entries where the device has %d", s.cqe, c.maxCQE)
			}
		})
	}
}

func TestCheckConfig(t *testing.T) {
	good := rdma.RailConfig{Conns: 1, SendDepth: 1, RecvDepth: 1, MsgBytes: 1, WriteBytes: 1}
	if err := checkConfig(good); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*rdma.RailConfig){
		"Conns":      func(c *rdma.RailConfig) { c.Conns = 0 },
		"ManyConns":  func(c *rdma.RailConfig) { c.Conns = maxConns + 1 },
		"Loopbacks":  func(c *rdma.RailConfig) { c.Loopbacks = -1 },
		"ManyEnds":   func(c *rdma.RailConfig) { c.Loopbacks = maxConns / 2 },
		"SendDepth":  func(c *rdma.RailConfig) { c.SendDepth = -1 },
		"RecvDepth":  func(c *rdma.RailConfig) { c.RecvDepth = 0 },
		"MsgBytes":   func(c *rdma.RailConfig) { c.MsgBytes = rdma.MaxMsgBytes + 1 },
		"WriteBytes": func(c *rdma.RailConfig) { c.WriteBytes = maxWriteBytes + 1 },
	} {
		cfg := good
		change(&cfg)
		if checkConfig(cfg) == nil {
			t.Errorf("%s: %+v was taken", name, cfg)
		}
	}
}

// testQueue returns a send queue without a device, after the greeting.
func testQueue(depth, hwDepth int) (*sendQueue, *mr) {
	r := &rail{
		cfg:  rdma.RailConfig{SendDepth: depth, MsgBytes: 32, WriteBytes: 1 << 20},
		size: sizes{splitBytes: splitBytes},
	}
	s := &sendQueue{}
	s.init(r, depth+1, hwDepth, slices.Grow(s.ops, depth+1)[:depth+1], make([]byte, (depth+1)*64), 64)
	s.stageOwn() // the greeting
	return s, &mr{rail: r, len: 4 << 20, access: rdma.LocalWrite}
}

// post stages one work request without posting it.
func (s *sendQueue) post(wr rdma.WR) error {
	seq := s.posted.Load()
	err := s.stage(&wr, 0, seq, rdma.ImmWrite)
	if err == nil {
		s.posted.Store(seq + 1)
	}
	return err
}

func TestDepthCountsOperations(t *testing.T) {
	const depth = 8
	s, _ := testQueue(depth, 1000)
	send := rdma.WR{Op: rdma.OpSend, Msg: []byte("x")}
	for i := range depth {
		if err := s.post(send); err != nil {
			t.Fatalf("work request %d of %d beside the greeting: %v", i+1, depth, err)
		}
	}
	if err := s.post(send); !errors.Is(err, rdma.ErrQueueFull) {
		t.Fatalf("one more than the depth: %v", err)
	}
	s.complete(0) // completing the greeting makes no room for the engine
	if err := s.post(send); !errors.Is(err, rdma.ErrQueueFull) {
		t.Fatalf("one more than the depth, behind the greeting: %v", err)
	}
	s.complete(3)
	for i := range 3 {
		if err := s.post(send); err != nil {
			t.Fatalf("work request %d after three were done: %v", i, err)
		}
	}
	if err := s.post(send); !errors.Is(err, rdma.ErrQueueFull) {
		t.Errorf("one more: %v", err)
	}
}

// TestDeviceQueueNeverOverflows: long writes take several places of the device's queue.
func TestDeviceQueueNeverOverflows(t *testing.T) {
	s, m := testQueue(64, 10)
	long := rdma.WR{Op: rdma.OpWriteImm, Local: m, Len: 1 << 20} // four pieces
	for i := range 2 {
		if err := s.post(long); err != nil {
			t.Fatalf("write %d: %v", i, err)
		}
	}
	if err := s.post(long); !errors.Is(err, rdma.ErrQueueFull) {
		t.Fatalf("4 places where 1 is left: %v", err)
	}
	if err := s.post(rdma.WR{Op: rdma.OpWrite, Local: m, Len: 1}); err != nil {
		t.Fatalf("the last place: %v", err)
	}
	s.complete(1)
	if err := s.post(long); err != nil {
		t.Errorf("after one was done: %v", err)
	}
}

// TestQuietWorkIsSignalledNowAndThen: otherwise the queue would remain full for ever.
func TestQuietWorkIsSignalledNowAndThen(t *testing.T) {
	const depth = 16
	s, m := testQueue(depth, 1000)
	wr := rdma.WR{Op: rdma.OpWrite, Quiet: true, Local: m, Len: 8}
	for i := range uint32(10 * depth) {
		if err := s.post(wr); err != nil {
			t.Fatalf("quiet write %d: %v", i, err)
		}
		// The device immediately completes signalled work.
		if s.lastSignaled == s.posted.Load()-1 {
			if rec, ok := s.complete(s.toDevice(s.lastSignaled)); !ok || !rec.quiet {
				t.Fatalf("record of %d: %+v, %t", s.lastSignaled, rec, ok)
			}
		}
	}
}

// TestNumbersBeginAnew: a work request's id has room for 32 bits of the number.
// After a wrap-around, each operation still has its own record and buffer.
func TestNumbersBeginAnew(t *testing.T) {
	const depth = 128
	s, _ := testQueue(depth, 1000)
	s.complete(0)
	s.posted.Store(1<<32 - depth)
	s.done.Store(1<<32 - depth)
	for range 5 {
		first := s.posted.Load()
		for i := range uint64(depth) {
			if err := s.post(rdma.WR{Op: rdma.OpSend, ID: first + i, Msg: []byte{byte(i)}}); err != nil {
				t.Fatalf("operation %d: %v", first+i, err)
			}
		}
		for i := range uint64(depth) {
			seq := s.toDevice(first + i)
			at := int(seq) % (depth + 1) * s.stride // the formula of send_buffer in qp.c
			if got := s.buffers[at : at+s.stride]; !bytes.Contains(got, []byte{byte(i)}) {
				t.Errorf("the buffer of operation %d has %v", first+i, got)
			}
			if rec, ok := s.complete(seq); !ok || rec.id != first+i {
				t.Fatalf("operation %d, %d to the device: the record of %d, %t", first+i, seq, rec.id, ok)
			}
		}
		if s.done.Load() != s.posted.Load() {
			t.Fatalf("%d of %d are done", s.done.Load(), s.posted.Load())
		}
	}
	for _, foreign := range []uint32{s.toDevice(s.done.Load()), 1<<32 - 1} {
		if _, ok := s.complete(foreign); ok {
			t.Errorf("%d is taken, and nothing is under way", foreign)
		}
	}
}

// TestLongestAccessAlwaysFits: even in the shortest queue that fit allows,
// after any amount of quiet, unsignalled work.
func TestLongestAccessAlwaysFits(t *testing.T) {
	cfg := rdma.RailConfig{Conns: 1, SendDepth: 4, RecvDepth: 4, MsgBytes: 32, WriteBytes: 1 << 20}
	short := sizes{splitBytes: splitBytes}
	if err := short.fit(cfg, 1<<15, 1<<20); err != nil {
		t.Fatal(err)
	}
	quiet := rdma.WR{Op: rdma.OpWrite, Quiet: true, Len: 1}
	for n := range 3 * short.conn.leastSends {
		s, m := testQueue(64, short.conn.leastSends)
		quiet.Local = m
		s.complete(0) // the greeting
		for i := range n {
			if err := s.post(quiet); err != nil {
				t.Fatalf("quiet write %d: %v", i, err)
			}
			if s.lastSignaled == s.posted.Load()-1 {
				s.complete(s.toDevice(s.lastSignaled))
			}
		}
		if err := s.stage(&rdma.WR{Op: rdma.OpWriteImm, Local: m, Len: 1 << 20}, 0, s.posted.Load(), rdma.ImmSend); err != nil {
			t.Fatalf("the longest access behind %d quiet writes: %v", n, err)
		}
	}
}

func TestCompleteRefusesWhatIsNotUnderWay(t *testing.T) {
	s, _ := testQueue(4, 100)
	if err := s.post(rdma.WR{Op: rdma.OpSend, ID: 77}); err != nil {
		t.Fatal(err)
	}
	for _, seq := range []uint32{2, 3, 1 << 31, ^uint32(0)} {
		if _, ok := s.complete(seq); ok {
			t.Errorf("operation %d was never posted and completed", seq)
		}
	}
	if rec, ok := s.complete(1); !ok || rec.id != 77 {
		t.Errorf("operation 1: %+v, %t", rec, ok)
	}
	if _, ok := s.complete(1); ok {
		t.Error("operation 1 completed twice")
	}
}

func TestPostChecksArguments(t *testing.T) {
	s, m := testQueue(4, 100)
	foreign := &mr{rail: &rail{}, len: 100}
	gone := &mr{rail: m.rail, len: 100}
	gone.closed.Store(true)
	bare := &mr{rail: m.rail, len: 100}
	cases := map[string]rdma.WR{
		"Unknown":        {Op: 99},
		"Zero":           {},
		"MessageTooLong": {Op: rdma.OpSend, Msg: make([]byte, 33)},
		"NoRegion":       {Op: rdma.OpWrite, Len: 1},
		"Foreign":        {Op: rdma.OpWrite, Local: foreign, Len: 1},
		"Closed":         {Op: rdma.OpWrite, Local: gone, Len: 1},
		"NegativeLen":    {Op: rdma.OpWrite, Local: m, Len: -1},
		"NegativeOffset": {Op: rdma.OpWrite, Local: m, Offset: -1, Len: 1},
		"Behind":         {Op: rdma.OpWrite, Local: m, Offset: m.len, Len: 1},
		"Overflow":       {Op: rdma.OpWrite, Local: m, Offset: 1<<63 - 1, Len: 1 << 20},
		"TooLong":        {Op: rdma.OpWriteImm, Local: m, Len: 1<<20 + 1},
		"ReadIntoBare":   {Op: rdma.OpRead, Local: bare, Len: 1},
	}
	for name, wr := range cases {
		if err := s.post(wr); err == nil || errors.Is(err, rdma.ErrQueueFull) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.oneWay = true
	for _, op := range []rdma.Op{rdma.OpSend, rdma.OpWriteImm} {
		if err := s.post(rdma.WR{Op: op}); !errors.Is(err, rdma.ErrUnsupported) {
			t.Errorf("a loopback took work request %d: %v", op, err)
		}
	}
	if s.posted.Load() != 1 {
		t.Errorf("%d operations were counted", s.posted.Load()-1)
	}
}
