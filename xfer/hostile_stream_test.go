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
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// pieceOf is an extent of a file of several pieces, with the digest of data.
func pieceOf(off int64, data []byte, flags uint16) extent {
	return extent{off: off, length: int64(len(data)), flags: flags, digest: manifest.XXH3.Piece(data, uint64(off)/manifest.DefaultPieceBytes, manifest.DefaultPieceBytes, false)}
}

// Whatever a source says of a stream, nothing is published that has not come to
// its end as it should.
func TestHostileStream(t *testing.T) {
	OnHost(t)
	const piece = manifest.DefaultPieceBytes
	data := bytes.Repeat([]byte("stream! "), piece/8)
	stream := streamEntry("x", 1)
	for _, tc := range []struct {
		name    string
		flags   uint64
		entries []planned
		say     func(p *puppet) error
	}{
		{"not agreed", 0, []planned{stream}, nil},
		{"a file instead", flagStream, []planned{fileOf(8)}, nil},
		{"a second one", flagStream, []planned{stream, stream}, nil},
		{"a short piece before its end", flagStream, []planned{stream}, func(p *puppet) error { return p.chunk(0, 0, 1, data[:8], pieceOf(0, data[:8], 0)) }},
		{"an end behind its end", flagStream, []planned{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, data, pieceOf(0, data[:8], extLast), pieceOf(piece, data[:8], extLast))
		}},
		{"an end of nothing", flagStream, []planned{stream}, func(p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, data, pieceOf(0, data, 0)), p.chunk(1, 1, 1, nil, pieceOf(piece, nil, extLast)))
		}},
		{"a hole as its end", flagStream, []planned{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, nil, extent{length: piece, flags: extLast | extHole})
		}},
		{"an end far away", flagStream, []planned{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, data, pieceOf(streamBytes-piece, data, extLast))
		}},
		{"an end at the end of everything", flagStream, []planned{stream}, func(p *puppet) error {
			return p.chunk(0, 0, 1, data, pieceOf(streamBytes, data, extLast))
		}},
		{"no end", flagStream, []planned{stream}, func(p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, data, pieceOf(0, data, 0)), p.ctl.send(t.Context(), msgRoot, (&roots{}).encode()))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			err := hostileHello(t, addr, modePush, "x", func(h *hello) { h.flags = tc.flags }, func(ctx context.Context, s *session) error {
				p := &puppet{session: s}
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
					if err := p.receive(ctx, func(*frame) error { return nil }); err != nil {
						return err
					}
				}
			})
			if err == nil {
				t.Error("the hostile end was not cut off")
			}
			if end := <-ends; !errors.Is(end.Err, ErrProtocol) {
				t.Errorf("the server ended with %v", end.Err)
			}
			if names, err := os.ReadDir(root); err != nil || len(names) > 0 {
				t.Errorf("left behind: %v, %v", names, err)
			}
		})
	}
}

func TestHellosOfStreams(t *testing.T) {
	made := params{slots: 1, qps: 1, chunkBytes: 1 << 20}
	hi := func(change func(*hello)) *hello {
		h := &hello{mode: modePush, chunkBytes: 1 << 20, pieceBytes: 1 << 20, hash: manifest.XXH3, slots: 1, qps: 1, flags: flagStream, paths: []string{"x"}}
		change(h)
		return h
	}
	if err := hi(func(*hello) {}).check(&made); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*hello){
		"a pull":           func(h *hello) { h.mode = modePull },
		"of directories":   func(h *hello) { h.flags |= flagRecursive },
		"of several":       func(h *hello) { h.flags |= flagMany },
		"into a directory": func(h *hello) { h.flags |= flagMustBeDir },
		"to a GPU":         func(h *hello) { h.gpu = 1 },
	} {
		if err := hi(change).check(&made); !errors.Is(err, ErrProtocol) {
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

// asked waits until something is wanted again.
func (p *puppet) asked(ctx context.Context) error {
	for again := false; !again; {
		err := p.receive(ctx, func(f *frame) error {
			if f.typ != msgCredit {
				return nil
			}
			return decodeCredit(f.body, nil, func(r *returned) error {
				again = again || len(r.bad) > 0
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// Whatever a server sends for a stream, only pieces that have their digests are
// written, each in its place.
func TestHostileServerOfAStream(t *testing.T) {
	OnHost(t)
	rdmatest.BesideOthers(t)
	const piece = manifest.DefaultPieceBytes
	first, second := bytes.Repeat([]byte("1"), piece), bytes.Repeat([]byte("2"), piece)
	evil := bytes.Repeat([]byte("e"), piece)
	for _, tc := range []struct {
		name    string
		entries []planned
		say     func(ctx context.Context, p *puppet) error
		want    string
		err     error
	}{
		{"a stream", []planned{streamEntry("f", 1)}, nil, "", ErrProtocol},
		{"two files", []planned{fileAt("f", 4), fileAt("g", 4)}, nil, "", ErrProtocol},
		{"another file", []planned{fileAt("g", 4)}, nil, "", ErrProtocol},
		{"a link", []planned{linkTo("f", "/etc/passwd")}, nil, "", ErrProtocol},
		{"a directory", []planned{dirAt(".")}, nil, "", ErrProtocol},
		{"sent again unasked", []planned{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.repair(0, 1, 1, evil, pieceOf(0, evil, 0)))
		}, string(first), ErrProtocol},
		{"another piece again", []planned{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			err := p.chunk(0, 0, 1, evil, pieceOf(0, first, 0))
			return errors.Join(err, p.asked(ctx), p.repair(0, 1, 1, second, pieceOf(piece, second, extLast)))
		}, "", ErrProtocol},
		{"in its turn twice", []planned{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			return errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.chunk(1, 1, 1, first, pieceOf(0, first, 0)))
		}, string(first), ErrProtocol},
		{"never whole", []planned{fileAt("f", 3*piece)}, func(ctx context.Context, p *puppet) error {
			err := errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.chunk(1, 1, 1, evil, pieceOf(piece, second, 0)),
				p.chunk(2, 2, 1, first, pieceOf(2*piece, first, extLast)))
			for generation := range uint64(maxResends) {
				err = errors.Join(err, p.asked(ctx), p.repair(1, 3, generation+1, evil, pieceOf(piece, second, 0)))
			}
			return err
		}, string(first), nil},
		{"with another digest", []planned{fileAt("f", 2*piece)}, func(ctx context.Context, p *puppet) error {
			err := errors.Join(p.chunk(0, 0, 1, first, pieceOf(0, first, 0)), p.chunk(1, 1, 1, first, pieceOf(piece, second, extLast)))
			return errors.Join(err, p.asked(ctx), p.repair(1, 3, 1, evil, pieceOf(piece, evil, extLast)))
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
				// What is left may be an end of a kind.
				return p.ctl.send(ctx, msgEnd, binary.AppendUvarint(nil, uint64(len(tc.entries))))
			})
			out := &kept{}
			var told strings.Builder
			o := Options{Transport: "tcp", Slots: hostileSlots, Timeouts: shortTimeouts(), Report: func(e Event) { told.WriteString(e.Text) }}
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
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
