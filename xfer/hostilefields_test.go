package xfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// handTree is a directory, a file and a link, which are sent by hand.
func handTree() []wire.AnnouncedEntry {
	return []wire.AnnouncedEntry{dirAt("."), fileAt("a", len(handData)), linkTo("l", "nowhere")}
}

var handData = bytes.Repeat([]byte("by hand "), 700)

// spoilt is one damaged message of a conversation by hand. Its number selects one of all the ways
// to damage it.
type spoilt struct {
	what  string
	which int
}

// of returns the message to send when right is due.
func (s *spoilt) of(what string, right []byte) []byte {
	if s == nil || s.what != what {
		return right
	}
	m := mutants(handLayouts[what](right))[s.which]
	if what == "header" && !strings.HasPrefix(m.name, "checksum") && len(m.body) >= wire.HopBytes+wire.BareChunkBytes+wire.SumBytes {
		wire.PutSum(m.body[wire.HopBytes:]) // the damage must be reached
	}
	return m.body
}

// handLayouts describe the fields of each message.
var handLayouts = map[string]func(right []byte) []part{
	"hello":   func(b []byte) []part { return fieldParts(b, wire.TagPath, wire.TagName) },
	"entries": entriesParts,
	"total":   func(b []byte) []part { return append(uvarintPartsOf(b[:len(b)-1]), part{name: "final", bits: 8, v: 1}) },
	"end":     uvarintPartsOf,
	"root":    func(b []byte) []part { return fixedParts(b, -256, -256, 64, 64) },
	"header":  headerParts,
	"immediate": func(b []byte) []part {
		return fixedParts(b, 32)
	},
	"a ring":     func(b []byte) []part { return fixedParts(b, 32, 32, 32, 32, 64, 64, 32, 32) },
	"a memory":   func(b []byte) []part { return fieldParts(b, 2, 3, 4, 5, 6) },
	"a fail":     func(b []byte) []part { return fixedParts(b, 8, 8, 8, -24) },
	"an abort":   func(b []byte) []part { return fixedParts(b, 8, -24) },
	"an ack":     func([]byte) []part { return nil },
	"a pong":     func([]byte) []part { return nil },
	"a credit":   uvarintPartsOf,
	"a result":   uvarintPartsOf,
	"a plan":     uvarintPartsOf,
	"a reading":  uvarintPartsOf,
	"a done":     func(b []byte) []part { return fixedParts(b, -256, -256, 64, 64) },
	"an unknown": func(b []byte) []part { return fixedParts(b, 32) },
}

// besides are messages that a source has no reason to send. They are sent before the entries.
func besides() map[string]struct {
	t    wire.MsgType
	body []byte
} {
	type besides = struct {
		t    wire.MsgType
		body []byte
	}
	ring := wire.RingInfo{Link: 1, Slots: hostileSlots, SlotBytes: 1 << 20, PayloadAddr: 1 << 20, HeaderAddr: 1 << 30, PayloadKey: 7, HeaderKey: 8}
	memory := Memory{GPU: 1, Name: "x", Rung: RungStaged, Why: "y"}
	return map[string]besides{
		"a ring":     {wire.MsgRing, ring.Encode()},
		"a memory":   {wire.MsgMemory, memory.Encode()},
		"a fail":     {wire.MsgFail, wire.AppendException(nil, &wire.Exception{Entry: 1, Outcome: Failed, Text: "why"})},
		"an abort":   {wire.MsgAbort, (&wire.Abort{Class: ClassError, Text: "why"}).Encode()},
		"an ack":     {wire.MsgAck, nil},
		"a pong":     {wire.MsgPong, nil},
		"a credit":   {wire.MsgCredit, wire.AppendReturned(nil, &wire.ReturnedSlot{Slot: 1, Generation: 1})},
		"a result":   {wire.MsgResult, []byte{1}},
		"a plan":     {wire.MsgPlan, []byte{1}},
		"a reading":  {wire.MsgRead, DiskIO{Direct: 1, DontCache: 2, Buffered: 3}.Encode()},
		"a done":     {wire.MsgDone, (&wire.Roots{}).Encode()},
		"an unknown": {0x3e, make([]byte, 4)},
	}
}

