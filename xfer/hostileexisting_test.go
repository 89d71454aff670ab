package xfer

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// listen receives until the session ends, or should have ended long ago.
func listen(ctx context.Context, s *flow.Session) error {
	ctx, cancel := context.WithTimeout(ctx, rdmatest.Stretch(10*time.Second))
	defer cancel()
	for {
		if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
			return err
		}
	}
}

// beyond is a directory that fails, and so is in no root: its time cannot be kept.
func beyond(path string) wire.AnnouncedEntry {
	e := dirAt(path)
	e.MtimeNs = math.MaxInt64
	return e
}

// Whatever a hostile source does when the destination decides, its session ends, and kept files are
// unchanged.
func TestHostileSourceWhereThingsAreKept(t *testing.T) {
	OnHost(t)
	data := bytes.Repeat([]byte("evil"), 100)
	kept := fileAt("x/kept", len(data))
	for _, tc := range []struct {
		name    string
		flags   uint64
		entries []wire.AnnouncedEntry
		say     func(ctx context.Context, p *puppet) error
	}{
		// The first file has not ended, so the kept entries have not been settled.
		{"data of what is kept", wire.FlagIgnoreExisting, []wire.AnnouncedEntry{dirAt("."), dirAt("x"), fileAt("x/a", 4), kept},
			func(ctx context.Context, p *puppet) error { return p.chunk(0, 0, 1, data, whole(3, data)) }},
		{"data in a dry run", wire.FlagDryRun, []wire.AnnouncedEntry{dirAt("."), dirAt("x"), kept},
			func(ctx context.Context, p *puppet) error { return p.chunk(0, 0, 1, data, whole(2, data)) }},
		{"a repair in a dry run", wire.FlagDryRun | wire.FlagChecksum | wire.FlagInPlace, []wire.AnnouncedEntry{dirAt("."), dirAt("x"), fileAt("x/kept", 4)},
			func(ctx context.Context, p *puppet) error {
				return p.repair(0, 0, 1, data[:4], whole(2, data[:4]))
			}},
		{"a repair of what is kept", wire.FlagIgnoreExisting, []wire.AnnouncedEntry{dirAt("."), dirAt("x"), fileAt("x/a", 4), kept},
			func(ctx context.Context, p *puppet) error {
				return p.repair(0, 0, 1, data, whole(3, data))
			}},
		{"entries out of order", wire.FlagDelete, []wire.AnnouncedEntry{dirAt("."), fileAt("b", 4), fileAt("a", 4)},
			func(context.Context, *puppet) error { return nil }},
		{"entries out of order where nothing is deleted", wire.FlagTimes, []wire.AnnouncedEntry{dirAt("."), beyond("b"), beyond("a")},
			func(context.Context, *puppet) error { return nil }},
		{"an entry twice", wire.FlagTimes, []wire.AnnouncedEntry{dirAt("."), beyond("a"), beyond("a")},
			func(context.Context, *puppet) error { return nil }},
		{"entries without their directory", wire.FlagDelete, []wire.AnnouncedEntry{dirAt("."), fileAt("x/a", 4)},
			func(context.Context, *puppet) error { return nil }},
		{"a second top", wire.FlagDelete, []wire.AnnouncedEntry{dirAt("."), dirAt(".")},
			func(context.Context, *puppet) error { return nil }},
		{"something skipped twice", wire.FlagDelete, []wire.AnnouncedEntry{dirAt(".")}, func(ctx context.Context, p *puppet) error {
			skipped := append(wire.AppendException(nil, &wire.Exception{Entry: noEntry, Outcome: Skipped}), "fifo"...)
			return errors.Join(p.Ctl.Send(ctx, wire.MsgFail, skipped), p.Ctl.Send(ctx, wire.MsgFail, skipped))
		}},
		{"something skipped behind the end", wire.FlagDelete, []wire.AnnouncedEntry{dirAt("."), fileAt("f", 4)}, func(ctx context.Context, p *puppet) error {
			skipped := append(wire.AppendException(nil, &wire.Exception{Entry: noEntry, Outcome: Skipped}), "fifo"...)
			return errors.Join(p.Ctl.Send(ctx, wire.MsgEnd, []byte{2}), p.Ctl.Send(ctx, wire.MsgFail, skipped))
		}},
		{"kept by the source", wire.FlagDelete, []wire.AnnouncedEntry{dirAt(".")}, func(ctx context.Context, p *puppet) error {
			return p.Ctl.Send(ctx, wire.MsgFail, append(wire.AppendException(nil, &wire.Exception{Entry: noEntry, Outcome: Kept}), "x"...))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			const mode = 0o755 | os.ModeSetuid // a process that opens the file to write clears the bit
			if err := errors.Join(os.Mkdir(filepath.Join(root, "x"), 0o755), os.WriteFile(filepath.Join(root, "x/kept"), []byte("good"), 0o644), os.Chmod(filepath.Join(root, "x/kept"), mode)); err != nil {
				t.Fatal(err)
			}
			err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) { h.Terms.Name, h.Terms.Flags = ".", h.Terms.Flags|tc.flags }, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				if err := p.announce(ctx, tc.entries...); err != nil {
					return err
				}
				if err := tc.say(ctx, p); err != nil {
					return err
				}
				return listen(ctx, s)
			})
			wantCutOff(t, err, ends)
			if got, err := os.ReadFile(filepath.Join(root, "x/kept")); err != nil || string(got) != "good" {
				t.Errorf("what was kept is %q, %v", got, err)
			}
			if st, err := os.Stat(filepath.Join(root, "x/kept")); err != nil || st.Mode() != mode {
				t.Errorf("it has the mode %v, %v", st.Mode(), err)
			}
		})
	}
}

