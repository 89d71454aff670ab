package xfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

func basisBody(files ...wire.Basis) []byte {
	var b []byte
	next := uint64(0)
	for _, f := range files {
		b = wire.AppendBasis(b, next, f)
		next = f.Entry + 1
	}
	return b
}

// Whatever a hostile sink claims to compare, the source's session ends.
func TestHostileSinkOfComparisons(t *testing.T) {
	OnHost(t)
	plan := func(upto uint64) message { return message{wire.MsgPlan, binary.AppendUvarint(nil, upto)} }
	basis := func(entry, pieces uint64) message {
		return message{wire.MsgBasis, basisBody(wire.Basis{Entry: entry, Pieces: pieces})}
	}
	// The source has the directory ".", the file "large" of 3 pieces, the empty file "none"
	// and "small".
	for _, tc := range []struct {
		name  string
		flags uint64
		say   []message
	}{
		{"nothing is compared", 0, []message{basis(1, 3)}},
		{"more pieces than there are", wire.FlagChecksum, []message{basis(1, 4)}},
		{"fewer", wire.FlagChecksum, []message{basis(1, 2)}},
		{"none", wire.FlagChecksum, []message{{wire.MsgBasis, []byte{1, 0}}}},
		{"all pieces of a file that gets longer", wire.FlagAppend, []message{basis(1, 3)}},
		{"an empty file that gets longer", wire.FlagAppend, []message{basis(2, 1)}},
		{"two pieces of an empty file", wire.FlagChecksum, []message{basis(2, 2)}},
		{"a directory", wire.FlagChecksum, []message{basis(0, 1)}},
		{"an entry that was not announced", wire.FlagChecksum, []message{basis(4, 1)}},
		{"twice", wire.FlagChecksum, []message{basis(1, 3), basis(1, 3)}},
		{"after the plan", wire.FlagChecksum, []message{plan(2), basis(1, 3)}},
		{"half a message", wire.FlagChecksum, []message{{wire.MsgBasis, []byte{1}}}},
		{"a file that it does not want", wire.FlagChecksum | wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(1, 1)}, basis(1, 3)}},
		{"kept without a look", wire.FlagChecksum, []message{basis(1, 3), plan(4), {wire.MsgResult, wire.AppendException([]byte{2}, &wire.Exception{Entry: 1, Outcome: Kept})}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			for name, size := range map[string]int{"large": 2<<20 + 1, "none": 0, "small": 5} {
				if err := os.WriteFile(filepath.Join(root, name), make([]byte, size), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			hostileSink(t, addr, func(h *wire.Hello) { h.Terms.Flags |= tc.flags }, tc.say)
			if end := <-ends; !errors.Is(end.Err, ErrProtocol) {
				t.Errorf("the server ended with %v", end.Err)
			}
		})
	}
}

