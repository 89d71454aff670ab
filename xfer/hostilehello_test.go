package xfer

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/gpu"
	"gdrcp/internal/fileset"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// books are a server's counts of its sessions, and the lowest counts that it ever reported.
type books struct {
	mu          sync.Mutex
	now, lowest Load
}

func (b *books) note(l Load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = l
	b.lowest = Load{
		Sessions: min(b.lowest.Sessions, l.Sessions), Slots: min(b.lowest.Slots, l.Slots), CodecBytes: min(b.lowest.CodecBytes, l.CodecBytes),
	}
}

// balanced waits until no session is left. Then nothing may be booked.
func (b *books) balanced(t *testing.T, v *Server) {
	t.Helper()
	for end := time.Now().Add(rdmatest.Stretch(2 * link.AbortWait)); ; time.Sleep(time.Millisecond) {
		memory := v.door.BookedBytes()
		b.mu.Lock()
		now, lowest := b.now, b.lowest
		b.mu.Unlock()
		if memory == 0 && now == (Load{}) && lowest == (Load{}) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes and %+v are booked for no session, and at the least were %+v", memory, now, lowest)
		}
	}
}

// A ping whose numbers are out of range takes no memory of others and adds none to the server: it
// is refused, and the next client is served as before.
func TestHostilePing(t *testing.T) { overHostile(t, testHostilePing) }

func testHostilePing(t *testing.T, w hostileWay) {
	OnHost(t)
	const one = MinChunkBytes
	var told books
	ends := make(chan SessionEnd, 16)
	root, bound := t.TempDir(), 2*ringBytes(1, hostileSlots, 1<<20)
	v, addr := w.running(t, ServerConfig{
		Keys: OneKey(testKey, Admission{Root: DirRoot(root)}), Timeouts: w.timeouts(), MaxMemory: bound, MaxWait: -1, Load: told.note,
		GPUs: func() (*gpu.Driver, error) { return nil, errors.New("none here") },
		Log:  func(e SessionEnd) { ends <- e },
	})
	if err := os.WriteFile(filepath.Join(root, "a"), []byte("A"), 0o644); err != nil {
		t.Fatal(err)
	}
	const negative = math.MinInt64
	for name, change := range map[string]func(*wire.Hello){
		"a negative chunk":                    func(h *wire.Hello) { h.Terms.ChunkBytes = negative },
		"a negative chunk, in a GPU":          func(h *wire.Hello) { h.Terms.ChunkBytes, h.GPU = -1<<30, 1 },
		"a chunk whose multiples wrap":        func(h *wire.Hello) { h.Terms.ChunkBytes, h.GPU = 1<<62+one, 1 },
		"a negative chunk, compressed":        func(h *wire.Hello) { h.Terms.ChunkBytes, h.Terms.Codec = 200, CompressZstd },
		"a chunk of 0":                        func(h *wire.Hello) { h.Terms.ChunkBytes = 0 },
		"another chunk than the connection's": func(h *wire.Hello) { h.Terms.ChunkBytes *= 2 },
		"negative slots":                      func(h *wire.Hello) { h.Terms.Slots = negative },
		"negative queue pairs":                func(h *wire.Hello) { h.Terms.QPs = negative },
		"a negative piece":                    func(h *wire.Hello) { h.Terms.PieceBytes = negative },
		"a piece that is none":                func(h *wire.Hello) { h.Terms.PieceBytes = 12345 },
		"no digest that there is":             func(h *wire.Hello) { h.Terms.Hash = 200 },
		"compression":                         func(h *wire.Hello) { h.Terms.Codec = CompressZstd },
		"a codec that there is not":           func(h *wire.Hello) { h.Terms.Codec = 200 },
		"a GPU":                               func(h *wire.Hello) { h.GPU = 1 },
		"a GPU that cannot be":                func(h *wire.Hello) { h.GPU = 1 << 63 },
		"deletion":                            func(h *wire.Hello) { h.Terms.Flags, h.Terms.MaxDelete = wire.FlagDelete|wire.FlagRecursive, 1<<63+1 },
		"sizes of files":                      func(h *wire.Hello) { h.Terms.Sizes.MinBytes = 1 },
		"a path":                              func(h *wire.Hello) { h.Paths = []string{"a"} },
		"a name":                              func(h *wire.Hello) { h.Terms.Name = "a" },
		"filter rules":                        func(h *wire.Hello) { h.Terms.Flags = wire.FlagRules },
	} {
		h := helloOf(t, w, wire.ModePing)
		h.Terms.ChunkBytes = 1 << 20
		change(h)
		err := sayHello(t, w, addr, h.Encode(), func() error {
			return fmt.Errorf("it is granted, and %d bytes of %d are booked", v.door.BookedBytes(), bound)
		})
		end := <-ends
		if err == nil || !errors.Is(end.Err, ErrProtocol) {
			t.Errorf("%s: %v, the server: %v", name, err, end.Err)
		}
		if _, err := w.client().Pull(t.Context(), w.endpoint(addr), []string{"a"}, filepath.Join(t.TempDir(), "a"), *w.options()); err != nil {
			t.Errorf("the copy after %s: %v", name, err)
		}
		<-ends
		told.balanced(t, v)
	}
	// A valid ping is answered.
	if _, err := w.client().BenchLatency(t.Context(), w.endpoint(addr), 10, *w.options()); err != nil {
		t.Error(err)
	}
}

