package xfer_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

func TestEncryptedTrees(t *testing.T) { over(t, testEncryptedTrees) }

// Encrypted chunks arrive, including those that are damaged on the way, in both directions.
func testEncryptedTrees(t *testing.T, w way) {
	for _, tc := range []struct {
		name    string
		corrupt func(rdmatest.Posted) (int, bool)
		change  func(*xfer.Options)
	}{
		{"whole", nil, func(*xfer.Options) {}},
		{"payload", some(isPayload), func(*xfer.Options) {}},
		{"header", some(isHeader), func(*xfer.Options) {}},
		{"compressed", some(isPayload), func(o *xfer.Options) { o.Compress = xfer.CompressS2 }},
		{"several queue pairs", nil, func(o *xfer.Options) { o.QPs = 3 }},
	} {
		if w.leavesOut(tc.name, "header") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			src, dst, s := t.TempDir(), t.TempDir(), serve(t, w)
			makeTree(t, src)
			o := w.options(t)
			o.Slots, o.Encrypt = 4, true
			tc.change(&o)
			sum, err := w.client(rdmatest.Faults{Corrupt: tc.corrupt}).Push(t.Context(), []string{src}, s.ep, "copy", o)
			if err != nil {
				t.Fatal(err)
			}
			sameTree(t, src, filepath.Join(s.root, "copy"))
			end := s.lastEnd(t, 1)
			if (end.Summary.Repairs > 0) != (tc.corrupt != nil) || !sum.Verified || !sum.Link.Encrypted || !end.Summary.Link.Encrypted {
				t.Errorf("%+v, and at the server %+v", sum, end.Summary)
			}
			if _, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"copy"}, filepath.Join(dst, "back"), o); err != nil {
				t.Fatal(err)
			}
			sameTree(t, src, filepath.Join(dst, "back"))
		})
	}
}

// Data that cannot be decrypted is never written, however often it is sent.
func TestForgedChunks(t *testing.T) { over(t, testForgedChunks) }

func testForgedChunks(t *testing.T, w way) {
	for name, tc := range map[string]struct {
		match func(rdmatest.Posted) bool
		at    int
	}{
		"payload":              {isPayload, 100},
		"sealed header":        {isHeader, 80},
		"tag of the payload":   {isHeader, 45},
		"number of the seal":   {isHeader, 32},
		"room behind the seal": {isHeader, 60},
	} {
		t.Run(name, func(t *testing.T) {
			src, s := t.TempDir(), serve(t, w)
			write(t, filepath.Join(src, "f"), randomBytes(t, 1000))
			o := w.options(t)
			o.Encrypt = true
			f := rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) { return tc.at, tc.match(p) }}
			sum, err := w.client(f).Push(t.Context(), []string{src}, s.ep, "copy", o)
			if !errors.Is(err, xfer.ErrIntegrity) && (err != nil || sum.Corrupt != 1) {
				t.Errorf("%+v, %v", sum, err)
			}
			notPublished(t, s.root, "copy/f")
		})
	}
}

// eavesdropper forwards the traffic between a client and a server, and keeps it.
func eavesdropper(t *testing.T, ep xfer.Endpoint) (xfer.Endpoint, func() []byte) {
	t.Helper()
	var mu sync.Mutex
	var heard bytes.Buffer
	ep = relayed(t, ep, func(_ int, b []byte) {
		mu.Lock()
		defer mu.Unlock()
		heard.Write(b)
	})
	return ep, func() []byte {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Clone(heard.Bytes())
	}
}