// A hostile source cannot send digests of pieces that are not compared, nor bytes of those that
// are, nor make a sink read more for a chunk than a chunk may stand for.
func TestHostileSourceOfComparisons(t *testing.T) {
	OnHost(t)
	const size = 20 << 20
	old := make([]byte, size)
	digest := func(i int64, flags uint16) wire.Extent {
		return wire.Extent{Entry: 1, Off: i << 20, Length: 1 << 20, Flags: wire.ExtDigest | flags, Digest: manifest.XXH3.Piece(old[:1<<20], uint64(i), 1<<20, false)}
	}
	one := func(payload []byte, xs ...wire.Extent) func(ctx context.Context, p *puppet) error {
		return func(ctx context.Context, p *puppet) error { return p.chunk(0, 0, 1, payload, xs...) }
	}
	nine := make([]wire.Extent, 9)
	for i := range nine {
		nine[i] = digest(int64(i), 0)
	}
	bytesOf := digest(0, 0)
	bytesOf.Flags = 0
	short := digest(0, 0)
	short.Length--
	for _, tc := range []struct {
		name  string
		flags uint64
		entry wire.AnnouncedEntry
		say   func(ctx context.Context, p *puppet) error
	}{
		{"nothing is compared", 0, fileAt("f", size), one(nil, digest(0, 0))},
		{"no such file", wire.FlagChecksum, fileAt("g", size), one(nil, digest(0, 0))},
		{"another size", wire.FlagChecksum, fileAt("f", size+1), one(nil, digest(0, 0))},
		{"bytes", wire.FlagChecksum, fileAt("f", size), one(old[:1<<20], bytesOf)},
		{"too many digests in a chunk", wire.FlagChecksum, fileAt("f", size), one(nil, nine...)},
		{"half a piece", wire.FlagChecksum, fileAt("f", size), one(nil, short)},
		{"two pieces in one of a file given up", wire.FlagChecksum, fileAt("f", size), func(ctx context.Context, p *puppet) error {
			failed, two := digest(0, 0), digest(0, 0)
			failed.Flags, failed.Length, two.Length = wire.ExtFailed, 0, 2<<20
			err := p.chunk(0, 0, 1, nil, failed, two)
			if err == nil {
				_, _, err = p.whatBecame(ctx, false)
			}
			return errors.Join(err, p.repair(0, 1, 1, nil, digest(0, 0))) // this one ends it
		}},
		{"the end in the middle", wire.FlagChecksum, fileAt("f", size), one(nil, digest(0, wire.ExtLast))},
		{"a digest that is a hole", wire.FlagChecksum, fileAt("f", size), one(nil, digest(0, wire.ExtHole))},
		{"a digest in a repair", wire.FlagChecksum, fileAt("f", size), func(ctx context.Context, p *puppet) error {
			return p.repair(0, 0, 1, nil, digest(0, 0))
		}},
		{"a hole in a repair", wire.FlagChecksum, fileAt("f", size), func(ctx context.Context, p *puppet) error {
			return p.repair(0, 0, 1, nil, wire.Extent{Entry: 1, Length: 1 << 20, Flags: wire.ExtHole})
		}},
		{"bytes that nobody wanted", wire.FlagChecksum, fileAt("f", size), func(ctx context.Context, p *puppet) error {
			if err := p.chunk(0, 0, 1, nil, digest(0, 0)); err != nil {
				return err
			}
			return p.repair(0, 1, 1, old[:1<<20], bytesOf)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			if err := os.WriteFile(filepath.Join(root, "f"), old, 0o644); err != nil {
				t.Fatal(err)
			}
			err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) {
				h.Terms.Name, h.Terms.Flags = ".", h.Terms.Flags|tc.flags
			}, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := errors.Join(p.ready(ctx), p.announce(ctx, dirAt("."), tc.entry)); err != nil {
					return err
				}
				if err := tc.say(ctx, p); err != nil {
					return err
				}
				return listen(ctx, s)
			})
			wantCutOff(t, err, ends)
			if b, err := os.ReadFile(filepath.Join(root, "f")); err != nil || len(b) != size {
				t.Errorf("the file has %d bytes: %v", len(b), err)
			}
		})
	}
}

// A hostile source cannot send data that was not requested: the sink may still be about to report
// what it has of it.
func TestHostileSourceBeforeThePlan(t *testing.T) {
	OnHost(t)
	old := make([]byte, 2<<20)
	root, addr, ends := hostileServer(t)
	if err := os.WriteFile(filepath.Join(root, "f"), old, 0o644); err != nil {
		t.Fatal(err)
	}
	err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) {
		h.Terms.Name, h.Terms.Flags = ".", h.Terms.Flags|wire.FlagChecksum
	}, func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		body, scratch := []byte{0}, wire.Writer{}
		for _, e := range []wire.AnnouncedEntry{dirAt("."), fileAt("f", len(old))} {
			body = wire.AppendEntry(body, &e, &scratch)
		}
		// Without a total there is no plan.
		if err := errors.Join(p.Ctl.Send(ctx, wire.MsgEntries, body), p.await(ctx, wire.MsgBasis)); err != nil {
			return err
		}
		x := wire.Extent{Entry: 1, Length: 1 << 20, Flags: wire.ExtDigest, Digest: manifest.XXH3.Piece(old[:1<<20], 0, 1<<20, false)}
		if err := p.chunk(0, 0, 1, nil, x); err != nil {
			return err
		}
		return listen(ctx, s)
	})
	wantCutOff(t, err, ends)
}

