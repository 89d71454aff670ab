package xfer_test

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// readsOnce is a stream that cannot be read again once it was interrupted.
type readsOnce struct {
	*bytes.Reader
	interrupted bool
}

func (r *readsOnce) Interrupt() { r.interrupted = true }

func (r *readsOnce) Read(b []byte) (int, error) {
	if r.interrupted {
		return 0, os.ErrClosed
	}
	return r.Reader.Read(b)
}

type writesOnce struct {
	bytes.Buffer
	interrupted bool
}

func (w *writesOnce) Interrupt()    { w.interrupted = true }
func (w *writesOnce) Finish() error { return nil }

func (w *writesOnce) Write(b []byte) (int, error) {
	if w.interrupted {
		return 0, os.ErrClosed
	}
	return w.Buffer.Write(b)
}

// onceCopies are copies that cannot resume after an attempt has ended. Each copies source, a tree,
// and returns what must equal it.
var onceCopies = map[string]struct {
	change func(t *testing.T, o *xfer.Options)
	push   bool
	stream bool
	anew   bool // even after data was sent
}{
	"a stream from here":            {push: true, stream: true},
	"a stream to here":              {stream: true},
	"a push with a manifest":        {push: true, anew: true, change: writesManifest},
	"a pull with a manifest":        {anew: true, change: writesManifest},
	"a push that deletes some":      {push: true, change: deletesSome},
	"a pull that deletes some":      {change: deletesSome},
	"a push in place by size alone": {push: true, change: func(_ *testing.T, o *xfer.Options) { o.InPlace, o.SizeOnly = true, true }},
}

func writesManifest(t *testing.T, o *xfer.Options) {
	o.Times, o.WriteManifest = true, filepath.Join(t.TempDir(), "manifest")
}

func deletesSome(_ *testing.T, o *xfer.Options) { o.Delete, o.MaxDelete = true, 1 }

// copyOnce makes one of onceCopies, with as many attempts as make sense. It calls again before each
// further one.
func copyOnce(t *testing.T, name string, c *xfer.Client, s *served, o xfer.Options, again func()) (sum *xfer.Summary, err error) {
	t.Helper()
	kind, src, dst := onceCopies[name], t.TempDir(), t.TempDir()
	if kind.push {
		dst = s.root
	} else {
		src = s.root
	}
	makeTree(t, src)
	whole := randomBytes(t, 2<<20+1)
	write(t, filepath.Join(src, "file"), whole)
	if kind.change != nil {
		kind.change(t, &o)
	}
	if o.Delete {
		write(t, filepath.Join(dst, "old"), nil)
	}
	in, out := &readsOnce{Reader: bytes.NewReader(whole)}, new(writesOnce)
	o.Tries, o.Tally = xfer.NewTries(), new(xfer.Tally)
	o.Tries.OnlyOtherWays()
	o.Tries.IsLast(true)
	for attempts := 1; ; attempts++ {
		switch {
		case kind.stream && kind.push:
			o.Recursive, o.Links = false, false
			sum, err = c.PushStream(t.Context(), in, s.ep, "/stream", o)
		case kind.stream:
			o.Recursive, o.Links = false, false
			sum, err = c.PullStream(t.Context(), s.ep, "/file", out, o)
		case kind.push:
			sum, err = c.Push(t.Context(), []string{src + "/."}, s.ep, "/", o)
		default:
			sum, err = c.Pull(t.Context(), s.ep, []string{"/."}, dst, o)
		}
		if err == nil || o.Tries.NextWay() == "" || attempts == 6 {
			break
		}
		t.Logf("next over %q: %v", o.Tries.NextWay(), err)
		again()
		o.Tries.Again(o.Tally)
	}
	if err != nil {
		return sum, err
	}
	switch {
	case kind.stream:
		got := out.Bytes()
		if kind.push {
			if got, err = os.ReadFile(filepath.Join(s.root, "stream")); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal(got, whole) {
			t.Errorf("%d bytes of the stream arrived, want %d", len(got), len(whole))
		}
	default:
		sameTree(t, src, dst)
	}
	if o.WriteManifest != "" {
		text, err := os.ReadFile(o.WriteManifest)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"big/1048577", "many/0/f294", "one", "emptydir", "link"} {
			if !strings.Contains(string(text), name) {
				t.Errorf("%s is not in the manifest", name)
			}
		}
	}
	return sum, nil
}

// A copy that cannot resume begins again over TCP if an RDMA device refuses the ring, at either
// end: nothing has been read, written, deleted or sent by then.
func TestRefusedRingsDoNotEndCopiesOfOneAttempt(t *testing.T) {
	rdmatest.BesideOthers(t)
	for name := range onceCopies {
		for _, end := range []string{"here", "there"} {
			t.Run(name+" "+end, func(t *testing.T) {
				t.Parallel()
				w := tcpWay(t)
				good := narrowNICs{twoNICs: twoNICs{tcp.New()}, names: []string{"nic0"}}
				bad := good
				bad.most, bad.refusal = map[string]int{"nic0": 0}, unix.EIO
				here, there := bad, good
				if end == "there" {
					here, there = good, bad
				}
				s := serve(t, w)
				s.ep.Addrs = []xfer.ServerAddr{{Transport: "tcp", Addr: netip.AddrPortFrom(w.addr, s.ep.Port)}}
				if _, err := s.server.Listen(there, netip.AddrPortFrom(netip.MustParseAddr(nicAddrs["nic0"]), 0), nicNamed("nic0")); err != nil {
					t.Fatal(err)
				}
				o := w.options(t)
				o.Transport, o.Slots = "auto", xfer.DefaultSlots
				sum, err := copyOnce(t, name, &xfer.Client{TCP: tcp.New(), Verbs: here}, s, o, func() {})
				if err != nil {
					t.Fatal(err)
				}
				if sum.Link.Transport != "tcp" {
					t.Errorf("over %s", sum.Link.Transport)
				}
			})
		}
	}
}

// If data was sent when the device failed, only a copy that can compare it begins again.
func TestBrokenDevicesAndCopiesOfOneAttempt(t *testing.T) {
	rdmatest.BesideOthers(t)
	for name, kind := range onceCopies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var sent atomic.Int32 // payloads, by the end that fails
			f := rdmatest.Faults{Drop: func(p rdmatest.Posted) bool { return isPayload(p) && sent.Add(1) > 2 }}
			here, there := f, rdmatest.Faults{}
			if !kind.push {
				here, there = there, f
			}
			s, o := serveNICs(t, there)
			s.ep.Addrs = s.ep.Addrs[:1]
			o.BytesPerSecond = 0
			var dials, later atomic.Int32 // TCP must not help the first attempt
			byTCP := rdmatest.Faulty(tcp.New(), rdmatest.Faults{Dial: func(netip.AddrPort, []byte) error {
				if dials.Add(1) > 1 && later.Load() == 0 {
					return rdma.ErrDisconnected
				}
				return nil
			}})
			c := &xfer.Client{TCP: byTCP, Verbs: brokenNICs{twoNICs{tcp.New()}, here, []string{"nic0", "nic1"}}}
			if _, err := copyOnce(t, name, c, s, o, func() { later.Store(1) }); (err == nil) != kind.anew {
				t.Errorf("after data was sent: %v", err)
			}
		})
	}
}
