package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// heapPeak samples the heap until stop is called, which returns how much it grew at most.
func heapPeak() (stop func() (bytes int64)) {
	heap := func() int64 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	runtime.GC()
	before := heap()
	var peak atomic.Int64
	end := make(chan struct{})
	var sampler sync.WaitGroup
	sampler.Go(func() {
		for {
			peak.Store(max(peak.Load(), heap()))
			select {
			case <-end:
				return
			case <-time.After(10 * time.Millisecond):
			}
		}
	})
	return func() int64 {
		close(end)
		sampler.Wait()
		return peak.Load() - before
	}
}

// counter is a source that receives results, and nothing else.
type counter struct {
	settled atomic.Uint64
	moved   chan struct{}
}

func (*counter) Done(*link.Link, uint64)            {}
func (*counter) Opened()                            {}
func (*counter) Immediate(*link.Link, uint32) error { return nil }

func (l *counter) Fast(f *wire.Frame) (bool, error) {
	if f.Type != wire.MsgResult {
		return true, nil
	}
	upto, _, err := wire.DecodeResult(f.Body)
	l.settled.Store(upto)
	select {
	case l.moved <- struct{}{}:
	default:
	}
	return true, err
}

// Any number of entries that arrive as fast as they can, and that all fail immediately, take no
// more memory than their window.
func TestHostileMillionEntries(t *testing.T) {
	OnHost(t)
	n := uint64(100_000)
	switch {
	case os.Getenv("GDRCP_TEST_FULL") == "1":
		n = 1_000_000
	case testing.Short():
		n = 5 * entryWindow
	}
	_, addr, ends := hostileServer(t)
	peak := heapPeak()
	start := time.Now()
	settled := uint64(0)
	err := hostile(t, addr, wire.ModePush, "x", func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		l := &counter{moved: make(chan struct{}, 1)}
		var r link.Role = l
		s.Role.Store(&r)
		total := wire.Totals{Entries: n}
		if err := s.Ctl.Send(ctx, wire.MsgTotal, total.Encode()); err != nil {
			return err
		}
		var scratch wire.Writer
		for next := uint64(0); settled < n; settled = l.settled.Load() {
			body := binary.AppendUvarint(nil, next)
			empty := len(body)
			for ; next < n && len(body) < wire.MaxBodyBytes-200 && next < settled+entryWindow; next++ {
				e := dirAt(".")
				if next > 0 {
					e = linkTo(fmt.Sprintf("nowhere/%032d", next), "x")
				}
				body = wire.AppendEntry(body, &e, &scratch)
			}
			if len(body) > empty {
				if err := s.Ctl.Send(ctx, wire.MsgEntries, body); err != nil {
					return err
				}
				continue
			}
			select {
			case <-l.moved: // the results of some admit others
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return errors.New("enough")
	})
	<-ends
	if settled != n {
		t.Errorf("%d of %d entries were settled: %v", settled, n, err)
	}
	grew := peak()
	t.Logf("%d entries in %v; the heap of both ends grew by %d MiB", n, time.Since(start).Round(time.Millisecond), grew>>20)
	if grew > 64<<20 {
		t.Errorf("%d entries took %d MiB", n, grew>>20)
	}
}

// More entries than the window has are refused, even if nothing can be done about them yet.
func TestHostileEntriesBeyondTheWindow(t *testing.T) {
	OnHost(t)
	_, addr, ends := hostileServer(t)
	_ = hostile(t, addr, wire.ModePush, "x", func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		var r link.Role = &counter{moved: make(chan struct{}, 1)}
		s.Role.Store(&r)
		body, scratch := []byte{0}, wire.Writer{}
		for next := uint64(0); next < 4*entryWindow; body = binary.AppendUvarint(nil, next) {
			for range 100 {
				e := fileAt(fmt.Sprintf("%08d", next), 1)
				body = wire.AppendEntry(body, &e, &scratch)
				next++
			}
			if err := s.Ctl.Send(ctx, wire.MsgEntries, body); err != nil {
				return err
			}
		}
		return errors.New("it takes them all")
	})
	if end := <-ends; !errors.Is(end.Err, ErrProtocol) {
		t.Errorf("the session ended by %v", end.Err)
	}
}
