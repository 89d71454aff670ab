package xfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// pieceOf is an extent of a file of several pieces, with the digest of data.
func pieceOf(off int64, data []byte, flags uint16) wire.Extent {
	return wire.Extent{Off: off, Length: int64(len(data)), Flags: flags, Digest: manifest.XXH3.Piece(data, uint64(off)/manifest.DefaultPieceBytes, manifest.DefaultPieceBytes, false)}
}

// Whatever a source says about a stream, only a stream that ended properly is published.
func TestHostileStream(t *testing.T) {
	OnHost(t)
	const piece = manifest.DefaultPieceBytes
	data := bytes.Repeat([]byte("stream! "), piece/8)
	stream := streamEntry("x", 1)
	for _, tc := range []struct {
		name    string
		flags   uint64
		entries []wire.AnnouncedEntry
		say     func(p *puppet) error
	}{
		{"not agreed", 0, []wire.AnnouncedEntry{stream}, nil},
		{"a file instead", wire.FlagStream, []wire.AnnouncedEntry{fileOf(8)}, nil},
		{"a second one", wire.FlagStream, []wire.AnnouncedEntry{stream, stream}, nil},
		{"a short piece before its end", wire.FlagStream, []wire.AnnouncedEntry{stream}, func(p *puppet) error { return p.chunk(0, 0, 1, data[:8], pieceOf(0, data[:8], 0)) }},
		{"an end behind its end", wire.FlagStream, []wire.AnnouncedEntry{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, data, pieceOf(0, data[:8], wire.ExtLast), pieceOf(piece, data[:8], wire.ExtLast))
		}},
		{"an end of nothing", wire.FlagStream, []wire.AnnouncedEntry{stream}, func(p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, data, pieceOf(0, data, 0)), p.chunk(1, 1, 1, nil, pieceOf(piece, nil, wire.ExtLast)))
		}},
		{"a hole as its end", wire.FlagStream, []wire.AnnouncedEntry{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, nil, wire.Extent{Length: piece, Flags: wire.ExtLast | wire.ExtHole})
		}},
		{"an end far away", wire.FlagStream, []wire.AnnouncedEntry{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, data, pieceOf(wire.StreamBytes-piece, data, wire.ExtLast))
		}},
		{"an end at the end of everything", wire.FlagStream, []wire.AnnouncedEntry{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, data, pieceOf(wire.StreamBytes, data, wire.ExtLast))
		}},
		{"no end", wire.FlagStream, []wire.AnnouncedEntry{stream}, func(p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, data, pieceOf(0, data, 0)), p.Ctl.Send(t.Context(), wire.MsgRoot, (&wire.Roots{}).Encode()))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			err := hostileHello(t, addr, wire.ModePush, "x", func(h *wire.Hello) { h.Terms.Flags = tc.flags }, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				if err := p.announce(ctx, tc.entries...); err != nil {
					return err
				}
				if tc.say != nil {
					if err := tc.say(p); err != nil {
						return err
					}
				}
				for {
					if err := p.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
						return err
					}
				}
			})
			wantCutOff(t, err, ends)
			if names, err := os.ReadDir(root); err != nil || len(names) > 0 {
				t.Errorf("left behind: %v, %v", names, err)
			}
		})
	}
}

func TestHellosOfStreams(t *testing.T) {
	made := wire.Terms{Slots: 1, QPs: 1, ChunkBytes: 1 << 20}
	hi := func(change func(*wire.Hello)) *wire.Hello {
		h := &wire.Hello{Terms: wire.Terms{Mode: wire.ModePush, ChunkBytes: 1 << 20, PieceBytes: 1 << 20, Hash: manifest.XXH3, Slots: 1, QPs: 1, Flags: wire.FlagStream}, Paths: []string{"x"}}
		change(h)
		return h
	}
	if err := hi(func(*wire.Hello) {}).Check(&made); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*wire.Hello){
		"a pull":           func(h *wire.Hello) { h.Terms.Mode = wire.ModePull },
		"of directories":   func(h *wire.Hello) { h.Terms.Flags |= wire.FlagRecursive },
		"of several":       func(h *wire.Hello) { h.Terms.Flags |= wire.FlagMany },
		"into a directory": func(h *wire.Hello) { h.Terms.Flags |= wire.FlagMustBeDir },
		"to a GPU":         func(h *wire.Hello) { h.GPU = 1 },
	} {
		if err := hi(change).Check(&made); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// kept is an output that keeps what is written to it.
type kept struct {
	mu  sync.Mutex
	got bytes.Buffer
}

func (k *kept) Write(b []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got.Write(b)
}

func (k *kept) Interrupt() {}

func (k *kept) Finish() error { return nil }

func (k *kept) String() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.got.String()
}