// A source that claims the digests of the existing file, and has other roots at the end, does not
// pass for verified. The bytes that it wants to change come under the digest that it claimed first.
func TestHostileSourceClaimsAnotherDigest(t *testing.T) {
	OnHost(t)
	old := make([]byte, 2<<20)
	root, addr, ends := hostileServer(t)
	if err := os.WriteFile(filepath.Join(root, "f"), old, 0o644); err != nil {
		t.Fatal(err)
	}
	first, second := []byte("first"), []byte("other")
	err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) {
		h.Terms.Name, h.Terms.Flags = ".", h.Terms.Flags|wire.FlagChecksum
	}, func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := errors.Join(p.ready(ctx), p.announce(ctx, dirAt("."), fileAt("f", 2<<20))); err != nil {
			return err
		}
		piece := func(text []byte) ([]byte, wire.Extent) {
			b := append(text, old[:1<<20-len(text)]...)
			return b, wire.Extent{Entry: 1, Length: 1 << 20, Digest: manifest.XXH3.Piece(b, 0, 1<<20, false)}
		}
		_, x := piece(first)
		x.Flags = wire.ExtDigest
		if err := p.chunk(0, 0, 1, nil, x); err != nil {
			return err
		}
		if err := p.asked(ctx); err != nil {
			return err
		}
		b, y := piece(second)
		if err := p.repair(0, 1, 1, b, y); err != nil {
			return err
		}
		for {
			var xs []wire.Exception
			err := p.Receive(ctx, func(f *wire.Frame) (err error) {
				if f.Type == wire.MsgResult {
					_, xs, err = wire.DecodeResult(f.Body)
				}
				return err
			})
			if err != nil || len(xs) == 1 && xs[0].Outcome == Changed {
				return err
			}
		}
	})
	if err != nil {
		t.Errorf("the file was not given up: %v", err)
	}
	<-ends
	if b, err := os.ReadFile(filepath.Join(root, "f")); err != nil || b[0] != 0 {
		t.Errorf("the file was replaced: %v", err)
	}
}

// A piece that is requested again comes as a piece, a hole as that hole. Otherwise a source could
// send a hole instead, and zeros would pass for what it claimed.
func TestHostileSourceSwapsAPieceForAHole(t *testing.T) {
	OnHost(t)
	const piece = 1 << 20
	b := append([]byte("new"), make([]byte, piece-3)...)
	for name, c := range map[string]struct {
		fileBytes   int64
		first, then wire.Extent
	}{
		"a hole for a piece":          {2 * piece, wire.Extent{Length: piece, Flags: wire.ExtDigest}, wire.Extent{Length: piece, Flags: wire.ExtHole}},
		"a hole for the only piece":   {piece, wire.Extent{Length: piece, Flags: wire.ExtDigest | wire.ExtLast}, wire.Extent{Length: piece, Flags: wire.ExtHole | wire.ExtLast}},
		"a longer hole than the hole": {4 * piece, wire.Extent{Length: piece, Flags: wire.ExtHole}, wire.Extent{Length: 2 * piece, Flags: wire.ExtHole}},
	} {
		t.Run(name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			old := bytes.Repeat([]byte("old!"), int(c.fileBytes)/4)
			if err := os.WriteFile(filepath.Join(root, "f"), old, 0o644); err != nil {
				t.Fatal(err)
			}
			err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) {
				h.Terms.Name, h.Terms.Flags = ".", h.Terms.Flags|wire.FlagChecksum
			}, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := errors.Join(p.ready(ctx), p.announce(ctx, dirAt("."), fileAt("f", int(c.fileBytes)))); err != nil {
					return err
				}
				for _, x := range []*wire.Extent{&c.first, &c.then} {
					x.Entry, x.Digest = 1, manifest.XXH3.Piece(b, 0, piece, c.fileBytes == piece)
				}
				if err := p.chunk(0, 0, 1, nil, c.first); err != nil {
					return err
				}
				if err := p.asked(ctx); err != nil {
					return err
				}
				if err := p.repair(0, 1, 1, nil, c.then); err != nil {
					return err
				}
				for {
					if err := p.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
						return err
					}
				}
			})
			if err == nil {
				t.Error("the server took it")
			}
			if e := <-ends; !errors.Is(e.Err, ErrProtocol) {
				t.Errorf("it ended with %v", e.Err)
			}
			if now, err := os.ReadFile(filepath.Join(root, "f")); err != nil || !bytes.Equal(now, old) {
				t.Errorf("the file was replaced: %v", err)
			}
		})
	}
}
