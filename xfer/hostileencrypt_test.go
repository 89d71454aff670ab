package xfer

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// If chunks are encrypted, a chunk in the clear, or one sealed for another place or with other
// keys, is not accepted.
func TestHostileEncryption(t *testing.T) { overHostile(t, testHostileEncryption) }

func testHostileEncryption(t *testing.T, w hostileWay) {
	right := trust.HeaderPlace{Epoch: 1, Generation: 1}
	for _, tc := range []struct {
		name  string
		slot  int
		place trust.HeaderPlace
		seals func(s *flow.Session) *trust.Chunks
		spoil byte
		taken bool
	}{
		{"as it should be", 0, right, func(s *flow.Session) *trust.Chunks { return s.Trust.Chunks(true) }, 0, true},
		{"in the clear", 0, right, func(*flow.Session) *trust.Chunks { return nil }, 0, false},
		{"by the other end's key", 0, right, func(s *flow.Session) *trust.Chunks { return s.Trust.Chunks(false) }, 0, false},
		{"for another slot", 1, right, func(s *flow.Session) *trust.Chunks { return s.Trust.Chunks(true) }, 0, false},
		{"for another generation", 0, trust.HeaderPlace{Epoch: 1, Generation: 2}, func(s *flow.Session) *trust.Chunks { return s.Trust.Chunks(true) }, 0, false},
		{"for another epoch", 0, trust.HeaderPlace{Generation: 1}, func(s *flow.Session) *trust.Chunks { return s.Trust.Chunks(true) }, 0, false},
		{"a payload of another tag", 0, right, func(s *flow.Session) *trust.Chunks { return s.Trust.Chunks(true) }, 1, false},
	} {
		w.run(t, tc.name, func(t *testing.T) {
			root, addr, ends := w.serve(t)
			encrypt := func(h *wire.Hello) { h.Terms.Flags |= wire.FlagEncrypt }
			var back, taken bool
			err := w.talk(t, addr, wire.ModePush, "x", encrypt, func(ctx context.Context, s *flow.Session) (err error) {
				ctx, cancel := context.WithTimeout(ctx, rdmatest.Stretch(w.slow*5*time.Second))
				defer cancel()
				p := &puppet{Session: s}
				if err := p.ready(ctx); err != nil {
					return err
				}
				if err := p.announce(ctx, handTree()...); err != nil {
					return err
				}
				if err := p.sealedChunk(tc.slot, tc.place, tc.seals(s), tc.spoil); err != nil {
					return err
				}
				back, taken, err = p.whatBecame(ctx, tc.taken)
				return errors.Join(err, errors.New("enough"))
			})
			<-ends
			if !back || taken != tc.taken {
				t.Errorf("its slot came back: %v, and it was taken: %v: %v", back, taken, err)
			}
			if _, err := os.Stat(filepath.Join(root, "x", "a")); (err == nil) != tc.taken {
				t.Errorf("published: %v", err)
			}
		})
	}
}
