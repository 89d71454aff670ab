package xfer

import (
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

// arrivedBody is the body of wire.MsgArrived with that many nodes, of arbitrary content.
func arrivedBody(entry, pieces uint64, nodes int) []byte {
	a := wire.Arrived{Entry: entry, Pieces: pieces, Nodes: make([]manifest.Digest, nodes)}
	return a.Encode(manifest.XXH3)
}

// Whatever a hostile sink claims that an earlier copy left, the source's session ends.
func TestHostileSinkOfPartialFiles(t *testing.T) {
	OnHost(t)
	plan := func(upto uint64) message { return message{wire.MsgPlan, binary.AppendUvarint(nil, upto)} }
	arrived := func(entry, pieces uint64, nodes int) message {
		return message{wire.MsgArrived, arrivedBody(entry, pieces, nodes)}
	}
	// The source has the directory ".", the files "large" of 17 pieces and "small".
	for _, tc := range []struct {
		name  string
		flags uint64
		say   []message
	}{
		{"nothing is kept", 0, []message{arrived(1, 4, 3)}},
		{"more pieces than there are", wire.FlagResume, []message{arrived(1, 18, manifest.NodeCount(18))}},
		{"more pieces than can be", wire.FlagResume, []message{arrived(1, 1<<63, 64)}},
		{"no piece", wire.FlagResume, []message{arrived(1, 0, 0)}},
		{"too few digests", wire.FlagResume, []message{arrived(1, 4, 2)}},
		{"too many digests", wire.FlagResume, []message{arrived(1, 4, 4)}},
		{"a small file", wire.FlagResume, []message{arrived(2, 1, 1)}},
		{"a directory", wire.FlagResume, []message{arrived(0, 1, 1)}},
		{"an entry that was not announced", wire.FlagResume, []message{arrived(3, 1, 1)}},
		{"twice", wire.FlagResume, []message{arrived(1, 4, 3), arrived(1, 4, 3)}},
		{"after the plan", wire.FlagResume, []message{plan(2), arrived(1, 4, 3)}},
		{"half a message", wire.FlagResume, []message{{wire.MsgArrived, []byte{1}}}},
		{"a file that it does not want", wire.FlagResume | wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(1, 1)}, arrived(1, 4, 3)}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			if err := errors.Join(os.WriteFile(filepath.Join(root, "large"), make([]byte, ResumeBytes+1), 0o644), os.WriteFile(filepath.Join(root, "small"), []byte("small"), 0o644)); err != nil {
				t.Fatal(err)
			}
			hostileSink(t, addr, func(h *wire.Hello) { h.Terms.Flags = h.Terms.Flags&^wire.FlagResume | tc.flags }, tc.say)
			if end := <-ends; !errors.Is(end.Err, ErrProtocol) {
				t.Errorf("the server ended with %v", end.Err)
			}
		})
	}
}

// A hostile source cannot claim that something arrived earlier that did not.
func TestHostileSourceOfPartialFiles(t *testing.T) {
	OnHost(t)
	const size = ResumeBytes + 1
	marked := func(name string, size int) wire.AnnouncedEntry {
		e := fileAt(name, size)
		e.Source = wire.SourceMark{1}
		return e
	}
	claim := func(length int64, flags uint16) func(ctx context.Context, p *puppet) error {
		return func(ctx context.Context, p *puppet) error {
			return p.chunk(0, 0, 1, nil, wire.Extent{Entry: 1, Length: length, Flags: wire.ExtArrived | flags})
		}
	}
	for _, tc := range []struct {
		name  string
		flags uint64
		entry wire.AnnouncedEntry
		say   func(ctx context.Context, p *puppet) error
	}{
		{"nothing arrived", wire.FlagResume, marked("f", size), claim(1<<20, 0)},
		{"all of it", wire.FlagResume, marked("f", size), claim(size, wire.ExtLast)},
		{"nothing of nothing", wire.FlagResume, marked("f", size), claim(0, 0)},
		{"a hole that arrived", wire.FlagResume, marked("f", size), claim(1<<20, wire.ExtHole)},
		{"a file without a mark", wire.FlagResume, fileAt("f", size), claim(1<<20, 0)},
		{"a mark where nothing is kept", 0, marked("f", size), nil},
		{"a mark on a small file", wire.FlagResume, marked("f", 1<<20), nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) {
				h.Terms.Name, h.Terms.Flags = ".", h.Terms.Flags&^wire.FlagResume|tc.flags
			}, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := errors.Join(p.ready(ctx), p.announce(ctx, dirAt("."), tc.entry)); err != nil {
					return err
				}
				if tc.say != nil {
					if err := tc.say(ctx, p); err != nil {
						return err
					}
				}
				return listen(ctx, s)
			})
			wantCutOff(t, err, ends)
			if entries, err := os.ReadDir(root); err != nil || len(entries) != 0 {
				t.Errorf("%v are in the root: %v", entries, err)
			}
		})
	}
}

type message struct {
	typ  wire.MsgType
	body []byte
}