// Whatever a server sends for a stream, only pieces that match their digests are written, each in
// its place.
func TestHostileServerOfAStream(t *testing.T) {
	OnHost(t)
	rdmatest.BesideOthers(t)
	const piece = manifest.DefaultPieceBytes
	first, second := bytes.Repeat([]byte("1"), piece), bytes.Repeat([]byte("2"), piece)
	evil := bytes.Repeat([]byte("e"), piece)
	for _, tc := range []struct {
		name    string
		entries []wire.AnnouncedEntry
		say     func(ctx context.Context, p *puppet) error
		want    string
		err     error
	}{
		{"a stream", []wire.AnnouncedEntry{streamEntry("f", 1)}, nil, "", ErrProtocol},
		{"two files", []wire.AnnouncedEntry{fileAt("f", 4), fileAt("g", 4)}, nil, "", ErrProtocol},
		{"another file", []wire.AnnouncedEntry{fileAt("g", 4)}, nil, "", ErrProtocol},
		{"a link", []wire.AnnouncedEntry{linkTo("f", "/etc/passwd")}, nil, "", ErrProtocol},
		{"a directory", []wire.AnnouncedEntry{dirAt(".")}, nil, "", ErrProtocol},
		{"sent again unasked", []wire.AnnouncedEntry{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.repair(0, 1, 1, evil, pieceOf(0, evil, 0)))
		}, string(first), ErrProtocol},
		{"another piece again", []wire.AnnouncedEntry{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			err := p.chunk(0, 0, 1, evil, pieceOf(0, first, 0))
			return errors.Join(err, p.asked(ctx), p.repair(0, 1, 1, second, pieceOf(piece, second, wire.ExtLast)))
		}, "", ErrProtocol},
		{"in its turn twice", []wire.AnnouncedEntry{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.chunk(1, 1, 1, first, pieceOf(0, first, 0)))
		}, string(first), ErrProtocol},
		{"a piece given up, with bytes nowhere", []wire.AnnouncedEntry{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			x := pieceOf(0, first, wire.ExtFailed|wire.ExtArrived)
			x.SlotOff = 1 << 30
			err := p.chunk(0, 0, 1, nil, x)
			if err == nil {
				_, _, err = p.whatBecame(ctx, false)
			}
			return errors.Join(err, p.Ctl.Send(ctx, wire.MsgFail, wire.AppendException(nil, &wire.Exception{Entry: 0, Outcome: Changed, Text: "changed while it was read"})))
		}, "", nil},
		{"never whole", []wire.AnnouncedEntry{fileAt("f", 3*piece)}, func(ctx context.Context, p *puppet) error {
			err := errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.chunk(1, 1, 1, evil, pieceOf(piece, second, 0)),
				p.chunk(2, 2, 1, first, pieceOf(2*piece, first, wire.ExtLast)))
			for generation := range uint64(flow.MaxResends) {
				err = errors.Join(err, p.asked(ctx), p.repair(1, 3, generation+1, evil, pieceOf(piece, second, 0)))
			}
			return err
		}, string(first), nil},
		{"with another digest", []wire.AnnouncedEntry{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			err := errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.chunk(1, 1, 1, first, pieceOf(piece, second, wire.ExtLast)))
			return errors.Join(err, p.asked(ctx), p.repair(1, 3, 1, evil, pieceOf(piece, evil, wire.ExtLast)))
		}, string(first), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ep := hostileServing(t, "f", func(ctx context.Context, p *puppet) error {
				if err := p.announce(ctx, tc.entries...); err != nil {
					return err
				}
				if tc.say != nil {
					if err := tc.say(ctx, p); err != nil {
						return err
					}
				}
				// The remaining cases may look like an end.
				return p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, uint64(len(tc.entries))))
			})
			out := &kept{}
			var told strings.Builder
			ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(shortTimeouts().Silence))
			defer cancel()
			o := Options{Transport: "tcp", Slots: hostileSlots, Timeouts: shortTimeouts(), Report: func(e Event) {
				if told.WriteString(e.Text); tc.err == nil && e.Kind == EventFile {
					cancel() // the source sends nothing more
				}
			}}
			c := Client{TCP: tcp.New()}
			_, err := c.PullStream(ctx, ep, "f", out, o)
			switch {
			case err == nil:
				t.Error("the client took it for a copy")
			case tc.err != nil && !errors.Is(err, tc.err):
				t.Errorf("got %v", err)
			case tc.err == nil && !strings.Contains(told.String(), "did not verify") && !strings.Contains(told.String(), "changed while"):
				t.Errorf("told %q", told.String())
			}
			if got := out.String(); got != tc.want {
				t.Errorf("%d bytes were written, want %d", len(got), len(tc.want))
			}
		})
	}
}