// unwantedRuns is the body of wire.MsgUnwanted, of gaps and lengths.
func unwantedRuns(runs ...uint64) (b []byte) {
	for _, n := range runs {
		b = binary.AppendUvarint(b, n)
	}
	return b
}

// Whatever a hostile sink claims not to want, or to have deleted, the source's session ends.
func TestHostileSinkWhereThingsAreKept(t *testing.T) {
	OnHost(t)
	result := func(outcome Outcome, upto, entry uint64) []byte {
		return wire.AppendException(binary.AppendUvarint(nil, upto), &wire.Exception{Entry: entry, Outcome: outcome})
	}
	const settledUpToA = 1 << 63 // no flag
	// The source has the directories "." and "d" and the files d/a and d/b: 0 to 3.
	for _, tc := range []struct {
		name  string
		flags uint64
		say   []message
	}{
		{"nothing is kept", 0, []message{{wire.MsgUnwanted, unwantedRuns(2, 1)}}},
		{"beyond what was announced", wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(3, 2)}}},
		{"a gap that wraps around", wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(2, 1, ^uint64(0), 1)}}},
		{"a run that wraps around", wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(2, ^uint64(0))}}},
		{"an empty run", wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(2, 0)}}},
		{"half a run", wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(2)}}},
		{"a directory", wire.FlagExisting, []message{{wire.MsgUnwanted, unwantedRuns(1, 1)}}},
		{"twice", wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(2, 1)}, {wire.MsgUnwanted, unwantedRuns(2, 1)}}},
		{"after the plan", wire.FlagUpdate, []message{{wire.MsgPlan, binary.AppendUvarint(nil, 4)}, {wire.MsgUnwanted, unwantedRuns(3, 1)}}},
		{"kept, but wanted", wire.FlagUpdate, []message{{wire.MsgResult, result(Kept, 3, 2)}}},
		{"kept, and nothing is", wire.FlagDryRun, []message{{wire.MsgUnwanted, unwantedRuns(2, 1)}, {wire.MsgResult, result(Kept, 3, 2)}}},
		{"published, but unwanted", wire.FlagUpdate, []message{{wire.MsgUnwanted, unwantedRuns(2, 1)}, {wire.MsgResult, binary.AppendUvarint(nil, 3)}}},
		{"copied in a dry run, but wanted", wire.FlagDryRun, []message{{wire.MsgResult, binary.AppendUvarint(nil, 3)}}},
		{"kept, behind what is settled", settledUpToA, []message{{wire.MsgUnwanted, unwantedRuns(3, 1)}}},
		{"kept as settled, but wanted", settledUpToA, []message{{wire.MsgResult, result(Kept, 3, 2)}}},
		{"published, but settled", settledUpToA, []message{{wire.MsgUnwanted, unwantedRuns(2, 1)}, {wire.MsgResult, binary.AppendUvarint(nil, 3)}}},
		{"an unknown outcome", wire.FlagUpdate, []message{{wire.MsgResult, result(Kept+1, 3, 2)}}},
		{"deleted, and nothing is", 0, []message{{wire.MsgDeleted, wire.AppendDeleted(nil, wire.DeletedFile, "x", "")}}},
		{"an unknown fate", wire.FlagDelete, []message{{wire.MsgDeleted, wire.AppendDeleted(nil, wire.DeletedNone+1, "x", "")}}},
		{"nothing deleted", wire.FlagDelete, []message{{wire.MsgDeleted, wire.AppendDeleted(nil, wire.DeletedFile, "", "")}}},
		{"a deletion cut off", wire.FlagDelete, []message{{wire.MsgDeleted, wire.AppendDeleted(nil, wire.DeletedFile, "xy", "")[:3]}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			for _, name := range []string{"d/a", "d/b"} {
				path := filepath.Join(root, name)
				if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(strings.Repeat(name, 1000)), 0o644)); err != nil {
					t.Fatal(err)
				}
			}
			hostileSink(t, addr, func(h *wire.Hello) {
				if tc.flags == settledUpToA {
					h.Terms.Settled = "d/a"
				} else {
					h.Terms.Flags |= tc.flags
				}
			}, tc.say)
			if end := <-ends; !errors.Is(end.Err, ErrProtocol) && !errors.Is(end.Err, ErrIntegrity) {
				t.Errorf("the server ended with %v", end.Err)
			}
		})
	}
}

