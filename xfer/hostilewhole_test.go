package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// Whatever a source claims about its tree, a tree never gets its name with entries that an earlier
// copy left in it and that this copy does not have.
func TestHostileSourceOfAWholeTree(t *testing.T) {
	OnHost(t)
	elsewhere := dirAt(".")
	elsewhere.Elsewhere = true
	for name, c := range map[string]struct {
		entries []wire.AnnouncedEntry
		skipped string // what the source claims to leave out
	}{
		"no tree":                               {nil, ""},
		"a tree on another file system":         {[]wire.AnnouncedEntry{elsewhere}, ""},
		"a file that has become something else": {[]wire.AnnouncedEntry{dirAt(".")}, "f"},
	} {
		t.Run(name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			leaveTree(t, root, addr, ends)
			err := hostileHello(t, addr, wire.ModePush, "x", asWhole, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				total := wire.Totals{Final: true}
				if len(c.entries) == 0 {
					if err := p.Ctl.Send(ctx, wire.MsgTotal, total.Encode()); err != nil {
						return err
					}
				} else if err := p.announce(ctx, c.entries...); err != nil {
					return err
				}
				results, err := newCopyResults(&p.Terms, &Options{})
				if err != nil {
					return err
				}
				for i := range c.entries {
					err = errors.Join(err, results.book(&entryState{AnnouncedEntry: c.entries[i], id: uint64(i)}, nil))
				}
				if c.skipped != "" {
					x := &wire.Exception{Entry: noEntry, Outcome: Skipped}
					err = errors.Join(err, results.bookRefused(c.skipped, x), p.Ctl.Send(ctx, wire.MsgFail, append(wire.AppendException(nil, x), c.skipped...)))
				}
				roots := results.finish()
				return errors.Join(err, p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, uint64(len(c.entries)))),
					p.Ctl.Send(ctx, wire.MsgRoot, roots.Encode()), p.await(ctx, wire.MsgDone))
			})
			if end := <-ends; (err != nil) != (len(c.entries) == 0) || (end.Err != nil) != (err != nil) {
				t.Errorf("the client ended with %v, the server with %v", err, end.Err)
			}
			found, err := filepath.Glob(root + "/x*")
			if len(c.entries) > 0 {
				found, err = filepath.Glob(root + "/x/*")
			}
			if err != nil || len(found) > 0 {
				t.Errorf("there is %q: %v", found, err)
			}
		})
	}
}

func asWhole(h *wire.Hello) {
	h.Terms.Name, h.Terms.Stage = ".", fileset.StageID{1}
	h.Terms.Flags |= wire.FlagRecursive | wire.FlagItself | wire.FlagWhole
}

// leaveTree leaves the file f of a copy of a tree that was not completed.
func leaveTree(t *testing.T, root string, addr netip.AddrPort, ends <-chan SessionEnd) {
	t.Helper()
	enough := errors.New("enough")
	data := []byte("left behind")
	err := hostileHello(t, addr, wire.ModePush, "x", asWhole, func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := errors.Join(p.ready(ctx), p.announce(ctx, dirAt("."), fileAt("f", len(data))), p.chunk(0, 0, 1, data, whole(1, data))); err != nil {
			return err
		}
		if _, _, err := p.whatBecame(ctx, true); err != nil {
			return err
		}
		return enough
	})
	if !errors.Is(err, enough) {
		t.Fatal(err)
	}
	<-ends
	if left, err := filepath.Glob(root + "/.gdrcp-tree-*/f"); err != nil || len(left) != 1 {
		t.Fatalf("left %q: %v", left, err)
	}
}

// A file that an older copy left in the staging directory does not pass for one that an earlier
// attempt of this copy has settled.
func TestStaleFileIsNotSettled(t *testing.T) {
	OnHost(t)
	for name, flags := range map[string]uint64{"with times": wire.FlagTimes, "without": 0} {
		t.Run(name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			leaveTree(t, root, addr, ends)
			data := []byte("new content")
			entries := []wire.AnnouncedEntry{dirAt("."), fileAt("f", len(data))}
			err := hostileHello(t, addr, wire.ModePush, "x", func(h *wire.Hello) {
				asWhole(h)
				h.Terms.Flags, h.Terms.Settled = h.Terms.Flags|flags, "z"
			}, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				x := whole(1, data)
				if err := errors.Join(p.ready(ctx), p.announce(ctx, entries...), p.chunk(0, 0, 1, data, x)); err != nil {
					return err
				}
				results, err := newCopyResults(&p.Terms, &Options{Tally: new(Tally)})
				for i := range entries {
					b := entryState{AnnouncedEntry: entries[i], id: uint64(i)}
					if i == 1 {
						b.Root = x.Digest
					}
					err = errors.Join(err, results.book(&b, nil))
				}
				roots := results.finish()
				return errors.Join(err, p.Ctl.Send(ctx, wire.MsgEnd, []byte{2}), p.Ctl.Send(ctx, wire.MsgRoot, roots.Encode()), p.await(ctx, wire.MsgDone))
			})
			if end := <-ends; err != nil || end.Err != nil {
				t.Errorf("the client ended with %v, the server with %v", err, end.Err)
			}
			if got, err := os.ReadFile(filepath.Join(root, "x/f")); err != nil || string(got) != string(data) {
				t.Errorf("the tree has %q: %v", got, err)
			}
		})
	}
}
