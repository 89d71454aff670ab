package xfer

import (
	"bytes"
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/credit/credittest"
	"gdrcp/xfer/internal/link"
)

// recorder collects the steps of both ends of one session, in the order in which they were taken.
type recorder struct {
	mu    sync.Mutex
	steps []credit.Step
}

// of returns the trace of one end.
func (r *recorder) of(sink bool) link.Trace {
	return func(s credit.Step) {
		if s.Kind == credit.StepSaid || s.Kind == credit.StepTook {
			s.Sink = sink
		}
		r.mu.Lock()
		r.steps = append(r.steps, s)
		r.mu.Unlock()
	}
}

// The steps of both ends of real copies whose rails fail, fall silent and come back obey the rules:
// see package credittest, which knows nothing of the engine.
func TestLostRailsFollowTheRules(t *testing.T) {
	t.Parallel()
	OnHost(t)
	for _, push := range []bool{true, false} {
		for name, f := range map[string]func(dies func(rdmatest.Posted) bool) rdmatest.Faults{
			"dropped": func(dies func(rdmatest.Posted) bool) rdmatest.Faults { return rdmatest.Faults{Drop: dies} },
			"silent":  func(dies func(rdmatest.Posted) bool) rdmatest.Faults { return rdmatest.Faults{Stall: dies} },
		} {
			t.Run(fmt.Sprintf("push %v, %s", push, name), func(t *testing.T) {
				t.Parallel()
				// The rails fail in turn, each a while after the next one has joined.
				var last atomic.Int64
				faults := f(func(p rdmatest.Posted) bool {
					last.Store(max(last.Load(), int64(p.Conn)))
					return p.Conn >= 2 && p.Conn <= 4 && int64(p.Conn) < last.Load() && p.Nth > 8
				})
				testTrace(t, push, rdmatest.Faulty(tcp.New(), faults))
			})
		}
	}
}

func testTrace(t *testing.T, push bool, p rdma.Provider) {
	var r recorder
	// No chunk is sent until there is a second rail.
	var once sync.Once
	joined := make(chan struct{})
	hold := rdmatest.Faults{Stall: func(p rdmatest.Posted) bool {
		if p.WR.Op == rdma.OpWriteImm && p.WR.Len > 0 {
			select {
			case <-joined:
			case <-time.After(rdmatest.Stretch(link.AbortWait)):
			}
		}
		return false
	}}
	root := t.TempDir()
	v := NewServer(ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(root)}), Timeouts: shortTimeouts(), trace: r.of(push)})
	ep := listenTwice(t, v, rdmatest.Faulty(tcp.New(), hold))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	data := bytes.Repeat([]byte("0123456789abcdef"), 4<<20)
	o := Options{Transport: "tcp", Timeouts: shortTimeouts(), Rails: AllRails, BytesPerSecond: 40 << 20, trace: r.of(!push), Report: func(e Event) {
		if e.Kind == EventRailJoined {
			once.Do(func() { close(joined) })
		}
	}}
	c := &Client{TCP: rdmatest.Faulty(p, hold)}
	sum, err := copyFile(t, c, ep, root, push, data, o)
	if err != nil {
		t.Fatal(err)
	}
	faults := 0
	for _, use := range sum.Rails {
		faults += use.Faults
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := credittest.CheckEnded(r.steps); err != nil || faults == 0 {
		t.Errorf("%d steps, %d losses: %v", len(r.steps), faults, err)
	}
}
