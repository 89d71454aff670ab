package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/wire"
)

// rootWith serves a directory with these entries. Those with a trailing slash are directories; "a
// -> b" is a link.
func rootWith(t *testing.T, names ...string) *servedRoot {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		link, target, isLink := strings.Cut(name, " -> ")
		path := filepath.Join(dir, link)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case isLink:
			err = os.Symlink(target, path)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(path, 0o755)
		default:
			err = os.WriteFile(path, nil, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return &servedRoot{root}
}

// Patterns match what is below the root, as in a shell, and nothing else.
func TestExpandBelowARoot(t *testing.T) {
	outside := t.TempDir()
	if err := os.WriteFile(outside+"/secret.pt", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	root := rootWith(t, "d/b.pt", "d/a.pt", "d/.hid.pt", "d/sub/x.pt", "d/x[1].pt", "d/x1.pt", "e/a.pt", "e/no", "in -> d", "d/l.pt -> gone",
		"out -> "+outside, "up -> ../..", "out.pt -> "+outside+"/secret.pt")
	if err := syscall.Mkfifo(root.Name()+"/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string][]string{
		"/d/*.pt":    {"/d/a.pt", "/d/b.pt", "/d/l.pt", "/d/x1.pt", "/d/x[1].pt"},
		"/d/.*":      {"/d/.hid.pt"},
		"/*/a.pt":    {"/d/a.pt", "/e/a.pt", "/in/a.pt"},
		"/d/x[1].pt": {"/d/x[1].pt"}, // the literal name wins
		"/d/x[1]*":   {"/d/x1.pt"},
		"/d/[!a].pt": {"/d/b.pt", "/d/l.pt"},
		"/*/":        {"/d/", "/e/", "/in/"},
		"/e/?":       {"/e/?"}, // nothing matches
		"/d/[":       {"/d/["},
		"/e/no/*":    {"/e/no/*"},
		"/fifo/*":    {"/fifo/*"},
		"/out/*":     {"/out/*"},
		"/up/*":      {"/up/*"},
		"/*/*.pt/..": {"/*/*.pt/.."},
		"/../*":      {"/../*"},
		"/none":      {"/none"},
	} {
		g := globbing{ctx: t.Context(), root: root, looks: maxLooks, room: maxKeptBytes}
		if got, err := g.expand(path); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %q, %v; want %q", path, got, err, want)
		} else if !standsFor(path, got) {
			t.Errorf("%s: the other end does not believe %q", path, got)
		}
	}
}

// A name that a directory lists twice is one name, for patterns as for copies.
func TestRepeatedNames(t *testing.T) {
	OnHost(t)
	dir := fusetest.MountRepeating(t, "b.bin", "a.bin")
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	g := globbing{ctx: t.Context(), root: &servedRoot{root}, looks: maxLooks, room: maxKeptBytes}
	got, err := g.expand("/*.bin")
	if err != nil || !slices.Equal(got, []string{"/a.bin", "/b.bin"}) || !standsFor("/*.bin", got) {
		t.Errorf("%q, %v", got, err)
	}
	_, addr, _ := hostileServer(t, func(c *ServerConfig) { c.Keys = OneKey(testKey, Admission{Root: DirRoot(dir)}) })
	c, dst := Client{TCP: tcp.New()}, filepath.Join(t.TempDir(), "copy")
	sum, err := c.Pull(t.Context(), endpointAt(addr), []string{"/."}, dst, *byTCP().options())
	if err != nil || sum.Files != 2 {
		t.Fatalf("%+v, %v", sum, err)
	}
	for _, name := range []string{"a.bin", "b.bin"} {
		if b, err := os.ReadFile(filepath.Join(dst, name)); err != nil || string(b) != name {
			t.Errorf("%s: %q, %v", name, b, err)
		}
	}
}

// The cost of a pattern is bounded: in entries, in time, in bytes of names.
func TestExpandIsBounded(t *testing.T) {
	root := rootWith(t, "a/b/c/d", "a/b/e/f", "a/g/h/i", "j/k/l/m")
	g := globbing{ctx: t.Context(), root: root, looks: 8, room: maxKeptBytes}
	if _, err := g.expand("/*/*/*/*"); !errors.Is(err, errManyLooks) {
		t.Errorf("with few looks: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	g = globbing{ctx: ended, root: root, looks: maxLooks, room: maxKeptBytes}
	if _, err := g.expand("/*/*/*/*"); err == nil {
		t.Error("it goes on when the time is over")
	}
	// Names of one letter: a and j, below a also b and g, below a/b also c and e, and d below
	// a/b/c. Names kept for one pattern are released for the next.
	const one = nameBytes + 1
	g = globbing{ctx: t.Context(), root: root, looks: maxLooks, room: 7 * one}
	for range 2 {
		if _, err := g.expand("/*/*/*/*"); err != nil {
			t.Errorf("with room for the names on the way: %v", err)
		}
	}
	g.room = 4*one - 1
	if _, err := g.expand("/*/*/*/*"); !errors.Is(err, errManyLooks) {
		t.Errorf("with room for less: %v", err)
	}
	g.room = 2*one - 1
	if _, err := g.expand("/*"); !errors.Is(err, errManyNames) {
		t.Errorf("with room for less than it stands for: %v", err)
	}
	var names []string
	for i := range 60 {
		names = append(names, strings.Repeat("n", 200)+string(rune('0'+i)))
	}
	g = globbing{ctx: t.Context(), root: rootWith(t, names...), looks: maxLooks, room: maxKeptBytes}
	if _, err := g.expand("/n*"); !errors.Is(err, errManyNames) {
		t.Errorf("with many names: %v", err)
	}
}

// A client accepts no name that its pattern does not match.
func TestNamesOfAHostileServer(t *testing.T) {
	body := func(names ...string) []byte {
		b := binary.AppendUvarint(nil, uint64(len(names)))
		for _, name := range names {
			b = append(binary.AppendUvarint(b, uint64(len(name))), name...)
		}
		return b
	}
	got, err := decodeNames(body("/d/a.pt", "/d/b.pt"), []string{"/d/*.pt"})
	if err != nil || !slices.Equal(got[0], []string{"/d/a.pt", "/d/b.pt"}) {
		t.Errorf("good names: %q, %v", got, err)
	}
	for what, b := range map[string][]byte{
		"another directory": body("/e/a.pt"), "a deeper one": body("/d/e/a.pt"), "the one above": body("/d/.."), "hidden": body("/d/.a.pt"),
		"another name": body("/d/.bashrc"), "twice": body("/d/a.pt", "/d/a.pt"), "unsorted": body("/d/b.pt", "/d/a.pt"), "none": body(),
		"a NUL": body("/d/a\x00.pt"), "cut": body("/d/a.pt")[:3], "nothing": nil, "more": append(body("/d/a.pt"), 1),
		"many": binary.AppendUvarint(nil, 1<<62),
	} {
		if got, err := decodeNames(b, []string{"/d/*.pt"}); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %q, %v", what, got, err)
		}
	}
}

// FuzzExpanded: whatever a server names, only what was asked for is accepted.
func FuzzExpanded(f *testing.F) {
	f.Add([]byte("\x01\x04/a/b"), "/a/*")
	f.Fuzz(func(t *testing.T, body []byte, path string) {
		got, err := decodeNames(body, []string{path})
		if err != nil {
			return
		}
		for _, name := range got[0] {
			if name != path && (slices.Contains(strings.Split(name, "/"), "..") && !slices.Contains(strings.Split(path, "/"), "..")) {
				t.Errorf("%q for %q", name, path)
			}
		}
	})
}

// A copy that insists on direct access to GPU memory may name its sources by patterns. The request
// to expand them goes over verbs, and needs no GPU.
func TestExpandForGPUDirect(t *testing.T) {
	OnHost(t)
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/a.pt", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	_, addr, _ := hostileServer(t, func(c *ServerConfig) { c.Keys = OneKey(testKey, Admission{Root: DirRoot(dir)}) })
	ep := Endpoint{Host: addr.Addr().String(), Key: testKey, Addrs: []ServerAddr{{"verbs", addr, "", 0}}}
	c := Client{Verbs: verbsNamed{tcp.New()}}
	for _, o := range []Options{{GPU: "0"}, {RemoteGPU: "auto", Transport: "verbs"}} {
		o.Require = "gpudirect"
		names, err := c.Expand(t.Context(), ep, []string{"/*.pt"}, o)
		if err != nil || len(names) != 1 || !slices.Equal(names[0], []string{"/a.pt"}) {
			t.Errorf("%+v: %q, %v", o, names, err)
		}
	}
	if _, err := c.Expand(t.Context(), ep, []string{"/*.pt"}, Options{Require: "gpudirect"}); !errors.Is(err, ErrUsage) {
		t.Errorf("of a copy without a GPU: %v", err)
	}
}

// TestQuestionsAskForNoFiles: an option of the following copy does not make a server refuse the
// requests before it.
func TestQuestionsAskForNoFiles(t *testing.T) {
	for name, o := range map[string]Options{
		"a rung": {IO: fileset.IODirect}, "files at once": {Transfers: 3}, "a whole tree": {Whole: true, Recursive: true}, "compression": {Compress: CompressS2},
		"deletion": {Delete: true, Recursive: true}, "sizes": {MinFileBytes: 1, MaxFileBytes: 9}, "partial files elsewhere": {PartialDir: "parts"}, "encryption": {Encrypt: true},
	} {
		for _, m := range []wire.Mode{wire.ModePing, wire.ModeBench, wire.ModeExpand} {
			o.complete()
			h, err := o.benchHello(m)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if m == wire.ModeExpand {
				h.Paths = []string{"/*"}
			}
			if err := h.Check(&h.Terms); err != nil {
				t.Errorf("%s, %v: %v", name, m, err)
			}
		}
	}
}