func entriesParts(b []byte) []part {
	ps := uvarintPartsOf(b[:1])
	for b = b[1:]; len(b) > 0; {
		n := int(b[0])
		fields := fieldParts(b[1:1+n], wire.TagEntPath, wire.TagEntTarget)
		ps = append(ps, part{name: "length of an entry", v: uint64(n), covers: len(fields)})
		ps = append(ps, fields...)
		b = b[1+n:]
	}
	return ps
}

// headerParts splits the header of a chunk of one extent.
func headerParts(b []byte) []part {
	hop := []int{32, 32, 64, 32, 32, 64, 64, -128, 64}
	e2e := []int{64, 8, 8, 16, 32, 32, 32}
	extent := []int{64, 64, 64, 32, 16, 16, -256}
	n := len(b) - wire.SumBytes
	ps := fixedParts(b[:n], append(append(hop, e2e...), extent...)...)
	return append(ps, part{name: "checksum", bits: 64, v: binary.LittleEndian.Uint64(b[n:])})
}

// converse runs a whole push by hand with a server, with the damaged message, until the server has
// sent everything or ends it.
func converse(t *testing.T, w hostileWay, ep Endpoint, o *Options, sp *spoilt) error {
	t.Helper()
	h, err := o.hello(wire.ModePush)
	if err != nil {
		t.Fatal(err)
	}
	h.Paths, h.Terms.Name = []string{"x"}, "x"
	c := Client{TCP: w.provider, Verbs: w.provider}
	d, err := c.connect(t.Context(), ep, o)
	if err != nil {
		return err
	}
	s := newSession(d, "the server", true, o.Timeouts)
	err = s.Run(t.Context(), func(ctx context.Context, _ *errgroup.Group) error {
		ctx, cancel := context.WithTimeout(ctx, o.Timeouts.Silence)
		defer cancel()
		p := &puppet{Session: s}
		if err := s.Ctl.Send(ctx, wire.MsgHello, sp.of("hello", h.Encode())); err != nil {
			return err
		}
		err := s.Expect(ctx, wire.MsgWelcome, "welcome", func([]byte) error {
			s.Terms = h.Terms
			return nil
		})
		if err != nil {
			return err
		}
		if err := p.ready(ctx); err != nil {
			return err
		}
		return p.push(ctx, o, sp)
	})
	return errors.Join(err, d.close())
}

// rightly returns each message undamaged, to count the ways to damage it.
func rightly(t *testing.T, w hostileWay) map[string][]byte {
	t.Helper()
	h, err := w.options().hello(wire.ModePush)
	if err != nil {
		t.Fatal(err)
	}
	h.Paths, h.Terms.Name, h.GPU = []string{"x"}, "x", 0
	entries, scratch := []byte{0}, wire.Writer{}
	for _, e := range handTree() {
		entries = wire.AppendEntry(entries, &e, &scratch)
	}
	// Numbers that differ in each session are far from the ends of their ranges.
	header := make([]byte, wire.HeaderStride)
	c := wire.ChunkHeader{Session: 1 << 50, Link: 1, Generation: 1, Extents: []wire.Extent{whole(1, handData)}, StoredBytes: uint32(len(handData)), PlainBytes: uint32(len(handData))}
	all := map[string][]byte{
		"hello": h.Encode(), "entries": entries, "total": (&wire.Totals{Entries: 3, Bytes: uint64(len(handData)), Final: true}).Encode(),
		"end": {3}, "root": (&wire.Roots{Entries: 3, Bytes: 1 << 50}).Encode(), "header": header[:c.Encode(header)],
		"immediate": binary.LittleEndian.AppendUint32(nil, wire.Immediate(0, 1)),
	}
	for what, m := range besides() {
		all[what] = m.body
	}
	return all
}

// Every field of every message of a client that is a source, and of the chunk's header, is set to
// 0, 1, a neighbour of its value and the ends of its range, cut, left out and doubled: the session
// ends, with an error or with the right bytes, and nothing is written outside the destination.
func TestHostileFields(t *testing.T) { overHostile(t, testHostileFields) }

