package xfer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// stream is a pipe of which the test has one end and the engine the other.
type stream struct {
	*io.PipeReader
	*io.PipeWriter
}

func newStream() stream {
	r, w := io.Pipe()
	return stream{r, w}
}

var errInterrupted = errors.New("interrupted")

func (s stream) Interrupt() {
	s.PipeReader.CloseWithError(errInterrupted)
	s.PipeWriter.CloseWithError(errInterrupted)
}

func (s stream) Finish() error { return nil }

// feed writes data into the stream in parts of different sizes, with a pause
// before each.
func (s stream) feed(data []byte, pause time.Duration) {
	sizes := []int{1, 4095, 65536, 700_001, 1 << 20, 3}
	for i := 0; len(data) > 0; i++ {
		time.Sleep(pause)
		n := min(sizes[i%len(sizes)], len(data))
		if _, err := s.PipeWriter.Write(data[:n]); err != nil {
			return // the engine has ended, and reports its error to the test
		}
		data = data[n:]
	}
	s.PipeWriter.Close()
}

// drain reads what the engine writes until the stream is closed.
func (s stream) drain(pause time.Duration) *drained {
	d := &drained{done: make(chan struct{})}
	go func() {
		defer close(d.done)
		buf := make([]byte, 100_000)
		for {
			time.Sleep(pause)
			n, err := s.PipeReader.Read(buf)
			d.got.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return d
}

type drained struct {
	got  bytes.Buffer
	done chan struct{}
}

// Data streamed to a file, and from it, is the same, and so are the roots of both ends and of a
// copy of the file.
func TestStreams(t *testing.T) { over(t, testStreams) }

func testStreams(t *testing.T, w way) {
	const piece = manifest.DefaultPieceBytes
	for _, tc := range []struct {
		name string
		set  func(*xfer.Options)
	}{
		{"plain", func(*xfer.Options) {}},
		{"blake3", func(o *xfer.Options) { o.Hash = manifest.BLAKE3 }},
		{"qps", func(o *xfer.Options) { o.QPs = 3 }},
		{"chunk4M", func(o *xfer.Options) { o.ChunkBytes, o.Slots, o.Hash = 4<<20, 3, manifest.BLAKE3 }},
		{"chunk1.5M", func(o *xfer.Options) { o.ChunkBytes, o.Slots = 3<<19, 2 }},
		{"oneslot", func(o *xfer.Options) { o.Slots = 1 }},
		{"zstd", func(o *xfer.Options) { o.Compress = xfer.CompressZstd }},
		{"encrypted", func(o *xfer.Options) { o.Encrypt = true }},
	} {
		if w.leavesOut(tc.name, "qps") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			s := serve(t, w)
			for _, n := range []int{0, 1, piece - 1, piece, piece + 1, 4 * piece, 9*piece + 12345} {
				if w.leavesOut(strconv.Itoa(n), "0", strconv.Itoa(piece+1), strconv.Itoa(4*piece)) {
					continue
				}
				data := randomBytes(t, n)
				if n > 3*piece {
					clear(data[piece+77 : 3*piece]) // part of it compresses
				}
				name := fmt.Sprintf("f%d", n)
				o := w.streamOptions(t)
				tc.set(&o)
				pushed, err := s.pushStream(t, w, rdmatest.Faults{}, data, 0, name, o)
				if err != nil {
					t.Fatalf("%d bytes: %v", n, err)
				}
				if got, err := os.ReadFile(filepath.Join(s.root, name)); err != nil || !bytes.Equal(got, data) {
					t.Fatalf("%d bytes: %d were published: %v", n, len(got), err)
				}
				if end := s.endOf(t, "push", name); end.Err != nil || end.Summary.Content != pushed.Content || !pushed.Verified || pushed.Bytes != int64(n) || pushed.Files != 1 {
					t.Errorf("%d bytes: ends %+v and %+v", n, pushed, end)
				}
				got, pulled, err := s.pullStream(t, w, name, 0, o)
				if err != nil || !bytes.Equal(got, data) {
					t.Fatalf("%d bytes: %d were written: %v", n, len(got), err)
				}
				copied, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{name}, t.TempDir(), o)
				if err != nil {
					t.Fatal(err)
				}
				if pulled.Content != pushed.Content || copied.Content != pushed.Content || pulled.Meta != copied.Meta || pulled.Bytes != int64(n) {
					t.Errorf("%d bytes: pushed %+v, pulled %+v, copied %+v", n, pushed, pulled, copied)
				}
			}
			noTemps(t, s.root)
		})
	}
}

// A stream is as slow as its writer or its reader.
func TestSlowStreams(t *testing.T) {
	rdmatest.BesideOthers(t)
	w := tcpWay(t)
	s := serve(t, w)
	data := randomBytes(t, 3<<20+77)
	o := w.streamOptions(t)
	o.Slots = 2
	if _, err := s.pushStream(t, w, rdmatest.Faults{}, data, 30*time.Millisecond, "f", o); err != nil {
		t.Fatal(err)
	}
	got, _, err := s.pullStream(t, w, "f", 10*time.Millisecond, o)
	if err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes: %v", len(got), err)
	}
}

