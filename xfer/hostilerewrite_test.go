package xfer

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// A peer can write to a slot at any time. If a manifest says what arrived, the bytes of the file
// are those that were digested, whatever the peer writes meanwhile.
func TestRewrittenSlots(t *testing.T) {
	overHostile(t, func(t *testing.T, w hostileWay) {
		w.rewriteSlots(t, Client{TCP: w.provider, Verbs: w.provider}, Options{})
	})
}

// rewriteSlots pulls a file of one chunk again and again from a server that rewrites the
// chunk, each time a little later.
func (w hostileWay) rewriteSlots(t *testing.T, c Client, o Options) {
	const pieces = 8
	tries, step := 48, 100*time.Microsecond
	if w.slow > 1 {
		tries, step = 16, 25*time.Millisecond // if processors are emulated, copying takes longest
	}
	random := rand.NewChaCha8([32]byte{})
	r := rewriter{honest: make([]byte, pieces*manifest.DefaultPieceBytes), other: make([]byte, pieces*manifest.DefaultPieceBytes)}
	for _, b := range [][]byte{r.honest, r.other} {
		if _, err := random.Read(b); err != nil {
			t.Fatal(err)
		}
	}
	ends := make(chan error, 1)
	ep := w.welcoming(t, func(h *wire.Hello) []byte {
		h.Paths, h.Terms.Name = nil, "x"
		return h.Encode()
	}, func(ctx context.Context, p *puppet) error {
		ends <- r.serve(ctx, p)
		return errors.New("the source says no more")
	})
	o.Transport, o.Slots, o.ChunkBytes, o.Timeouts = w.provider.Name(), hostileSlots, len(r.honest), w.timeouts()
	published := 0
	for try := range tries {
		dst := filepath.Join(t.TempDir(), "x")
		r.after, r.spares = time.Duration(try)*step, try == tries-1
		o.WriteManifest = filepath.Join(t.TempDir(), "manifest")
		_, err := c.Pull(t.Context(), ep, []string{"x"}, dst, o)
		if err == nil {
			t.Error("the copy came to its end without its source")
		}
		select {
		case err := <-ends:
			if err != nil {
				t.Fatal(err)
			}
		case <-time.After(w.timeouts().Silence):
			t.Fatalf("the source was not begun: %v", err)
		}
		switch got, err := os.ReadFile(dst); {
		case err == nil && !bytes.Equal(got, r.honest):
			t.Errorf("rewritten %v after it arrived, the chunk was published with other bytes than were digested", r.after)
		case err == nil:
			published++
		case !errors.Is(err, fs.ErrNotExist) || r.spares:
			t.Error(err)
		}
	}
	t.Logf("%d of %d were published", published, tries)
}

// rewriter is a source of one file in one chunk.
type rewriter struct {
	honest, other []byte
	// after is the delay from sending the chunk to rewriting it. A rewriter that spares the chunk
	// leaves it unchanged.
	after  time.Duration
	spares bool
}

// serve sends the chunk and rewrites it, until the sink has settled the file or requests the chunk
// again.
func (r *rewriter) serve(ctx context.Context, p *puppet) error {
	size := int64(len(r.honest))
	if err := p.announce(ctx, fileOf(len(r.honest))); err != nil {
		return err
	}
	var xs []wire.Extent
	for at := int64(0); at < size; at += manifest.DefaultPieceBytes {
		x := wire.Extent{Off: at, Length: manifest.DefaultPieceBytes, SlotOff: uint32(at)}
		if at+x.Length == size {
			x.Flags = wire.ExtLast
		}
		x.Digest = p.Terms.DigestOf(&x, size, r.honest[at:at+x.Length])
		xs = append(xs, x)
	}
	if err := p.chunk(0, 0, 1, r.honest, xs...); err != nil {
		return err
	}
	if !r.spares {
		time.Sleep(r.after)
		if err := p.overwrite(0, 1, r.other); err != nil {
			return err
		}
	}
	for settled := false; !settled; {
		err := p.Receive(ctx, func(f *wire.Frame) error {
			if f.Type == wire.MsgResult {
				settled = true
			}
			if f.Type != wire.MsgCredit {
				return nil
			}
			return wire.DecodeCredit(f.Body, nil, func(back *wire.ReturnedSlot) error {
				settled = settled || len(back.Bad) > 0
				return nil
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// overwrite writes to a slot from another slot of this end, without an announcement.
func (p *puppet) overwrite(slot, by int, payload []byte) error {
	copy(p.Link.Ring.Slot(by), payload)
	_, err := p.Ctl.Lane.Conn.Post([]rdma.WR{
		{Op: rdma.OpWrite, Quiet: true, Local: p.Link.Ring.PayloadMR, Offset: by * p.Link.Ring.SlotBytes, Len: len(payload),
			RemoteAddr: p.target.PayloadAddr + uint64(slot)*uint64(p.target.SlotBytes), RKey: p.target.PayloadKey},
	})
	return err
}