func testHostileFields(t *testing.T, w hostileWay) {
	if err := spoil(t, w, nil); err != nil {
		t.Fatalf("what is right is refused: %v", err)
	}
	step := 13
	switch {
	case w.name != "tcp": // what is read is the same, and arrives slowly
		step = 401
	case testing.Short():
		step = 101
	}
	if os.Getenv("GDRCP_TEST_FULL") == "1" {
		step = 1
	}
	var all []spoilt
	var names []string
	for what, right := range rightly(t, w) {
		for i, m := range mutants(handLayouts[what](right)) {
			all, names = append(all, spoilt{what, i}), append(names, what+": "+m.name)
		}
	}
	order := make([]int, len(all))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(names[a], names[b]) })
	t.Run("all", func(t *testing.T) {
		turns := make(chan struct{}, 8)
		for i := 0; i < len(order); i += step {
			at := order[i]
			t.Run(names[at], func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				err := spoil(t, w, &all[at])
				t.Logf("%s: %v", names[at], err)
				if err == nil && !harmless(names[at]) {
					t.Errorf("%s was taken", names[at])
				}
			})
		}
	})
	t.Logf("%d of %d", (len(order)+step-1)/step, len(order))
}

// harmless reports whether a session may end well in spite of the damage: a request that can be
// met, text that is only for people, fields that may be left out, and bytes after the end of a
// header or, without encryption, of the seal's number.
func harmless(name string) bool {
	for _, prefix := range []string{
		"hello: field 0x88", "hello: field 0x89", "hello: tag of field 0x88", "hello: tag of field 0x89", "hello: without tag of field 0x88",
		"total: field ", "total: final 0", "a memory: ", "an ack: ",
		"entries: tag of field 0x85", "entries: without tag of field 0x85", // the modification time is 0
		"header: twice", "header: a byte more", "header: field 6 ", "immediate: a byte", "immediate: twice",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// spoil runs a conversation with a server of its own and checks the result.
func spoil(t *testing.T, w hostileWay, sp *spoilt) error {
	t.Helper()
	outside := t.TempDir()
	root, addr, ends := w.serve(t, func(c *ServerConfig) {
		c.Keys = OneKey(testKey, Admission{Root: DirRoot(filepath.Join(outside, "root"))})
	})
	if err := os.Mkdir(filepath.Join(outside, "root"), 0o755); err != nil {
		t.Fatal(err)
	}
	o := w.options()
	if sp != nil { // some damage leaves both ends waiting for each other
		o.Timeouts.Handshake, o.Timeouts.Silence = w.slow*time.Second/2, w.slow*time.Second/2
	}
	err := converse(t, w, w.endpoint(addr), o, sp)
	select {
	case end := <-ends:
		if err == nil {
			err = end.Err
		}
	case <-time.After(rdmatest.Stretch(w.slow * 10 * time.Second)):
		t.Error("the session does not end")
	}
	checkSpoilt(t, outside, err)
	if names, _ := os.ReadDir(root); len(names) > 0 {
		t.Errorf("another root has %v", names)
	}
	return err
}

// checkSpoilt checks everything that exists after a conversation.
func checkSpoilt(t *testing.T, outside string, err error) {
	t.Helper()
	got := map[string]string{}
	walk := filepath.WalkDir(outside, func(path string, e fs.DirEntry, err error) error {
		if err == nil && path != outside {
			got[strings.TrimPrefix(path, outside+"/")] = e.Type().String()
		}
		return err
	})
	if walk != nil {
		t.Fatal(walk)
	}
	for path := range got {
		if path != "root" && path != "root/x" && !strings.HasPrefix(path, "root/x/") {
			t.Errorf("%s was made", path)
		}
		if strings.Contains(path, ".gdrcp-") {
			t.Errorf("%s was left", path)
		}
	}
	b, rerr := os.ReadFile(filepath.Join(outside, "root", "x", "a"))
	if rerr == nil && !bytes.Equal(b, handData) {
		t.Errorf("the file has %d bytes that were not sent", len(b))
	}
	if err == nil && rerr != nil {
		t.Errorf("the session ended well, without its file: %v", rerr)
	}
}
