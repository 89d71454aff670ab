package xfer

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

func nameParts(last bool, items ...fileset.Listed) []byte {
	part := wire.SelectionPart(wire.SelectionNames)
	for i := range items {
		part = wire.AppendName(part, &items[i])
	}
	if last {
		part[1] = 1
	}
	return part
}

// arrivedNames returns a list whose parts have arrived unrequested.
func arrivedNames(t *testing.T, parts ...[]byte) *remoteNames {
	t.Helper()
	r := newRemoteNames(t.Context(), nil)
	r.begun = true
	for _, part := range parts {
		if err := r.arrived(part); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func all(names chunker.Names) (items []fileset.Listed, err error) {
	for {
		item, err := names.Next()
		if errors.Is(err, io.EOF) {
			return items, nil
		}
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
}

func TestNamesTravel(t *testing.T) {
	items := []fileset.Listed{{Path: ".", Named: true, Contents: true}, {Path: "#", Implied: true}, {Path: "#/a", Named: true}, {Path: "b", Named: true, Implied: true}}
	got, err := all(arrivedNames(t, nameParts(false, items[:3]...), nameParts(true, items[3:]...)))
	if err != nil || !slices.Equal(got, items) {
		t.Errorf("%+v became %+v, %v", items, got, err)
	}
	if got, err := all(arrivedNames(t, nameParts(true))); err != nil || got != nil {
		t.Errorf("nothing became %+v, %v", got, err)
	}
}

func TestBadNamesAreRefused(t *testing.T) {
	a := fileset.Listed{Path: "a", Named: true}
	for name, parts := range map[string][][]byte{
		"order":               {nameParts(true, fileset.Listed{Path: "b", Named: true}, a)},
		"order across parts":  {nameParts(false, fileset.Listed{Path: "b", Named: true}), nameParts(true, a)},
		"the same twice":      {nameParts(true, a, a)},
		"the top not first":   {nameParts(true, fileset.Listed{Path: "#", Named: true}, fileset.Listed{Path: ".", Named: true})},
		"a path that leaves":  {nameParts(true, fileset.Listed{Path: "../a", Named: true})},
		"an absolute path":    {nameParts(true, fileset.Listed{Path: "/a", Named: true})},
		"neither nor":         {nameParts(true, fileset.Listed{Path: "a"})},
		"contents of nothing": {nameParts(true, fileset.Listed{Path: "a", Implied: true, Contents: true})},
		"flags":               {{wire.SelectionNames, 1, 0x11, 1, 'a'}},
		"cut off":             {{wire.SelectionNames, 1, 1, 9, 'a'}},
		"rules":               {noRules()},
		"a part of nothing":   {nameParts(false), nameParts(true, a)},
	} {
		if got, err := all(arrivedNames(t, parts...)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// There is no room for more parts than were requested.
func TestUnaskedNamesAreRefused(t *testing.T) {
	r := newRemoteNames(t.Context(), nil)
	for range namesWindow {
		if err := r.arrived(nameParts(true)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.arrived(nameParts(true)); !errors.Is(err, ErrProtocol) {
		t.Errorf("one more: %v", err)
	}
	if err := (*remoteNames)(nil).arrived(nil); !errors.Is(err, ErrProtocol) {
		t.Errorf("names for who has none to ask for: %v", err)
	}
	teller := newNamesTeller(nil)
	wish := append(wire.SelectionPart(wire.SelectionWanted), namesWindow)
	for range namesWindow {
		if err := teller.hearWanted(wish); err != nil {
			t.Fatal(err)
		}
	}
	for _, body := range [][]byte{wish, append(wire.SelectionPart(wire.SelectionWanted), 0), append(wire.SelectionPart(wire.SelectionWanted), namesWindow+1), append(wire.SelectionPart(wire.SelectionNames), 1), wire.SelectionPart(wire.SelectionWanted), {}} {
		if err := teller.hearWanted(body); !errors.Is(err, ErrProtocol) {
			t.Errorf("wish %v: %v", body, err)
		}
	}
}

// noRules is the last part of no rules.
func noRules() []byte {
	part := wire.SelectionPart(wire.SelectionRules)
	part[1] = 1
	return part
}

func FuzzNames(f *testing.F) {
	f.Add(nameParts(true, fileset.Listed{Path: ".", Named: true}, fileset.Listed{Path: "a", Implied: true}, fileset.Listed{Path: "a/b", Named: true, Contents: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		items, err := all(arrivedNames(t, b, nameParts(true)))
		if err != nil {
			return
		}
		for i := range items {
			if manifest.CheckPath(items[i].Path) != nil || i > 0 && manifest.ComparePaths(items[i-1].Path, items[i].Path) >= 0 {
				t.Fatalf("%+v", items)
			}
		}
		again, err := all(arrivedNames(t, nameParts(true, items...)))
		if err != nil || !slices.Equal(again, items) {
			t.Fatalf("%+v became %+v: %v", items, again, err)
		}
		_ = (*namesTeller)(nil).hearWanted(b)
	})
}

// TestListedCheck: which entries of a pull are in a list.
func TestListedCheck(t *testing.T) {
	for _, c := range []struct {
		names     string
		recursive bool
		yes, no   string // in order; directories with a slash at their end
	}{
		{"a/x b", false, "a/ a/x b", "a a/y b/c c"},
		{"a/x b", true, "a/ a/x b/ b/c/d", "a/y c"},
		{"a/ a-b", false, "a/ a-b a/x a/y/", "a-c a/y/z"},
		{".", false, "./ a b/", "a/x"},
		{".", true, "./ a b/ b/c/d", ""},
		{"a a/x/y", true, "a/ a/b a/x/ a/x/y/ a/x/y/z", "ab"},
		{"a/#b/c a/#b-", false, "a/ a/#b/ a/#b- a/#b/c", "a/#b/d ./"},
	} {
		for want, paths := range map[bool]string{true: c.yes, false: c.no} {
			b := chunker.NewListBuilder()
			for _, name := range strings.Fields(c.names) {
				if err := b.Add(name); err != nil {
					t.Fatal(err)
				}
			}
			list, err := b.Finish()
			if err != nil {
				t.Fatal(err)
			}
			check := &listedCheck{names: list.Names(), recursive: c.recursive}
			for _, path := range strings.Fields(paths) {
				e := manifest.Entry{Type: manifest.File, Path: strings.TrimSuffix(path, "/")}
				if e.Path != path {
					e.Type = manifest.Dir
				}
				if _, ok, err := check.find(&e); ok != want || err != nil {
					t.Errorf("%q: %s: %v, %v", c.names, path, ok, err)
				}
			}
		}
	}
}

// A client that promises a selection and does not obey its rules ends its session.
func TestHostileChoice(t *testing.T) {
	OnHost(t)
	send := func(parts ...[]byte) func(ctx context.Context, s *flow.Session) error {
		return func(ctx context.Context, s *flow.Session) error {
			for _, part := range parts {
				if err := s.Ctl.Send(ctx, wire.MsgSelection, part); err != nil {
					return err
				}
			}
			return nil
		}
	}
	wanted := func(then func(ctx context.Context, s *flow.Session) error) func(ctx context.Context, s *flow.Session) error {
		return func(ctx context.Context, s *flow.Session) error {
			for asked := false; !asked; {
				if err := s.Receive(ctx, func(f *wire.Frame) error { asked = f.Type == wire.MsgSelection; return nil }); err != nil {
					return err
				}
			}
			return then(ctx, s)
		}
	}
	a := fileset.Listed{Path: "a", Named: true}
	for _, tc := range []struct {
		name  string
		mode  wire.Mode
		flags uint64
		say   func(ctx context.Context, s *flow.Session) error
	}{
		{"something else than rules", wire.ModePull, wire.FlagRules, func(ctx context.Context, s *flow.Session) error { return s.Ctl.Send(ctx, wire.MsgEnd, []byte{0}) }},
		{"names for rules", wire.ModePush, wire.FlagRules, send(nameParts(true, a))},
		{"too many rules", wire.ModePush, wire.FlagRules, send(slices.Repeat([][]byte{append(wire.SelectionPart(wire.SelectionRules), slices.Repeat([]byte{0, 1, 'x'}, 2500)...)}, 5)...)},
		{"rules unasked", wire.ModePull, 0, send(noRules())},
		{"names out of order", wire.ModePull, wire.FlagListed, wanted(send(nameParts(false, fileset.Listed{Path: "b", Named: true}), nameParts(true, a)))},
		{"a name that leaves", wire.ModePull, wire.FlagListed, wanted(send(nameParts(true, fileset.Listed{Path: "../a", Named: true})))},
		{"names to a sink", wire.ModePush, wire.FlagListed, send(nameParts(true, a))},
		{"a list of several", wire.ModePull, wire.FlagListed | wire.FlagMany, send()},
		{"a list for a bench", wire.ModeBench, wire.FlagListed, send()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, addr, ends := hostileServer(t)
			err := hostileHello(t, addr, tc.mode, "/", func(h *wire.Hello) {
				h.Terms.Flags |= tc.flags
				if tc.flags&wire.FlagMany != 0 {
					h.Paths = []string{"a", "b"}
				}
			}, func(ctx context.Context, s *flow.Session) error {
				if err := tc.say(ctx, s); err != nil {
					return err
				}
				for {
					if err := s.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
						return err
					}
				}
			})
			if err == nil {
				t.Error("the client was served")
			}
			select {
			case end := <-ends:
				if !errors.Is(end.Err, ErrProtocol) {
					t.Errorf("the server's session ended with %v", end.Err)
				}
			case <-time.After(rdmatest.Stretch(5 * time.Second)):
				t.Error("the session goes on")
			}
		})
	}
}
