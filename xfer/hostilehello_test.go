package xfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/gpu"

	"golang.org/x/sync/errgroup"
)

// books are what a server says of its sessions, and the least that it ever said.
type books struct {
	mu          sync.Mutex
	now, lowest Load
}

func (b *books) note(l Load) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = l
	b.lowest = Load{min(b.lowest.Sessions, l.Sessions), min(b.lowest.Slots, l.Slots), min(b.lowest.CodecBytes, l.CodecBytes)}
}

// balanced waits until no session is left, and then nothing may be booked.
func (b *books) balanced(t *testing.T, v *Server) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		v.mu.Lock()
		memory := v.memory
		v.mu.Unlock()
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

// A ping whose numbers are out of range takes nobody's memory and gives the server
// none: it is refused, and the next client is served as before.
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
	var negative uint64 = 1 << 63
	for name, change := range map[string]func(*hello){
		"a negative chunk":                    func(h *hello) { h.chunkBytes = negative },
		"a negative chunk, in a GPU":          func(h *hello) { h.chunkBytes, h.gpu = 1<<64-1<<30, 1 },
		"a chunk whose multiples wrap":        func(h *hello) { h.chunkBytes, h.gpu = 1<<62+one, 1 },
		"a negative chunk, compressed":        func(h *hello) { h.chunkBytes, h.codec = negative, uint64(CompressZstd) },
		"a chunk of 0":                        func(h *hello) { h.chunkBytes = 0 },
		"another chunk than the connection's": func(h *hello) { h.chunkBytes *= 2 },
		"negative slots":                      func(h *hello) { h.slots = negative },
		"negative queue pairs":                func(h *hello) { h.qps = negative },
		"a negative piece":                    func(h *hello) { h.pieceBytes = negative },
		"a piece that is none":                func(h *hello) { h.pieceBytes = 12345 },
		"no digest that there is":             func(h *hello) { h.hash = 200 },
		"compression":                         func(h *hello) { h.codec = uint64(CompressZstd) },
		"a codec that there is not":           func(h *hello) { h.codec = negative },
		"a GPU":                               func(h *hello) { h.gpu = 1 },
		"a GPU that cannot be":                func(h *hello) { h.gpu = negative },
		"deletion":                            func(h *hello) { h.flags, h.maxDelete = flagDelete|flagRecursive, negative+1 },
		"sizes of files":                      func(h *hello) { h.sizes.minBytes = 1 },
		"a path":                              func(h *hello) { h.paths = []string{"a"} },
		"a name":                              func(h *hello) { h.name = "a" },
		"filter rules":                        func(h *hello) { h.flags = flagRules },
	} {
		h := helloOf(t, w, modePing)
		h.chunkBytes = 1 << 20
		change(h)
		err := sayHello(t, w, addr, h.encode(), func() error {
			v.mu.Lock()
			defer v.mu.Unlock()
			return fmt.Errorf("it is granted, and %d bytes of %d are booked", v.memory, bound)
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
	// And a ping as it should be is answered.
	if _, err := w.client().BenchLatency(t.Context(), w.endpoint(addr), 10, *w.options()); err != nil {
		t.Error(err)
	}
}

// No number of a hello is beyond its range, whatever the mode.
func TestHelloNumbersBeyondTheirRange(t *testing.T) {
	for _, tag := range []byte{tagChunk, tagPiece, tagSlots, tagQPs, tagCodec, tagFlags, tagGPU, tagMaxDelete, tagMinFile, tagMaxFile} {
		_, most := new(hello).uintField(tag)
		for _, v := range []uint64{most + 1, 1<<63 + 2, 1<<64 - 1} {
			var w tlvWriter
			w.uint(tag, v)
			if _, err := decodeHello(w.b); !errors.Is(err, ErrProtocol) {
				t.Errorf("field %#x of %d: %v", tag, v, err)
			}
		}
	}
}

// What measures, and what asks for names, has no field that is about files.
func TestHellosWithoutFiles(t *testing.T) {
	OnHost(t)
	for _, m := range []mode{modePing, modeBench, modeExpand} {
		made := helloOf(t, byTCP(), m).params()
		if err := helloOf(t, byTCP(), m).check(&made); err != nil {
			t.Errorf("a %s: %v", m, err)
		}
		for name, change := range map[string]func(*hello){
			"sizes of files": func(h *hello) { h.sizes.maxBytes = 2 }, "a name": func(h *hello) { h.name = "a" },
			"deletion": func(h *hello) { h.flags |= flagDelete }, "a bound of it": func(h *hello) { h.maxDelete = 1 },
			"compression": func(h *hello) { h.codec = uint64(CompressS2) }, "a GPU": func(h *hello) { h.gpu = 1 },
			"recursion": func(h *hello) { h.flags |= flagRecursive }, "rules": func(h *hello) { h.flags |= flagRules },
			"other paths": func(h *hello) {
				if len(h.paths) > 0 {
					h.paths = nil
				} else {
					h.paths = []string{"a"}
				}
			},
		} {
			h := helloOf(t, byTCP(), m)
			change(h)
			if err := h.check(&made); !errors.Is(err, ErrProtocol) {
				t.Errorf("a %s with %s: %v", m, name, err)
			}
		}
	}
}

// helloOf is a hello as a client says it, of any mode, with all of its numbers.
func helloOf(t *testing.T, w hostileWay, m mode) *hello {
	t.Helper()
	o := w.options()
	if m == modePing || m == modeBench || m == modeExpand {
		h, err := o.benchHello(m)
		if err != nil {
			t.Fatal(err)
		}
		if m == modeExpand {
			h.paths = []string{"x"}
		}
		return h
	}
	o.Delete, o.MaxDelete, o.Compress = m == modePush, int64(m)%2*3, CompressAuto
	h, err := o.hello(m)
	if err != nil {
		t.Fatal(err)
	}
	if h.paths = []string{"x"}; m == modePush {
		h.name = "x"
	}
	return h
}

// mayBe reports whether a field of a hello may be another than it is, or be missing:
// what the client chooses and its connection was not sized for. A tag that is changed is
// a field that is missing. In a bench there is its digest alone.
func mayBe(m mode, name string) bool {
	fields := []string{"field 0x85 2", "field 0x85 3", "field 0x85 4"}
	switch m {
	case modeBench:
		fields = append(fields, "field 0x85 0", "tag of field 0x85 ")
	case modeExpand:
		fields = append(fields, "field 0x81 1", "twice", "tag of field 0x89 138") // a push, or one of two paths
	case modePush, modePull:
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

// Every field of a hello of every mode, at 0, 1, beside its value and at the ends of
// its range, cut, left out and twice: the server ends the session, or it is a wish that
// can be met; and nothing stays booked.
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
	for _, m := range []mode{modePush, modePull, modeBench, modePing, modeExpand} {
		refused := 0
		all := mutants(fieldParts(helloOf(t, w, m).encode(), tagPath, tagName))
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

// sayHello is a client that says body for a hello, and ends by what granted returns when
// that is answered by a welcome.
func sayHello(t *testing.T, w hostileWay, addr netip.AddrPort, body []byte, granted func() error) error {
	t.Helper()
	o := w.options()
	d, err := w.client().connect(t.Context(), w.endpoint(addr), o)
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(d, "the server", true, o.Timeouts)
	err = s.run(t.Context(), func(ctx context.Context, _ *errgroup.Group) error {
		if err := s.ctl.send(ctx, msgHello, body); err != nil {
			return err
		}
		return s.expect(ctx, msgWelcome, "welcome", func([]byte) error { return granted() })
	})
	return errors.Join(err, d.close())
}

// sameHello reports whether a message says what the hello says, though in other words:
// without a field that is 0.
func sameHello(t *testing.T, w hostileWay, m mode, body []byte) bool {
	t.Helper()
	h, err := decodeHello(body)
	return err == nil && reflect.DeepEqual(&h, helloOf(t, w, m))
}

// Every field of a welcome likewise, in every mode: the client takes none that
// grants something else than what it asked for.
func TestHostileWelcomes(t *testing.T) {
	OnHost(t)
	step := 5
	if testing.Short() {
		step = 29
	}
	w := byTCP()
	for _, m := range []mode{modePush, modePull, modeBench, modePing, modeExpand} {
		granted := helloOf(t, w, m)
		granted.paths, granted.name = nil, sourceNameOf(granted)
		all := mutants(fieldParts(granted.encode(), tagName))
		for i := 0; i < len(all); i += step {
			ep := hostileWelcoming(t, func(*hello) []byte { return all[i].body }, func(context.Context, *puppet) error { return nil })
			o := w.options()
			agreed := false
			h := helloOf(t, w, m)
			_, err := w.client().benchSession(t.Context(), ep, o, h, func(context.Context, *session, *errgroup.Group) error {
				agreed = true
				return errors.New("the client takes it")
			})
			same, derr := decodeHello(all[i].body)
			if agreed && (derr != nil || !reflect.DeepEqual(&same, granted)) && !(m != modePull && strings.Contains(all[i].name, "0x8b")) {
				t.Errorf("a %s with %s: %v", m, all[i].name, err)
			}
		}
	}
}

// sourceNameOf is the name in the welcome to a hello.
func sourceNameOf(h *hello) string {
	if h.mode == modePull {
		return sourceName(h.paths[0])
	}
	return ""
}
