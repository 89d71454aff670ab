package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/wire"
)

// TestUnkeptForAnOlderSource: it does not know the message, and receives a failure of the entry.
func TestUnkeptForAnOlderSource(t *testing.T) {
	OnHost(t)
	for _, knows := range []bool{true, false} {
		heard := make(chan []string, 1)
		enough := errors.New("enough")
		ep := hostileWelcoming(t, func(h *wire.Hello) []byte {
			h.Paths, h.Terms.Name, h.Unkept = nil, "dir", knows
			return h.Encode()
		}, func(ctx context.Context, p *puppet) error {
			var got []string
			defer func() { heard <- got }()
			l := linkTo("l", "x")
			l.MtimeNs = math.MaxInt64
			err := errors.Join(p.announce(ctx, dirAt("."), l), p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 2)))
			for err == nil {
				err = p.Receive(ctx, func(f *wire.Frame) error {
					switch f.Type {
					case wire.MsgUnkept:
						return errors.Join(enough, wire.DecodeUnkept(f.Body, func(u fileset.Unkept) { got = append(got, fmt.Sprint("unkept ", u.First, " ", u.Entries)) }))
					case wire.MsgUnsettled:
						return errors.Join(enough, wire.DecodeUnsettled(f.Body, func(u wire.Unsettled) { got = append(got, "failed "+u.Path) }))
					}
					return nil
				})
			}
			return err
		})
		o := Options{Recursive: true, Links: true, Times: true, NoFsync: true, Transport: "tcp", Slots: hostileSlots, Timeouts: shortTimeouts()}
		if _, err := (&Client{TCP: tcp.New()}).Pull(t.Context(), ep, []string{"dir"}, t.TempDir(), o); err == nil {
			t.Error("the source ended, and the client takes it for a copy")
		}
		got, want := <-heard, "[failed l]"
		if knows {
			want = "[unkept l 1]"
		}
		if fmt.Sprint(got) != want {
			t.Errorf("knows the message %v: %q, want %s", knows, got, want)
		}
	}
}