// The hello of a measurement, and of a request for names, has no field about files.
func TestHellosWithoutFiles(t *testing.T) {
	OnHost(t)
	for _, m := range []wire.Mode{wire.ModePing, wire.ModeBench, wire.ModeExpand} {
		made := helloOf(t, byTCP(), m).Terms
		if err := helloOf(t, byTCP(), m).Check(&made); err != nil {
			t.Errorf("a %s: %v", m, err)
		}
		for name, change := range map[string]func(*wire.Hello){
			"sizes of files": func(h *wire.Hello) { h.Terms.Sizes.MaxBytes = 2 }, "a name": func(h *wire.Hello) { h.Terms.Name = "a" },
			"deletion": func(h *wire.Hello) { h.Terms.Flags |= wire.FlagDelete }, "a bound of it": func(h *wire.Hello) { h.Terms.MaxDelete = 1 },
			"a rung": func(h *wire.Hello) { h.Terms.IO = fileset.IODirect }, "files at once": func(h *wire.Hello) { h.Terms.Transfers = 2 }, "compression": func(h *wire.Hello) { h.Terms.Codec = CompressS2 }, "a GPU": func(h *wire.Hello) { h.GPU = 1 },
			"recursion": func(h *wire.Hello) { h.Terms.Flags |= wire.FlagRecursive }, "rules": func(h *wire.Hello) { h.Terms.Flags |= wire.FlagRules },
			"other paths": func(h *wire.Hello) {
				if len(h.Paths) > 0 {
					h.Paths = nil
				} else {
					h.Paths = []string{"a"}
				}
			},
		} {
			h := helloOf(t, byTCP(), m)
			change(h)
			if err := h.Check(&made); !errors.Is(err, ErrProtocol) {
				t.Errorf("a %s with %s: %v", m, name, err)
			}
		}
	}
}

// helloOf returns a hello of any mode as a client sends it, with all of its numbers.
func helloOf(t *testing.T, w hostileWay, m wire.Mode) *wire.Hello {
	t.Helper()
	o := w.options()
	if m == wire.ModePing || m == wire.ModeBench || m == wire.ModeExpand {
		h, err := o.benchHello(m)
		if err != nil {
			t.Fatal(err)
		}
		if m == wire.ModeExpand {
			h.Paths = []string{"x"}
		}
		return h
	}
	o.Delete, o.MaxDelete, o.Compress = m == wire.ModePush, int64(m)%2*3, CompressAuto
	h, err := o.hello(m)
	if err != nil {
		t.Fatal(err)
	}
	if h.Paths = []string{"x"}; m == wire.ModePush {
		h.Terms.Name = "x"
	}
	return h
}

// mayBe reports whether a field of a hello may differ or be missing: the client's choices, unless
// its connection was sized for them. A tag that is changed is a field that is missing. In a bench
// only the digest may differ.
func mayBe(m wire.Mode, name string) bool {
	fields := []string{"field 0x85 2", "field 0x85 3", "field 0x85 4"}
	switch m {
	case wire.ModeBench:
		fields = append(fields, "field 0x85 0", "tag of field 0x85 ")
	case wire.ModeExpand:
		fields = append(fields, "field 0x81 1", "twice", "tag of field 0x89 138") // a push, or one of two paths
	case wire.ModePush, wire.ModePull:
		fields = append(fields, "field 0x81 1", "field 0x81 2", "field 0x88 ", "field 0x89 ", "field 0x92 ",
			"tag of field 0x88 ", "tag of field 0x89 ", "tag of field 0x8b ", "tag of field 0x92 ", "cut before tag of field 0x8b", "cut before tag of field 0x92")
	}
	for _, f := range fields {
		if strings.HasPrefix(name, f) {
			return true
		}
	}
	return false
}

