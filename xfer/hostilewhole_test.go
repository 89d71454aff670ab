package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"path/filepath"
	"testing"

	"gdrcp/chunker"
	"gdrcp/xfer/internal/wire"
)

// Whatever a source says of its tree, none gets its name with what an earlier copy left in
// it and this one does not have.
func TestHostileSourceOfAWholeTree(t *testing.T) {
	OnHost(t)
	elsewhere := dirAt(".")
	elsewhere.Elsewhere = true
	for name, c := range map[string]struct {
		entries []wire.AnnouncedEntry
		skipped string // what the source says it leaves out
	}{
		"no tree":                               {nil, ""},
		"a tree on another file system":         {[]wire.AnnouncedEntry{elsewhere}, ""},
		"a file that has become something else": {[]wire.AnnouncedEntry{dirAt(".")}, "f"},
	} {
		t.Run(name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			leaveTree(t, root, addr, ends)
			err := hostileHello(t, addr, wire.ModePush, "x", asWhole, func(ctx context.Context, s *session) error {
				p := &puppet{session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				total := wire.Totals{Final: true}
				if len(c.entries) == 0 {
					if err := p.ctl.send(ctx, wire.MsgTotal, total.Encode()); err != nil {
						return err
					}
				} else if err := p.announce(ctx, c.entries...); err != nil {
					return err
				}
				results, err := newCopyResults(&p.terms, &Options{})
				if err != nil {
					return err
				}
				for i := range c.entries {
					err = errors.Join(err, results.book(&entryState{AnnouncedEntry: c.entries[i], id: uint64(i)}, nil))
				}
				if c.skipped != "" {
					x := &wire.Exception{Entry: noEntry, Outcome: Skipped}
					err = errors.Join(err, results.bookRefused(c.skipped, x), p.ctl.send(ctx, wire.MsgFail, append(wire.AppendException(nil, x), c.skipped...)))
				}
				roots := results.finish()
				return errors.Join(err, p.ctl.send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, uint64(len(c.entries)))),
					p.ctl.send(ctx, wire.MsgRoot, roots.Encode()), p.await(ctx, wire.MsgDone))
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
	h.Terms.Name, h.Terms.Stage = ".", chunker.NewStageID()
	h.Terms.Flags |= wire.FlagRecursive | wire.FlagItself | wire.FlagWhole
}

// leaveTree leaves the file f of a copy of a tree that was not to its end.
func leaveTree(t *testing.T, root string, addr netip.AddrPort, ends <-chan SessionEnd) {
	t.Helper()
	enough := errors.New("enough")
	data := []byte("left behind")
	err := hostileHello(t, addr, wire.ModePush, "x", asWhole, func(ctx context.Context, s *session) error {
		p := &puppet{session: s}
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
