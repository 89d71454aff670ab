package xfer_test

import (
	"context"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// holding is what this process holds that a copy may forget to give back.
type holding struct {
	goroutines, descriptors int
	registeredBytes         int64 // at both ends
}

// leaky is a server, and what its clients copy.
type leaky struct {
	*served
	w               way
	dir             string // has a file and a tree, like the server's root
	registeredBytes atomic.Int64
	// failsToRegister is how many rings of the server are refused.
	failsToRegister atomic.Int64
	copies          atomic.Int64
}

func newLeaky(t *testing.T, w way) *leaky {
	l := &leaky{w: w, dir: t.TempDir()}
	at := w
	at.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Registered: l.registered, Register: l.refuse})
	l.served = serve(t, at, func(c *xfer.ServerConfig) {
		c.Log = func(xfer.SessionEnd) {} // thousands of them
		// Memory that a session does not give back would leave too little for others.
		c.MaxMemory = 256 << 20
	})
	for _, dir := range []string{l.dir, l.root} {
		write(t, filepath.Join(dir, "f"), randomBytes(t, 5<<20+1))
		for i := range 20 {
			write(t, filepath.Join(dir, "tree", fmt.Sprint(i)), randomBytes(t, i*1000))
		}
	}
	return l
}

func (l *leaky) registered(bytes int) { l.registeredBytes.Add(int64(bytes)) }

func (l *leaky) refuse(rdma.Region, rdma.Access) error {
	for n := l.failsToRegister.Load(); n > 0; n = l.failsToRegister.Load() {
		if l.failsToRegister.CompareAndSwap(n, n-1) {
			return rdma.ErrLockedMemory
		}
	}
	return nil
}

func (l *leaky) held(t *testing.T) holding {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return holding{runtime.NumGoroutine(), len(open), l.registeredBytes.Load()}
}

// exceeds reports whether any of it is more than before.
func (h holding) exceeds(before holding) bool {
	return h.goroutines > before.goroutines || h.descriptors > before.descriptors || h.registeredBytes != before.registeredBytes
}

// good makes a copy of some kind, which must succeed.
func (l *leaky) good(t *testing.T, rng *rand.Rand) {
	to := fmt.Sprintf("copy%d", l.copies.Add(1))
	o := l.w.options(t)
	o.Slots, o.Encrypt, o.QPs = 2, rng.IntN(2) == 0, 1+rng.IntN(2)
	f := rdmatest.Faults{Registered: l.registered}
	c, ctx := l.w.client(f), t.Context()
	var err error
	switch rng.IntN(5) {
	case 0:
		_, err = c.Push(ctx, []string{filepath.Join(l.dir, "f")}, l.ep, to, o)
	case 1:
		_, err = c.Push(ctx, []string{filepath.Join(l.dir, "tree")}, l.ep, to, o)
	case 2:
		_, err = c.Pull(ctx, l.ep, []string{"tree"}, filepath.Join(l.dir, to), o)
	case 3:
		_, err = l.pushStream(t, l.w, f, make([]byte, 100_000), 0, to, l.w.streamOptions(t))
	default:
		_, err = c.BenchBandwidth(ctx, l.ep, 1<<20, o)
	}
	if err != nil {
		t.Errorf("%s: %v", to, err)
	}
	l.forget(t, to)
}