// Data damaged in transit is sent again, though a stream cannot be read again, and written in its
// turn.
func TestDamagedStreams(t *testing.T) { over(t, testDamagedStreams) }

func testDamagedStreams(t *testing.T, w way) {
	data := randomBytes(t, 30<<20+5)
	clear(data[8<<20+100 : 11<<20])
	for _, tc := range []struct {
		name    string
		corrupt func() func(rdmatest.Posted) (int, bool)
		set     func(*xfer.Options)
	}{
		{"payload", func() func(rdmatest.Posted) (int, bool) { return some(isPayload) }, func(o *xfer.Options) { o.Slots = 4 }},
		{"one slot", func() func(rdmatest.Posted) (int, bool) { return some(isPayload) }, func(o *xfer.Options) { o.Slots = 1 }},
		{"header", func() func(rdmatest.Posted) (int, bool) { return some(isHeader) }, func(o *xfer.Options) { o.Slots = 4 }},
		{"both, several pieces", func() func(rdmatest.Posted) (int, bool) {
			header, payload := some(isHeader), some(isPayload)
			return func(p rdmatest.Posted) (int, bool) {
				if isHeader(p) {
					return header(p)
				}
				return payload(p)
			}
		}, func(o *xfer.Options) { o.ChunkBytes, o.Slots, o.QPs = 4<<20, 3, 2 }},
		{"compressed and encrypted", func() func(rdmatest.Posted) (int, bool) { return some(isPayload) }, func(o *xfer.Options) { o.Compress, o.Slots, o.Encrypt = xfer.CompressS2, 3, true }},
	} {
		if w.leavesOut(tc.name, "both, several pieces") {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			s := serve(t, w)
			o := w.streamOptions(t)
			tc.set(&o)
			sum, err := s.pushStream(t, w, rdmatest.Faults{Corrupt: tc.corrupt()}, data, 0, "f", o)
			if err != nil || !sum.Verified {
				t.Fatalf("push: %+v, %v", sum, err)
			}
			if got, err := os.ReadFile(filepath.Join(s.root, "f")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("other bytes were published: %v", err)
			}
			if end := s.lastEnd(t, 1); end.Summary.Repairs == 0 {
				t.Errorf("nothing was repaired: %+v", end.Summary)
			}
			bad := w
			bad.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Corrupt: tc.corrupt()})
			from := serve(t, bad)
			write(t, filepath.Join(from.root, "f"), data)
			got, sum, err := from.pullStream(t, bad, "f", 0, o)
			if err != nil || !bytes.Equal(got, data) || sum.Repairs == 0 {
				t.Errorf("pull: %d bytes, %+v, %v", len(got), sum, err)
			}
		})
	}
}

// Each piece of a chunk may be damaged as often as one that is alone in its chunk.
func TestStreamOfPiecesDamagedInTurn(t *testing.T) {
	w := tcpWay(t)
	data := randomBytes(t, 4<<20) // one chunk
	var seen atomic.Int64
	bad := w
	bad.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) {
		if !isPayload(p) {
			return 0, false
		}
		switch n := seen.Add(1); {
		case n > 12:
			return 0, false
		case n > 1 && n%3 == 1: // the first missing piece arrives, the next one does not
			return 1<<20 + 100, true
		}
		return 100, true
	}})
	s := serve(t, bad)
	write(t, filepath.Join(s.root, "f"), data)
	o := w.streamOptions(t)
	o.ChunkBytes, o.Slots = 4<<20, 2
	got, sum, err := s.pullStream(t, bad, "f", 0, o)
	if err != nil || !bytes.Equal(got, data) || seen.Load() != 13 {
		t.Errorf("%d bytes, %+v, %v, sent %d times", len(got), sum, err, seen.Load())
	}
}

// A piece that never arrives intact ends the copy of its stream: nothing of it is published, and
// nothing follows what was written.
func TestStreamThatNeverArrivesWhole(t *testing.T) {
	w := tcpWay(t)
	data := randomBytes(t, 12<<20)
	corrupt := func() func(rdmatest.Posted) (int, bool) {
		var seen atomic.Int64
		return func(p rdmatest.Posted) (int, bool) { return 100, isPayload(p) && seen.Add(1) >= 3 }
	}
	s := serve(t, w)
	sum, err := s.pushStream(t, w, rdmatest.Faults{Corrupt: corrupt()}, data, 0, "f", w.streamOptions(t))
	if err != nil || sum.Corrupt != 1 || sum.Files != 0 {
		t.Errorf("push: %+v, %v", sum, err)
	}
	notPublished(t, s.root, "f")
	bad := w
	bad.provider = rdmatest.Faulty(w.provider, rdmatest.Faults{Corrupt: corrupt()})
	from := serve(t, bad)
	write(t, filepath.Join(from.root, "f"), data)
	got, sum, err := from.pullStream(t, bad, "f", 0, w.streamOptions(t))
	if err != nil || sum.Corrupt != 1 || !bytes.Equal(got, data[:2<<20]) {
		t.Errorf("pull: %d bytes, %+v, %v", len(got), sum, err)
	}
}

