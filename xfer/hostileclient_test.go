package xfer

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/filter"
	"gdrcp/internal/trust"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// hostileServing answers one client by hand: a welcome with a name of its own choice, and then
// say's messages as the source.
func hostileServing(t *testing.T, name string, say func(ctx context.Context, p *puppet) error) Endpoint {
	t.Helper()
	return hostileWelcoming(t, func(h *wire.Hello) []byte {
		h.Paths, h.Terms.Name = nil, name
		return h.Encode()
	}, say)
}

// hostileWelcoming is hostileServing with the whole welcome of the caller's choice.
func hostileWelcoming(t *testing.T, welcome func(h *wire.Hello) []byte, say func(ctx context.Context, p *puppet) error) Endpoint {
	t.Helper()
	return byTCP().welcoming(t, welcome, say)
}

// welcoming is hostileWelcoming over any transport.
func (w hostileWay) welcoming(t *testing.T, welcome func(h *wire.Hello) []byte, say func(ctx context.Context, p *puppet) error) Endpoint {
	t.Helper()
	// The door is real, and what follows it is not.
	v := door.NewServer(door.Config{
		Keys: doorKeys{OneKey(testKey, Admission{Root: DirRoot(t.TempDir())})}, Handshake: w.timeouts().Handshake, RingBytes: ringBytes,
		Begin: func(p rdma.Provider, req rdma.Request, host *door.Session, l trust.Lane) func() {
			if err := w.welcomed(p, req, host, l, welcome, say); err != nil {
				t.Error(err)
			}
			return func() {}
		},
	})
	addr, err := v.Listen(w.provider, netip.AddrPortFrom(w.addr, 0), rdma.Device{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- v.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return w.endpoint(addr)
}

// welcomed serves a session of one queue pair by hand. Its own errors belong to the test; how the
// session ends is for the client to report.
func (w hostileWay) welcomed(p rdma.Provider, req rdma.Request, host *door.Session, l trust.Lane, welcome func(h *wire.Hello) []byte, say func(ctx context.Context, p *puppet) error) error {
	rail, err := p.Open(req.Device(), railConfig(1, hostileSlots, host.ChunkBytes, false, false, rdma.Wire{}))
	if err != nil {
		return err
	}
	defer rail.Close()
	ctx := host.Context()
	conn, err := req.Accept(ctx, rail)
	if err != nil {
		return err
	}
	host.Begun(w.name, func(_ rdma.Provider, req rdma.Request, _ trust.Lane) error { return req.Reject(rdma.RejectSession) })
	s := newSession(&firstConn{rail: rail, conn: conn, id: host.ID, trust: host.Trust(), lane: l}, "the client", false, w.timeouts())
	// Only the client's error counts.
	_ = s.Run(ctx, func(ctx context.Context, _ *errgroup.Group) error {
		if err := welcomeBy(ctx, s, welcome); err != nil {
			return err
		}
		if _, err := s.HearRules(ctx); err != nil {
			return err
		}
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		if err := say(ctx, p); err != nil {
			return err
		}
		for {
			if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
				return err
			}
		}
	})
	return nil
}

// welcomeBy answers the client's hello with welcome's result.
func welcomeBy(ctx context.Context, s *flow.Session, welcome func(h *wire.Hello) []byte) error {
	return s.Expect(ctx, wire.MsgHello, "hello", func(body []byte) error {
		h, err := wire.DecodeHello(body)
		if err != nil {
			return err
		}
		s.Terms = h.Terms
		return s.Ctl.Send(ctx, wire.MsgWelcome, welcome(&h))
	})
}

// A server chooses what a pull reads, but not what it writes: whatever it announces, only the
// requested entries appear at the destination.
func TestHostileServer(t *testing.T) {
	OnHost(t)
	data := []byte("evil")
	for _, tc := range []struct {
		name    string
		paths   []string
		o       Options
		welcome string
		entries []wire.AnnouncedEntry
	}{
		{"another name", []string{"dir/file"}, Options{}, ".bashrc", []wire.AnnouncedEntry{fileAt(".bashrc", 4)}},
		{"another name for a tree", []string{"dir"}, Options{Recursive: true}, ".ssh", []wire.AnnouncedEntry{dirAt("."), fileAt("authorized_keys", 4)}},
		{"contents for a tree", []string{"dir"}, Options{Recursive: true}, ".", []wire.AnnouncedEntry{dirAt("."), fileAt(".bashrc", 4)}},
		{"another file", []string{"file"}, Options{}, "file", []wire.AnnouncedEntry{fileAt(".bashrc", 4)}},
		{"a second file", []string{"file"}, Options{}, "file", []wire.AnnouncedEntry{fileAt("file", 4), fileAt("zshrc", 4)}},
		{"a tree for a file", []string{"file"}, Options{}, "file", []wire.AnnouncedEntry{dirAt("."), fileAt("x", 4)}},
		{"a link for a file", []string{"file"}, Options{}, "file", []wire.AnnouncedEntry{linkTo("file", "/etc/passwd")}},
		{"a link that was to be followed", []string{"dir"}, Options{Recursive: true, Follow: true}, "dir", []wire.AnnouncedEntry{dirAt("."), linkTo("x", "/etc")}},
		{"a link that was to be left out", []string{"dir"}, Options{Recursive: true}, "dir", []wire.AnnouncedEntry{dirAt("."), linkTo("x", "/etc")}},
		{"one more of several", []string{"a", "b"}, Options{}, "", []wire.AnnouncedEntry{fileAt(".bashrc", 4), fileAt("a", 4)}},
		{"below one of several", []string{"a", "b"}, Options{}, "", []wire.AnnouncedEntry{fileAt("a/x", 4)}},
		{"a tree among files", []string{"a", "b"}, Options{}, "", []wire.AnnouncedEntry{dirAt("a"), fileAt("a/x", 4)}},
		{"another tree", []string{"a", "b"}, Options{Recursive: true}, "", []wire.AnnouncedEntry{dirAt("a"), fileAt("a/x", 4), dirAt("c"), fileAt("c/x", 4)}},
		{"what was to be left out", []string{"dir"}, Options{Recursive: true, Rules: []filter.Rule{{Pattern: "x/"}}}, "dir", []wire.AnnouncedEntry{dirAt("."), dirAt("x")}},
		{"a name for several", []string{"a", "b"}, Options{Recursive: true}, "c", []wire.AnnouncedEntry{dirAt("a")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ep := hostileServing(t, tc.welcome, func(ctx context.Context, p *puppet) error {
				if err := p.announce(ctx, tc.entries...); err != nil {
					return err
				}
				for i := range tc.entries {
					if tc.entries[i].Type != manifest.File {
						continue
					}
					if err := p.chunk(uint64(i), i, 1, data, whole(uint64(i), data)); err != nil {
						return err
					}
				}
				return nil
			})
			dst := t.TempDir()
			o := tc.o
			o.Transport, o.Slots, o.Timeouts = "tcp", hostileSlots, shortTimeouts()
			c := Client{TCP: tcp.New()}
			ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(shortTimeouts().Silence))
			defer cancel()
			if _, err := c.Pull(ctx, ep, tc.paths, dst, o); err == nil {
				t.Error("the client took it for a copy")
			} else if !errors.Is(err, ErrProtocol) {
				t.Errorf("got %v", err)
			}
			for _, path := range []string{".bashrc", ".ssh", "zshrc", "x", "c", "file", "a/x/x"} {
				if _, err := os.Lstat(filepath.Join(dst, path)); err == nil {
					t.Errorf("%s was published", path)
				}
			}
		})
	}
}

// A requested entry is accepted, whatever kind the server says that it is.
func TestServersOwnKinds(t *testing.T) {
	OnHost(t)
	for _, tc := range []struct {
		name, path string
		entries    []wire.AnnouncedEntry
	}{
		{"a file", "dir/x", []wire.AnnouncedEntry{fileAt("x", 4)}},
		{"a link", "dir/x", []wire.AnnouncedEntry{linkTo("x", "elsewhere")}},
		{"a tree", "dir/x/", []wire.AnnouncedEntry{dirAt("."), fileAt("y", 4)}},
		{"the contents of a tree", "dir/x/.", []wire.AnnouncedEntry{dirAt("."), fileAt("y", 4)}},
		{"the contents of all", "/", []wire.AnnouncedEntry{dirAt("."), fileAt("y", 4)}},
	} {
		a := newPullFilter(&wire.Hello{Terms: wire.Terms{Flags: wire.FlagRecursive | wire.FlagLinks}, Paths: []string{tc.path}})
		for i := range tc.entries {
			if err := a.check(&tc.entries[i].Entry); err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
		}
	}
}
