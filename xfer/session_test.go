package xfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

func TestDamagedChunksAreSentAgain(t *testing.T) { over(t, testDamagedChunksAreSentAgain) }

func testDamagedChunksAreSentAgain(t *testing.T, w way) {
	for _, tc := range []struct {
		name    string
		corrupt func(rdmatest.Posted) (int, bool)
		comp    xfer.Compress
	}{
		{"payload", some(isPayload), xfer.CompressOff},
		{"header", some(isHeader), xfer.CompressOff},
		{"compressed", some(isPayload), xfer.CompressS2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			src, s := t.TempDir(), serve(t, w)
			makeTree(t, src)
			write(t, filepath.Join(src, "zeros"), make([]byte, 4<<20))
			o := w.options(t)
			o.Compress, o.Slots = tc.comp, 4
			sum, err := w.client(rdmatest.Faults{Corrupt: tc.corrupt}).Push(t.Context(), []string{src}, s.ep, "copy", o)
			if err != nil {
				t.Fatal(err)
			}
			sameTree(t, src, filepath.Join(s.root, "copy"))
			if end := s.lastEnd(t, 1); end.Summary.Repairs == 0 || !sum.Verified {
				t.Errorf("nothing was repaired: %+v", end.Summary)
			} else if sum.Repairs != end.Summary.Repairs {
				t.Errorf("the server counts %d repairs, and the client %d", end.Summary.Repairs, sum.Repairs)
			} else if sum.WireBytes != end.Summary.WireBytes {
				t.Errorf("the server counts %d bytes on the wire, and the client %d", end.Summary.WireBytes, sum.WireBytes)
			}
		})
	}
}

func TestPieceThatNeverArrivesWhole(t *testing.T) { over(t, testPieceThatNeverArrivesWhole) }

func testPieceThatNeverArrivesWhole(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	// The end of the bad file is sent with the good one, and alone when it is sent again. Its
	// length distinguishes it from other payloads.
	const tail = 777_777
	write(t, filepath.Join(src, "bad"), randomBytes(t, 1<<20+tail))
	write(t, filepath.Join(src, "good"), randomBytes(t, 100))
	f := rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) {
		return 100, isPayload(p) && p.WR.Len >= tail && p.WR.Len < tail+1000
	}}
	sum, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", w.options(t))
	if err != nil {
		t.Fatal(err)
	}
	if sum.Corrupt != 1 || sum.Files != 1 || !sum.Verified {
		t.Errorf("summary: %+v", sum)
	}
	notPublished(t, s.root, "copy/bad")
}

func TestHeaderThatNeverArrivesWhole(t *testing.T) { over(t, testHeaderThatNeverArrivesWhole) }

func testHeaderThatNeverArrivesWhole(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	write(t, filepath.Join(src, "f"), randomBytes(t, 3<<20))
	f := rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) { return 80, isHeader(p) }}
	_, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", w.options(t))
	if !errors.Is(err, xfer.ErrIntegrity) {
		t.Errorf("got %v", err)
	}
	onlyPartials(t, s.root)
}

// A header has attempts of its own: those of the pieces that came with it do not count, nor do
// those of headers before one that arrived.
func TestHeadersAndPiecesHaveTriesOfTheirOwn(t *testing.T) {
	over(t, testHeadersAndPiecesHaveTriesOfTheirOwn)
}

func testHeadersAndPiecesHaveTriesOfTheirOwn(t *testing.T, w way) {
	for name, tc := range map[string]struct{ header, payload func(n int64) bool }{
		"a header after three pieces": {func(n int64) bool { return n == 4 }, func(n int64) bool { return n <= 3 }},
		"three headers each time":     {func(n int64) bool { return n%4 != 0 }, func(n int64) bool { return n < 16 }},
		"pieces after three headers":  {func(n int64) bool { return n <= 3 }, func(n int64) bool { return n <= 6 }},
	} {
		t.Run(name, func(t *testing.T) {
			src, s := t.TempDir(), serve(t, w)
			write(t, filepath.Join(src, "f"), randomBytes(t, 1<<20))
			var headers, payloads atomic.Int64
			o := w.options(t)
			o.Compress, o.Slots = xfer.CompressOff, 4
			sum, err := w.client(rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) {
				switch {
				case isHeader(p):
					return 80, tc.header(headers.Add(1))
				case isPayload(p):
					return 100, tc.payload(payloads.Add(1))
				}
				return 0, false
			}}).Push(t.Context(), []string{src}, s.ep, "copy", o)
			if err != nil {
				t.Fatalf("%v, after %d headers and %d payloads", err, headers.Load(), payloads.Load())
			}
			if sum.Files != 1 || !sum.Verified {
				t.Errorf("%+v", sum)
			}
			sameTree(t, src, filepath.Join(s.root, "copy"))
		})
	}
}

func TestConnectionLostOnTheWay(t *testing.T) { over(t, testConnectionLostOnTheWay) }

func testConnectionLostOnTheWay(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	write(t, filepath.Join(src, "f"), randomBytes(t, 30<<20))
	var n atomic.Int64
	// Also of the connections that replace the first one.
	f := rdmatest.Faults{Drop: func(p rdmatest.Posted) bool { return isPayload(p) && n.Add(1) >= 10 }}
	_, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", w.options(t))
	if err == nil || !strings.Contains(err.Error(), "lost") {
		t.Errorf("got %v", err)
	}
	if end := s.lastEnd(t, 1); end.Err == nil {
		t.Error("the server noticed nothing")
	}
	notPublished(t, s.root, "copy/f")
}

func TestSilentPeer(t *testing.T) {
	rdmatest.BesideOthers(t)
	over(t, testSilentPeer)
}