// relayed forwards the traffic between a client and a server. It calls each with what it is about
// to forward, and the number of its connection, from 1.
func relayed(t *testing.T, ep xfer.Endpoint, each func(nth int, b []byte)) xfer.Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := ep.String()
	var wg sync.WaitGroup
	pass := func(nth int, to, from net.Conn) {
		defer to.Close()
		b := make([]byte, 64<<10)
		for {
			n, err := from.Read(b)
			each(nth, b[:n])
			if _, werr := to.Write(b[:n]); err != nil || werr != nil {
				return
			}
		}
	}
	wg.Go(func() {
		for nth := 1; ; nth++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			there, err := net.Dial("tcp", server)
			if err != nil {
				client.Close()
				continue
			}
			wg.Go(func() { pass(nth, there, client) })
			wg.Go(func() { pass(nth, client, there) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	ep.Port = uint16(l.Addr().(*net.TCPAddr).Port)
	return ep
}

// An eavesdropper on the wire sees no name, and with encryption no data.
func TestWhatTravelsInTheClear(t *testing.T) {
	w := tcpWay(t)
	for _, encrypt := range []bool{false, true} {
		src, s := t.TempDir(), serve(t, w)
		ep, heard := eavesdropper(t, s.ep)
		text := []byte("these words must not be heard")
		write(t, filepath.Join(src, "a-telling-name"), text)
		o := w.options(t)
		o.Encrypt = encrypt
		if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, ep, "a-telling-place", o); err != nil {
			t.Fatal(err)
		}
		wire := heard()
		if len(wire) < len(text) {
			t.Fatalf("%d bytes were heard", len(wire))
		}
		for _, secret := range [][]byte{[]byte("telling"), ep.Key.Secret.Bytes()} {
			if bytes.Contains(wire, secret) {
				t.Errorf("encryption %v: %q was heard", encrypt, secret)
			}
		}
		if bytes.Contains(wire, text) == encrypt {
			t.Errorf("encryption %v: was the text heard? %v", encrypt, !encrypt)
		}
	}
}

// A bench measures what encryption costs.
func TestEncryptedBench(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	o := w.options(t)
	o.Encrypt = true
	b, err := w.client(rdmatest.Faults{}).BenchBandwidth(t.Context(), s.ep, 8<<20, o)
	if err != nil || b.Bytes != 8<<20 || !b.Link.Encrypted {
		t.Errorf("%+v, %v", b, err)
	}
}

// insisting is a keyring whose keys are for encrypted sessions.
type insisting struct{ xfer.Keyring }

func (k insisting) Find(id string) (xfer.Admission, bool) {
	a, ok := k.Keyring.Find(id)
	a.RequireEncrypt = true
	return a, ok
}

func TestRequiredEncryption(t *testing.T) { over(t, testRequiredEncryption) }

// A server that requires encryption refuses every kind of session without it, says what to do, and
// has made nothing. With encryption everything works as usual.
func testRequiredEncryption(t *testing.T, w way) {
	xfer.OnHost(t)
	s := serve(t, w, func(c *xfer.ServerConfig) { c.Keys = insisting{c.Keys} })
	dir := t.TempDir()
	write(t, filepath.Join(dir, "f"), randomBytes(t, 3<<20))
	write(t, filepath.Join(s.root, "there"), []byte("x"))
	c, ctx := w.client(rdmatest.Faults{}), t.Context()
	for name, do := range map[string]func(o xfer.Options) error{
		"push": func(o xfer.Options) error {
			_, err := c.Push(ctx, []string{filepath.Join(dir, "f")}, s.ep, "f", o)
			return err
		},
		"tree": func(o xfer.Options) error {
			_, err := c.Push(ctx, []string{dir}, s.ep, "tree", o)
			return err
		},
		"dry run": func(o xfer.Options) error {
			o.DryRun = true
			_, err := c.Push(ctx, []string{filepath.Join(dir, "f")}, s.ep, "dry", o)
			return err
		},
		"pull": func(o xfer.Options) error {
			_, err := c.Pull(ctx, s.ep, []string{"there"}, filepath.Join(t.TempDir(), "here"), o)
			return err
		},
		"stream": func(o xfer.Options) error {
			o.Recursive, o.Links = false, false
			_, err := s.pushStream(t, w, rdmatest.Faults{}, []byte("x"), 0, "stream", o)
			return err
		},
		"bandwidth": func(o xfer.Options) error {
			_, err := c.BenchBandwidth(ctx, s.ep, 1<<20, o)
			return err
		},
		"latency": func(o xfer.Options) error {
			_, err := c.BenchLatency(ctx, s.ep, 10, o)
			return err
		},
	} {
		if w.leavesOut(name, "push", "pull") {
			continue
		}
		t.Run(name, func(t *testing.T) {
			o := w.options(t)
			err := do(o)
			var said *xfer.RemoteError
			if !errors.As(err, &said) || said.Class != xfer.ClassError || said.Text != "the server admits only encrypted sessions: add --encrypt" {
				t.Errorf("without encryption: %v", err)
			}
			if left, err := os.ReadDir(s.root); err != nil || len(left) != 1 {
				t.Errorf("it has made %v, %v", left, err)
			}
			o.Encrypt = true
			if err := do(o); err != nil {
				t.Errorf("with encryption: %v", err)
			}
			for _, made := range []string{"f", "tree", "stream"} {
				if err := os.RemoveAll(filepath.Join(s.root, made)); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// With the slots in GPU memory the processor encrypts, so they are staged, and not reached
// directly. That is refused before a server is asked. Without encryption the reason is the server,
// which has TCP only.
func TestEncryptionIsNotDirect(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	src := t.TempDir()
	write(t, filepath.Join(src, "f"), []byte("x"))
	const byProcessor = "chunks are encrypted by the processor"
	for _, encrypt := range []bool{true, false} {
		o := w.options(t)
		o.Encrypt, o.GPU, o.Require, o.Transport = encrypt, "0", "gpudirect", "auto"
		_, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o)
		if !errors.Is(err, rdma.ErrUnsupported) || strings.Contains(err.Error(), byProcessor) != encrypt {
			t.Errorf("encryption %v: %v", encrypt, err)
		}
	}
}