// A source that could not read what it has announced may have lost more than that: as with rsync
// nothing is deleted, and the sink reports that.
func TestNothingDeletedAfterAnErrorOfReading(t *testing.T) {
	OnHost(t)
	for _, tc := range []struct {
		outcome Outcome
		stays   bool
	}{{Failed, true}, {Corrupt, true}, {Changed, false}} {
		root, addr, ends := hostileServer(t)
		old := filepath.Join(root, "old")
		if err := os.WriteFile(old, nil, 0o644); err != nil {
			t.Fatal(err)
		}
		none := false
		err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) { h.Terms.Name, h.Terms.Flags = ".", h.Terms.Flags|wire.FlagDelete }, func(ctx context.Context, s *flow.Session) error {
			p := &puppet{Session: s}
			if err := errors.Join(p.ready(ctx), p.announce(ctx, dirAt("."), fileAt("a", 4)),
				p.Ctl.Send(ctx, wire.MsgFail, wire.AppendException(nil, &wire.Exception{Entry: 1, Outcome: tc.outcome, Text: "why"})),
				p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 2))); err != nil {
				return err
			}
			// Deletion begins when all entries have ended. The source may learn that first.
			waited, cancel := context.WithTimeout(ctx, rdmatest.Stretch(10*time.Second))
			defer cancel()
			told := false
			for upto := uint64(0); upto < 2 || !told; {
				err := p.Receive(waited, func(f *wire.Frame) (err error) {
					switch f.Type {
					case wire.MsgDeleted:
						told = true
						err = wire.DecodeDeleted(f.Body, func(f wire.DeleteOutcome, _, _ string) { none = none || f == wire.DeletedNone })
					case wire.MsgResult:
						upto, _, err = wire.DecodeResult(f.Body)
					}
					return err
				})
				if err != nil {
					return err
				}
			}
			return errors.New("enough")
		})
		end := <-ends
		if _, there := os.Lstat(old); there == nil != tc.stays || none != tc.stays {
			t.Errorf("outcome %d: %v, told %v: %v, %v", tc.outcome, there, none, err, end.Err)
		}
	}
}