func testSilentPeer(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w, func(c *xfer.ServerConfig) { c.Timeouts.Silence = 5 * time.Second })
	write(t, filepath.Join(src, "f"), randomBytes(t, 30<<20))
	var n atomic.Int64
	f := rdmatest.Faults{Stall: func(p rdmatest.Posted) bool { return isPayload(p) && n.Add(1) == 10 }}
	o := w.options(t)
	o.Timeouts.Silence = time.Second
	start := time.Now()
	_, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", o)
	if !errors.Is(err, xfer.ErrPeerSilent) {
		t.Errorf("got %v", err)
	}
	if took := time.Since(start); took > rdmatest.Stretch(o.Timeouts.Silence+xfer.AbortWait) {
		t.Errorf("it took %v to notice", took)
	}
	if end := s.lastEnd(t, 1); end.Err == nil {
		t.Error("the server noticed nothing")
	}
	onlyPartials(t, s.root)
}

func TestInterrupted(t *testing.T) { over(t, testInterrupted) }

func testInterrupted(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	write(t, filepath.Join(src, "f"), randomBytes(t, 24<<20))
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int64
	f := rdmatest.Faults{Delay: func(c rdma.Completion) time.Duration {
		if n.Add(1) == 20 {
			cancel()
		}
		return 0
	}}
	_, err := w.client(f).Push(ctx, []string{src}, s.ep, "copy", w.options(t))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	end := s.lastEnd(t, 1)
	if !errors.Is(end.Err, xfer.ErrPeerStopped) && !errors.Is(end.Err, rdma.ErrDisconnected) {
		t.Errorf("the server was told %v", end.Err)
	}
	notPublished(t, s.root, "copy/f")
}

func TestLockedMemory(t *testing.T) { over(t, testLockedMemory) }

func testLockedMemory(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	write(t, filepath.Join(src, "f"), randomBytes(t, 1<<20))
	f := rdmatest.Faults{Register: func(rdma.Region, rdma.Access) error { return rdma.ErrLockedMemory }}
	_, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", w.options(t))
	if !errors.Is(err, rdma.ErrLockedMemory) {
		t.Errorf("got %v", err)
	}
}

// Memory to send from is registered once, and without rights that cost more.
func TestSourceRingIsOnlyRead(t *testing.T) { over(t, testSourceRingIsOnlyRead) }

func testSourceRingIsOnlyRead(t *testing.T, w way) {
	src, s := t.TempDir(), serve(t, w)
	write(t, filepath.Join(src, "f"), randomBytes(t, 1<<20))
	var mu sync.Mutex
	var rights []rdma.Access
	f := rdmatest.Faults{Register: func(_ rdma.Region, a rdma.Access) error {
		mu.Lock()
		defer mu.Unlock()
		rights = append(rights, a)
		return nil
	}}
	if _, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", w.options(t)); err != nil {
		t.Fatal(err)
	}
	if want := []rdma.Access{rdma.LocalRead | rdma.Unordered, rdma.LocalRead}; !slices.Equal(rights, want) {
		t.Errorf("the payload and headers of the source's ring were registered with %v, want %v", rights, want)
	}
}

func TestStrangers(t *testing.T) {
	xfer.OnHost(t)
	for _, tc := range []struct {
		name  string
		serve func(net.Conn)
		want  error
	}{
		{"garbage", func(c net.Conn) { c.Write(bytes.Repeat([]byte("SSH-2.0-"), 100)) }, rdma.ErrNotGdrcp},
		{"hangs up", func(net.Conn) {}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			go func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					tc.serve(c)
					c.Close()
				}
			}()
			f := filepath.Join(t.TempDir(), "f")
			write(t, f, []byte("x"))
			ep := xfer.Endpoint{Host: "127.0.0.1", Port: uint16(l.Addr().(*net.TCPAddr).Port), Key: trust.Key{ID: "test"}}
			_, err = tcpWay(t).client(rdmatest.Faults{}).Push(t.Context(), []string{f}, ep, "x", tcpWay(t).options(t))
			if err == nil || (tc.want != nil && !errors.Is(err, tc.want)) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// An end reads the reason for the end of a session before the end of queue pairs that are faster.
func TestReasonArrivesBeforeTheEnd(t *testing.T) {
	w := tcpWay(t)
	fails := rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) { return 80, isHeader(p) }} // the source fails
	for _, pushed := range []bool{true, false} {
		t.Run(fmt.Sprintf("push %t", pushed), func(t *testing.T) {
			there, client := w, w.client(rdmatest.Faults{})
			if pushed {
				client = w.client(fails)
			} else {
				there.provider = rdmatest.Faulty(w.provider, fails)
			}
			s, o, file := serve(t, there), w.options(t), filepath.Join(t.TempDir(), "f")
			if !pushed {
				file = filepath.Join(s.root, "f")
			}
			write(t, file, randomBytes(t, 3<<20))
			o.QPs = 4
			ep := relayed(t, s.ep, func(nth int, _ []byte) {
				if nth == 1 {
					time.Sleep(20 * time.Millisecond) // a slow connection, not an event
				}
			})
			var err error
			if pushed {
				_, _ = client.Push(t.Context(), []string{file}, ep, "copy", o)
				err = s.lastEnd(t, 1).Err
			} else {
				_, err = client.Pull(t.Context(), ep, []string{"f"}, t.TempDir(), o)
			}
			if remote := new(xfer.RemoteError); !errors.As(err, &remote) || remote.Class != xfer.ClassIntegrity {
				t.Errorf("got %v", err)
			}
		})
	}
}
