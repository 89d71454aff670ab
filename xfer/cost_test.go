package xfer_test

import (
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

func TestCostIsTold(t *testing.T) { over(t, testCostIsTold) }

// The client's summary has both ends' costs, in both directions, and so has the result of a bench.
func testCostIsTold(t *testing.T, w way) {
	s, src := serve(t, w), filepath.Join(t.TempDir(), "file")
	write(t, src, randomBytes(t, 4<<20))
	c := w.client(rdmatest.Faults{})
	check := func(what string, local xfer.Cost, remote *xfer.Cost) {
		t.Helper()
		if local.Digests <= 0 || what != "bench" && local.Disk <= 0 || remote != nil && (remote.Digests <= 0 || what != "bench" && remote.Disk <= 0) {
			t.Errorf("%s: here %+v, there %+v", what, local, remote)
		}
		if local.CPU <= 0 || local.Shared || remote == nil || remote.CPU <= 0 || remote.Shared {
			t.Errorf("%s: here %+v, there %+v", what, local, remote)
		}
	}
	pushed, err := c.Push(t.Context(), []string{src}, s.ep, "file", w.options(t))
	if err != nil {
		t.Fatal(err)
	}
	check("push", pushed.LocalCost, pushed.RemoteCost)
	pulled, err := c.Pull(t.Context(), s.ep, []string{"file"}, filepath.Join(t.TempDir(), "back"), w.options(t))
	if err != nil {
		t.Fatal(err)
	}
	check("pull", pulled.LocalCost, pulled.RemoteCost)
	o := w.options(t)
	o.Hash = manifest.XXH3
	bench, err := c.BenchBandwidth(t.Context(), s.ep, 4<<20, o)
	if err != nil {
		t.Fatal(err)
	}
	check("bench", bench.LocalCost, bench.RemoteCost)
}

// The wait that a bench reports is within the time that it measures. Making the client's ring takes
// far longer than the one chunk.
func TestCostOfBenchIsOfItsTime(t *testing.T) {
	w := tcpWay(t)
	s, o := serve(t, w), w.options(t)
	o.Slots, o.ChunkBytes = 64, 1<<20
	r, err := w.client(rdmatest.Faults{}).BenchBandwidth(t.Context(), s.ep, 1<<20, o)
	if err != nil {
		t.Fatal(err)
	}
	if r.RemoteCost == nil || r.RemoteCost.Wire.Seconds() > r.Seconds {
		t.Errorf("in %v s the server waited for %+v", r.Seconds, r.RemoteCost)
	}
}

// A server that moves data for another client meanwhile says that it reports a share.
func TestCostBesideAnother(t *testing.T) {
	xfer.OnHost(t)
	w := tcpWay(t)
	s, src := serve(t, w), filepath.Join(t.TempDir(), "file")
	write(t, src, randomBytes(t, 4<<20))
	// The slow copy continues after the fast one, which begins meanwhile, has ended.
	in, ended := newStream(), make(chan struct{})
	go func() {
		_, _ = in.PipeWriter.Write(make([]byte, 2<<20))
		<-ended
		_, _ = in.PipeWriter.Write(make([]byte, 2<<20))
		in.PipeWriter.Close()
	}()
	type result struct {
		sum *xfer.Summary
		err error
	}
	done := make(chan result, 1)
	go func() {
		sum, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), in, s.ep, "slow", w.streamOptions(t))
		done <- result{sum, err}
	}()
	for s.server.Totals().Sum.WireBytes == 0 {
		select {
		case r := <-done:
			t.Fatalf("the slow copy was over before any of it was counted: %v", r.err)
		case <-time.After(time.Millisecond):
		}
	}
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "quick", w.options(t)); err != nil {
		t.Fatal(err)
	}
	close(ended)
	r := <-done
	if r.err != nil {
		t.Fatal(r.err)
	}
	if c := r.sum.RemoteCost; c == nil || !c.Shared || c.CPU <= 0 {
		t.Errorf("beside another copy %+v", c)
	}
}

func TestCostTellsWhatHoldsUp(t *testing.T) { over(t, testCostTellsWhatHoldsUp) }

// A slow sink shows at the source as waiting for slots, and a slow source shows at the sink as
// waiting for the wire.
func testCostTellsWhatHoldsUp(t *testing.T, w way) {
	s, src := serve(t, w), filepath.Join(t.TempDir(), "file")
	const bytes = 16 << 20
	write(t, src, randomBytes(t, bytes))
	o := w.options(t)
	o.BytesPerSecond, o.Slots, o.ChunkBytes = bytes/4, 2, 1<<20
	if w.slow > 1 {
		o.BytesPerSecond = bytes / 6 // far less than an emulated device moves on a busy machine
	}
	most := func(what string, spent time.Duration, others ...time.Duration) {
		t.Helper()
		if spent < time.Second || slices.Max(others) > spent/2 {
			t.Errorf("%s: %v, others %v", what, spent, others)
		}
	}
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "file", o)
	if err != nil {
		t.Fatal(err)
	}
	if here, there := sum.LocalCost, sum.RemoteCost; there != nil {
		most("the sink of a slow source waits for the wire", there.Wire, there.Slots, there.Disk, there.Digests, here.Slots)
	}
	// With one slot, the wait of the source begins when its only chunk is given to a worker.
	for _, slots := range []int{2, 1} {
		o.Slots = slots
		if sum, err = w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"file"}, filepath.Join(t.TempDir(), "back"), o); err != nil {
			t.Fatal(err)
		}
		if there := sum.RemoteCost; there != nil {
			most("the source of a slow sink waits for slots", there.Slots, there.Wire, there.Disk, there.Digests, sum.LocalCost.Wire)
		}
	}
}

// The wait of a stream is reported like that of files: its writer as the disk, and a slow sink as
// slots.
func TestCostOfStream(t *testing.T) {
	w := tcpWay(t)
	const bytes, rate = 16 << 20, 8 << 20
	s := serve(t, w, func(c *xfer.ServerConfig) { c.Limit = xfer.NewLimiter(rate) })
	push := func(in stream) xfer.Cost {
		t.Helper()
		o := w.streamOptions(t)
		o.Slots, o.ChunkBytes = 2, 1<<20
		sum, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), in, s.ep, "file", o)
		if err != nil {
			t.Fatal(err)
		}
		return sum.LocalCost
	}
	quick := newStream()
	go func() {
		_, _ = quick.PipeWriter.Write(make([]byte, bytes))
		quick.PipeWriter.Close()
	}()
	if c := push(quick); c.Slots < time.Second || c.Disk+c.Wire > c.Slots/2 {
		t.Errorf("a slow sink: %+v", c)
	}
	late := newStream()
	time.AfterFunc(time.Second, func() { late.PipeWriter.Close() })
	if c := push(late); c.Disk < time.Second/2 || c.Slots+c.Wire > c.Disk/2 {
		t.Errorf("a slow writer: %+v", c)
	}
}