// forget removes what a copy made at either end.
func (l *leaky) forget(t *testing.T, name string) {
	for _, dir := range []string{l.dir, l.root} {
		if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

// bad makes a copy of some kind, which must fail or be damaged.
func (l *leaky) bad(t *testing.T, rng *rand.Rand) {
	to := fmt.Sprintf("copy%d", l.copies.Add(1))
	defer l.forget(t, to)
	o := l.w.options(t)
	o.Slots, o.Encrypt, o.QPs, o.NoResume = 2, rng.IntN(2) == 0, 1+rng.IntN(2), true
	o.Report = nil
	at, ctx, f := l.ep, t.Context(), rdmatest.Faults{Registered: l.registered}
	from, push := filepath.Join(l.dir, "f"), true
	nth := 1 + rng.IntN(10) // of what a copy posts, or sees completed
	switch rng.IntN(8) {
	case 0:
		at.Key = trust.Key{ID: "nobody"}
	case 1:
		push, from = false, "none"
	case 2:
		to += "/none/here"
	case 3:
		var n atomic.Int64
		f.Drop = func(rdmatest.Posted) bool { return int(n.Add(1)) >= nth }
	case 4:
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(ctx)
		defer cancel()
		f.Delay = func(rdma.Completion) time.Duration {
			if nth--; nth == 0 { // only the poller's
				cancel()
			}
			return 0
		}
	case 5:
		f.Register = func(rdma.Region, rdma.Access) error { return rdma.ErrLockedMemory }
	case 6:
		f.Corrupt = func(p rdmatest.Posted) (int, bool) { return 80, isHeader(p) }
	default:
		l.strangers(t, rng)
		return
	}
	c := l.w.client(f)
	var err error
	if push {
		_, err = c.Push(ctx, []string{from}, at, to, o)
	} else {
		_, err = c.Pull(ctx, at, []string{from}, filepath.Join(l.dir, to), o)
	}
	if err == nil && f.Delay == nil { // an interrupt may come too late
		t.Errorf("%s did not fail", to)
	}
}

// strangers connect, send something or nothing, and disconnect; and a ring of the server's is
// refused.
func (l *leaky) strangers(t *testing.T, rng *rand.Rand) {
	if l.w.provider.Name() == "tcp" {
		c, err := net.Dial("tcp", l.ep.String())
		if err != nil {
			t.Error(err)
			return
		}
		_, _ = io.CopyN(c, rand.NewChaCha8([32]byte{byte(rng.Uint32())}), int64(rng.IntN(300))) // it may hang up
		c.Close()
	}
	o := l.w.options(t)
	o.Slots, o.Report = 2, nil
	l.failsToRegister.Add(1)
	// Another copy may get the refusal instead, and fails then.
	_, _ = l.w.client(rdmatest.Faults{Registered: l.registered}).BenchBandwidth(t.Context(), l.ep, 1<<20, o)
	l.failsToRegister.Store(0)
}

// TestNothingIsLeaked: after 1000 failed and 1000 good copies (GDRCP_TEST_FULL=1) both
// ends have the goroutines, descriptors and registered bytes that they had before.
func TestNothingIsLeaked(t *testing.T) { over(t, testNothingIsLeaked) }

func testNothingIsLeaked(t *testing.T, w way) {
	each, atOnce := 40, 4
	switch {
	case w.slow > 1: // an emulated device
		each, atOnce = 4, 1
	case os.Getenv("GDRCP_TEST_FULL") == "1":
		each = 1000
	case testing.Short():
		each = 20
	}
	l := newLeaky(t, w)
	copies := func(n int, one func(*testing.T, *rand.Rand), atOnce int) {
		var g sync.WaitGroup
		for worker := range atOnce {
			h := fnv.New64a()
			fmt.Fprint(h, os.Getenv(rdmatest.Seed), t.Name(), n)
			rng := rand.New(rand.NewPCG(h.Sum64(), uint64(worker)))
			g.Go(func() {
				for range n / atOnce {
					one(t, rng)
				}
			})
		}
		g.Wait()
	}
	// Things that remain once they exist, such as idle connections of the runtime, are not leaked.
	copies(atOnce, l.good, atOnce)
	before := l.settled(t, holding{})
	copies(each, l.good, atOnce)
	copies(each, l.bad, 1) // a refused ring must be that of the copy that asked for it
	after := l.settled(t, before)
	t.Logf("%d copies: %+v before, %+v after", 2*each, before, after)
	if after.exceeds(before) {
		stacks := make([]byte, 1<<20)
		t.Errorf("%+v before, %+v after\n%s", before, after, stacks[:runtime.Stack(stacks, true)])
	}
}

// settled waits until ended sessions have given back what they had: until no more is held than
// before or, if before is empty, nothing changes.
func (l *leaky) settled(t *testing.T, before holding) (now holding) {
	t.Helper()
	limit := rdmatest.Stretch(xfer.AbortWait + l.w.timeouts().Linger + l.w.timeouts().Handshake)
	same := 0
	for end := time.Now().Add(limit); time.Now().Before(end) && same < 20; time.Sleep(20 * time.Millisecond) {
		last := now
		now = l.held(t)
		if (before == holding{} && now == last && now.registeredBytes == 0) || (before != holding{} && !now.exceeds(before)) {
			same++
		} else {
			same = 0
		}
	}
	return now
}