// A hello whose flags contradict each other is refused.
func TestHellosThatMakeNoSense(t *testing.T) {
	OnHost(t)
	for _, flags := range []uint64{wire.FlagDelete, wire.FlagDelete | wire.FlagRecursive | wire.FlagListed, wire.FlagSameStays,
		wire.FlagSameStays | wire.FlagTimes | wire.FlagStream} {
		_, addr, ends := hostileServer(t)
		err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) { h.Terms.Flags = flags }, listen)
		if end := <-ends; err == nil || !errors.Is(end.Err, ErrProtocol) {
			t.Errorf("flags %#x: %v at the client, %v at the server", flags, err, end.Err)
		}
	}
	for _, change := range []func(*wire.Hello){
		func(h *wire.Hello) { h.Terms.Sizes.MinBytes = 1 }, func(h *wire.Hello) { h.Terms.Sizes.MaxBytes = 1 }, func(h *wire.Hello) { h.Terms.Flags |= wire.FlagSizes },
		func(h *wire.Hello) { h.Terms.Flags, h.Terms.Sizes.MinBytes = h.Terms.Flags|wire.FlagSizes, 1<<63 }, func(h *wire.Hello) { h.Terms.Flags, h.Terms.Sizes.MaxBytes = h.Terms.Flags|wire.FlagSizes, 1<<63+1 },
	} {
		_, addr, ends := hostileServer(t)
		err := hostileHello(t, addr, wire.ModePush, "/", change, listen)
		if end := <-ends; err == nil || !errors.Is(end.Err, ErrProtocol) {
			t.Errorf("sizes that make no sense: %v at the client, %v at the server", err, end.Err)
		}
	}
	_, addr, ends := hostileServer(t, func(c *ServerConfig) { c.Keys = OneKey(testKey, Admission{Root: DirRoot(t.TempDir()), ReadOnly: true}) })
	err := hostileHello(t, addr, wire.ModePush, "/", func(h *wire.Hello) { h.Terms.Flags |= wire.FlagDelete | wire.FlagDryRun }, listen)
	if end := <-ends; err == nil || !errors.Is(end.Err, os.ErrPermission) {
		t.Errorf("a server that is read-only: %v at the client, %v at the server", err, end.Err)
	}
}

func TestUnwantedRoundTrip(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		runs  []uint64
		want  []uint64
	}{
		{10, []uint64{0, 3, 2, 1, 3, 1}, []uint64{0, 1, 2, 5, 9}},
		{1 << 63, []uint64{1<<63 - 2, 2}, []uint64{1<<63 - 2, 1<<63 - 1}},
		{0, nil, nil},
	} {
		var got []uint64
		err := wire.DecodeUnwanted(unwantedRuns(c.runs...), c.limit, func(id uint64) error {
			got = append(got, id)
			return nil
		})
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, %v", c.runs, got, err)
		}
	}
	stop := errors.New("stop")
	if err := wire.DecodeUnwanted(unwantedRuns(0, 1<<40), 1<<41, func(uint64) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("got %v", err)
	}
}

func TestDeletedRoundTrip(t *testing.T) {
	long := strings.Repeat("p", 10000)
	body := wire.AppendDeleted(nil, wire.DeletedDir, "a/b", "")
	body = wire.AppendDeleted(body, wire.DeletedFailed, long, long)
	if n := len(wire.AppendDeleted(nil, wire.DeletedFailed, long, long)); n > wire.MaxBodyBytes {
		t.Errorf("one takes %d bytes, more than a message", n)
	}
	var got []string
	err := wire.DecodeDeleted(body, func(f wire.DeleteOutcome, path, text string) { got = append(got, string(rune('0'+f))+path+text) })
	if err := wire.DecodeDeleted(nil, nil); err != nil {
		t.Errorf("an empty list: %v", err)
	}
	if want := []string{"2a/b", "4" + long[:manifest.MaxPathBytes] + long[:wire.MaxTextBytes]}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
}

func FuzzUnwanted(f *testing.F) {
	f.Add(unwantedRuns(1, 2, 3, 4), uint64(20))
	f.Fuzz(func(t *testing.T, b []byte, limit uint64) {
		limit %= 2 * entryWindow
		next := uint64(0)
		_ = wire.DecodeUnwanted(b, limit, func(id uint64) error {
			if id < next || id >= limit {
				t.Fatalf("entry %d after %d, of %d", id, next, limit)
			}
			next = id + 1
			return nil
		})
	})
}