// Every field of a hello of every mode is set to 0, 1, a neighbour of its value and the ends of its
// range, cut, left out and doubled: the server ends the session, or the request can be met; and
// nothing remains booked.
func TestHostileHellos(t *testing.T) { overHostile(t, testHostileHellos) }

func testHostileHellos(t *testing.T, w hostileWay) {
	OnHost(t)
	var told books
	ends := make(chan SessionEnd, 16)
	v, addr := w.running(t, ServerConfig{
		Keys: OneKey(testKey, Admission{Root: DirRoot(t.TempDir())}), Timeouts: w.timeouts(), Load: told.note, Log: func(e SessionEnd) { ends <- e },
	})
	step := 1
	if w.name != "tcp" || testing.Short() {
		step = 11
	}
	for _, m := range []wire.Mode{wire.ModePush, wire.ModePull, wire.ModeBench, wire.ModePing, wire.ModeExpand} {
		refused := 0
		all := mutants(fieldParts(helloOf(t, w, m).Encode(), wire.TagPath, wire.TagName))
		for i := 0; i < len(all); i += step {
			err := sayHello(t, w, addr, all[i].body, func() error { return errors.New("it is granted") })
			end := <-ends
			switch {
			case errors.Is(end.Err, ErrProtocol):
				refused++
			case !mayBe(m, all[i].name) && !sameHello(t, w, m, all[i].body):
				t.Errorf("a %s with %s: %v, the server: %v", m, all[i].name, err, end.Err)
			}
		}
		told.balanced(t, v)
		t.Logf("%s: %d of %d were refused", m, refused, (len(all)+step-1)/step)
	}
}

// sayHello is a client that sends body as its hello, and ends with the result of granted if the
// answer is a welcome.
func sayHello(t *testing.T, w hostileWay, addr netip.AddrPort, body []byte, granted func() error) error {
	t.Helper()
	o := w.options()
	d, err := w.client().connect(t.Context(), w.endpoint(addr), o)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(d, "the server", true, o.Timeouts)
	err = s.Run(t.Context(), func(ctx context.Context, _ *errgroup.Group) error {
		if err := s.Ctl.Send(ctx, wire.MsgHello, body); err != nil {
			return err
		}
		return s.Expect(ctx, wire.MsgWelcome, "welcome", func([]byte) error { return granted() })
	})
	return errors.Join(err, d.close())
}

// sameHello reports whether a message is equivalent to the hello in another encoding: without a
// field that is 0.
func sameHello(t *testing.T, w hostileWay, m wire.Mode, body []byte) bool {
	t.Helper()
	h, err := wire.DecodeHello(body)
	return err == nil && reflect.DeepEqual(&h, helloOf(t, w, m))
}

// Every field of a welcome likewise, in every mode: the client accepts none that grants something
// else than it asked for.
func TestHostileWelcomes(t *testing.T) {
	OnHost(t)
	step := 5
	if testing.Short() {
		step = 29
	}
	w := byTCP()
	for _, m := range []wire.Mode{wire.ModePush, wire.ModePull, wire.ModeBench, wire.ModePing, wire.ModeExpand} {
		granted := helloOf(t, w, m)
		granted.Paths, granted.Terms.Name = nil, sourceNameOf(granted)
		all := mutants(fieldParts(granted.Encode(), wire.TagName))
		for i := 0; i < len(all); i += step {
			ep := hostileWelcoming(t, func(*wire.Hello) []byte { return all[i].body }, func(context.Context, *puppet) error { return nil })
			o := w.options()
			agreed := false
			h := helloOf(t, w, m)
			_, err := w.client().benchSession(t.Context(), ep, o, h, func(context.Context, *flow.Session, *errgroup.Group) error {
				agreed = true
				return errors.New("the client takes it")
			})
			same, derr := wire.DecodeHello(all[i].body)
			if agreed && (derr != nil || !reflect.DeepEqual(&same, granted)) && !(m != wire.ModePull && strings.Contains(all[i].name, "0x8b")) {
				t.Errorf("a %s with %s: %v", m, all[i].name, err)
			}
		}
	}
}

// sourceNameOf returns the name in the welcome to a hello.
func sourceNameOf(h *wire.Hello) string {
	if h.Terms.Mode == wire.ModePull {
		return sourceName(h.Paths[0])
	}
	return ""
}
