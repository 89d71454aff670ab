package xfer

import (
	"context"
	"errors"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// TestFoundBytesCount: announced files are in the sink's total before the source sends one.
func TestFoundBytesCount(t *testing.T) {
	OnHost(t)
	w, root := byTCP(), t.TempDir()
	v, addr := w.running(t, ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(root)}), Timeouts: w.timeouts()})
	var last int64
	_ = w.talk(t, addr, wire.ModePush, "copy", func(*wire.Hello) {}, func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		body, scratch := []byte{0}, wire.Writer{}
		for _, e := range []wire.AnnouncedEntry{dirAt("."), fileAt("a", 300), fileAt("b", 70)} {
			body = wire.AppendEntry(body, &e, &scratch)
		}
		if err := s.Ctl.Send(ctx, wire.MsgEntries, body); err != nil {
			return err
		}
		for end := time.Now().Add(rdmatest.Stretch(5 * time.Second)); last != 370 && time.Now().Before(end); time.Sleep(time.Millisecond) {
			last = v.Totals().Sum.TotalBytes
		}
		return errors.New("enough")
	})
	if last != 370 {
		t.Errorf("the total is %d, want 370", last)
	}
}