// A stream that fails before its end is not published.
func TestStreamThatFails(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	tape := errors.New("the tape broke")
	for _, n := range []int{0, 100, 5<<20 + 1} {
		in := newStream()
		go func() {
			_, _ = in.PipeWriter.Write(make([]byte, n))
			in.PipeWriter.CloseWithError(tape)
		}()
		if _, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), in, s.ep, "f", w.streamOptions(t)); !errors.Is(err, tape) {
			t.Errorf("after %d bytes: %v", n, err)
		}
	}
	// An end in the middle of the data is an error.
	in := newStream()
	go in.PipeWriter.CloseWithError(io.ErrUnexpectedEOF)
	if _, err := w.client(rdmatest.Faults{}).PushStream(t.Context(), in, s.ep, "f", w.streamOptions(t)); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("cut off: %v", err)
	}
	s.lastEnd(t, 4)
	notPublished(t, s.root, "f")
}

// fullAtTheEnd is an output that reports only at its end that the data is lost.
type fullAtTheEnd struct{ io.Writer }

func (fullAtTheEnd) Interrupt() {}

func (fullAtTheEnd) Finish() error { return unix.EDQUOT }

// An error that an output reports only at its end ends the copy before the source learns that
// everything has arrived.
func TestStreamThatIsLostAtTheEnd(t *testing.T) {
	xfer.OnHost(t)
	w := tcpWay(t)
	s := serve(t, w)
	for i, n := range []int{0, 3<<20 + 1} {
		write(t, filepath.Join(s.root, "f"), randomBytes(t, n))
		sum, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), s.ep, "f", fullAtTheEnd{io.Discard}, w.streamOptions(t))
		if !errors.Is(err, unix.EDQUOT) {
			t.Errorf("%d bytes: %+v, %v", n, sum, err)
		}
		if end := s.lastEnd(t, i+1); end.Err == nil {
			t.Errorf("%d bytes: the source was told that they had arrived: %+v", n, end.Summary)
		}
	}
}

// If its reader goes away, the copy ends with the reader's error.
func TestStreamWhoseReaderGoes(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	write(t, filepath.Join(s.root, "f"), randomBytes(t, 8<<20))
	out, gone := newStream(), errors.New("the reader is gone")
	go func() {
		_, _ = io.CopyN(io.Discard, out.PipeReader, 3<<20)
		out.PipeReader.CloseWithError(gone)
	}()
	if _, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), s.ep, "f", out, w.streamOptions(t)); !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if end := s.lastEnd(t, 1); end.Err == nil {
		t.Error("the server noticed nothing")
	}
}

// A copy can be interrupted while its stream waits for its reader or writer.
func TestInterruptedStreams(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	write(t, filepath.Join(s.root, "f"), randomBytes(t, 8<<20))
	for _, tc := range []struct {
		name string
		copy func(context.Context, stream) error
		wait func(stream)
	}{
		{"push", func(ctx context.Context, st stream) error {
			_, err := w.client(rdmatest.Faults{}).PushStream(ctx, st, s.ep, "new", w.streamOptions(t))
			return err
		}, func(st stream) { _, _ = st.PipeWriter.Write(make([]byte, 3<<20)) }},
		{"pull", func(ctx context.Context, st stream) error {
			_, err := w.client(rdmatest.Faults{}).PullStream(ctx, s.ep, "f", st, w.streamOptions(t))
			return err
		}, func(st stream) { _, _ = io.CopyN(io.Discard, st.PipeReader, 3<<20) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			st := newStream()
			go func() {
				tc.wait(st)
				cancel()
			}()
			ended := make(chan error, 1)
			go func() { ended <- tc.copy(ctx, st) }()
			select {
			case err := <-ended:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got %v", err)
				}
			case <-time.After(20 * time.Second):
				t.Fatal("it still waits")
			}
		})
	}
	notPublished(t, s.root, "new")
}

// pushStream sends data as a stream to name.
func (s *served) pushStream(t testing.TB, w way, f rdmatest.Faults, data []byte, pause time.Duration, name string, o xfer.Options) (*xfer.Summary, error) {
	t.Helper()
	in := newStream()
	go in.feed(data, pause)
	sum, err := w.client(f).PushStream(t.Context(), in, s.ep, name, o)
	in.Interrupt()
	return sum, err
}

// pullStream receives name as a stream.
func (s *served) pullStream(t testing.TB, w way, name string, pause time.Duration, o xfer.Options) ([]byte, *xfer.Summary, error) {
	t.Helper()
	out := newStream()
	d := out.drain(pause)
	sum, err := w.client(rdmatest.Faults{}).PullStream(t.Context(), s.ep, name, out, o)
	out.PipeWriter.Close()
	<-d.done
	return d.got.Bytes(), sum, err
}

// streamOptions returns options for a test over w.
func (w way) streamOptions(t testing.TB) xfer.Options {
	o := w.options(t)
	o.Recursive, o.Links = false, false
	return o
}
