package xfer

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sync/errgroup"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// travels returns a hello as its receiver decodes it. An older end sends no identity of its root.
func travels(t *testing.T, h wire.Hello, older bool) *wire.Hello {
	t.Helper()
	if older {
		h.Root = ""
	}
	got, err := wire.DecodeHello(h.Encode())
	if err != nil {
		t.Fatal(err)
	}
	return &got
}

// If a server does not report its root, nothing that an earlier attempt settled there is trusted,
// and no attempt fails because of it.
func TestOlderServerSaysNoRoot(t *testing.T) {
	w := byTCP()
	for name, older := range map[string]bool{"today's": false, "an older one": true} {
		afresh := 0
		o := w.options()
		o.Tally = &stat.Counters{}
		o.Report = func(e Event) {
			if e.Kind == EventAfresh {
				afresh++
			}
		}
		tries := NewTries()
		here := func() string { return "client's root" }
		attempt := func() *wire.Hello {
			h := helloOf(t, w, wire.ModePush)
			tries.goesOn(&h.Terms)
			tries.startsAt(here, h, o)
			said := travels(t, *h, false)
			welcome := *said
			welcome.Root = "server's root"
			if err := tries.answered(h, travels(t, welcome, older), o); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return said
		}
		attempt()
		tries.stood, tries.place = true, true
		tries.settled, tries.roots = "d/f", manifest.NewRoots(manifest.XXH3, 1<<20)
		tries.Again(o.Tally)
		if h := attempt(); (h.Terms.Settled == "") != older || (h.Root == "") != older || afresh == 1 != older {
			t.Errorf("%s: settled %q, root %q, %d times afresh", name, h.Terms.Settled, h.Root, afresh)
		}
	}
}

// A client that does not report the root of its earlier attempt learns that nothing there is
// settled.
func TestOlderClientSaysNoRoot(t *testing.T) {
	OnHost(t)
	w, root := byTCP(), t.TempDir()
	if err := os.WriteFile(filepath.Join(root, "x"), []byte("X"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, addr := w.running(t, ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(root)}), Timeouts: w.timeouts()})
	welcomed := func(h *wire.Hello) (got wire.Hello) {
		o := w.options()
		d, err := w.client().connect(t.Context(), w.endpoint(addr), o)
		if err != nil {
			t.Fatal(err)
		}
		defer d.close()
		s, is := newSession(d, "the server", true, o.Timeouts), false
		err = s.Run(t.Context(), func(ctx context.Context, _ *errgroup.Group) error {
			if err := s.Ctl.Send(ctx, wire.MsgHello, h.Encode()); err != nil {
				return err
			}
			return s.Expect(ctx, wire.MsgWelcome, "welcome", func(b []byte) (err error) {
				got, err = wire.DecodeHello(b)
				is = err == nil
				return err
			})
		})
		if !is {
			t.Fatal(err)
		}
		return got
	}
	for _, m := range []wire.Mode{wire.ModePush, wire.ModePull} {
		h := helloOf(t, w, m)
		h.Terms.Flags |= wire.FlagTimes | wire.FlagSameStays
		h.Terms.Settled = "x"
		older := welcomed(h)
		if older.Terms.Settled != "" || older.Root == "" {
			t.Errorf("%s, without a root: settled %q, root %x", m, older.Terms.Settled, older.Root)
		}
		if h.Root = older.Root; welcomed(h).Terms.Settled != "x" {
			t.Errorf("%s, with the root: nothing is settled", m)
		}
	}
}
