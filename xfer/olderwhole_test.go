package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// A server that does not know what may be replaced gets nothing to replace.
func TestOlderServerReplacesNothing(t *testing.T) {
	OnHost(t)
	ep := hostileWelcoming(t, func(h *wire.Hello) []byte {
		h.Paths, h.Terms.Name, h.Replaced = nil, "tree", false
		return h.Encode()
	}, func(context.Context, *puppet) error { return nil })
	tree := t.TempDir()
	w := byTCP()
	o := *w.options()
	o.Whole, o.Recursive = true, true
	_, err := w.client().Push(t.Context(), []string{tree}, ep, "x", o)
	if !errors.Is(err, rdma.ErrUnsupported) {
		t.Errorf("the push ended with %v, want %v", err, rdma.ErrUnsupported)
	}
}

// A client receives the list of what is lost with a replaced directory only if it knows that list.
// Its tree is published in any case.
func TestOlderClientHearsNothingOfReplaced(t *testing.T) {
	OnHost(t)
	for name, knows := range map[string]bool{"older": false, "not older": true} {
		t.Run(name, func(t *testing.T) {
			root, addr, ends := hostileServer(t)
			if err := errors.Join(os.Mkdir(root+"/x", 0o755), os.WriteFile(root+"/x/old", nil, 0o600)); err != nil {
				t.Fatal(err)
			}
			heard := 0
			err := hostileHello(t, addr, wire.ModePush, "x", func(h *wire.Hello) {
				asWhole(h)
				h.Terms.Flags |= wire.FlagForceReplace
				h.Replaced = knows
			}, func(ctx context.Context, s *flow.Session) error {
				p := &puppet{Session: s}
				if err := errors.Join(p.ready(ctx), p.announce(ctx, dirAt("."))); err != nil {
					return err
				}
				results, err := newCopyResults(&p.Terms, &Options{})
				if err != nil {
					return err
				}
				err = results.book(&entryState{AnnouncedEntry: dirAt("."), id: 0}, nil)
				roots := results.finish()
				err = errors.Join(err, p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 1)), p.Ctl.Send(ctx, wire.MsgRoot, roots.Encode()))
				for done := false; err == nil && !done; {
					err = p.Receive(ctx, func(f *wire.Frame) error {
						if done = f.Type == wire.MsgDone; f.Type == wire.MsgDeleted {
							heard++
						}
						return nil
					})
				}
				return err
			})
			if end := <-ends; err != nil || end.Err != nil {
				t.Errorf("the client ended with %v, the server with %v", err, end.Err)
			}
			if (heard > 0) != knows {
				t.Errorf("it heard %d messages", heard)
			}
			if left, err := os.ReadDir(root + "/x"); err != nil || len(left) > 0 {
				t.Errorf("the tree has %v: %v", left, err)
			}
		})
	}
}
