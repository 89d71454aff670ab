package xfer

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/internal/filter"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// granting is a host whose server was started for one copy, and a client that has its key.
type granting struct {
	*testing.T
	hostileWay
	dir  string // of all files
	at   netip.AddrPort
	ends chan SessionEnd
	only *OneCopy
}

// startedFor starts a server for the copy with these options, like a remote process: of the user's
// own files. from restricts the names of a push's sources.
func startedFor(t *testing.T, push bool, o Options, from []string, paths ...string) *granting {
	t.Helper()
	g := &granting{T: t, hostileWay: byTCP(), dir: t.TempDir()}
	for name, text := range map[string]string{
		"src/a": "A", "src/b.txt": "B", "src/sub/c": "C", "src/.rc": "RC", "home/.ssh/keys": "mine", "home/dst/old": "old", "home/other": "other",
	} {
		g.write(name, text)
	}
	terms, err := o.CopyTerms(push, false)
	if err != nil {
		t.Fatal(err)
	}
	only, err := NewGrant(terms, g.under(paths))
	if err != nil {
		t.Fatal(err)
	}
	if from != nil {
		only.OnlyFrom(from, len(from) == 1 && strings.Contains(from[0], "*"), func(pattern, name string) bool {
			ok, err := path.Match(pattern, name)
			return err == nil && ok && !strings.HasPrefix(name, ".")
		})
	}
	g.only = only
	_, g.at, g.ends = g.serve(t, func(c *ServerConfig) { c.Keys = OneKey(testKey, Admission{Only: only}) })
	return g
}

// begins reports whether the client of the admitted session has continued.
func (g *OneCopy) begins() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.turn != nil && g.turn.Ctl.Answered()
}

func (g *granting) write(name, text string) {
	g.Helper()
	file := filepath.Join(g.dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		g.Fatal(err)
	}
}

// files returns all files, with their contents.
func (g *granting) files() string {
	g.Helper()
	var all strings.Builder
	err := filepath.WalkDir(g.dir, func(name string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(name)
		fmt.Fprintf(&all, "%s: %s\n", strings.TrimPrefix(name, g.dir), b)
		return err
	})
	if err != nil {
		g.Fatal(err)
	}
	return all.String()
}

// under returns paths of the host.
func (g *granting) under(paths []string) []string {
	all := make([]string, len(paths))
	for i, p := range paths {
		all[i] = g.dir + "/" + p
	}
	return all
}

// options returns the options of a client, without those for the tests' transport.
func (g *granting) options(o Options) Options {
	o.Transport, o.Timeouts = "tcp", g.timeouts()
	return o
}

func (g *granting) push(o Options, dst string, sources ...string) error {
	_, err := g.client().Push(g.Context(), g.under(sources), g.endpoint(g.at), g.dir+"/"+dst, g.options(o))
	return err
}

func (g *granting) pull(o Options, dst string, paths ...string) error {
	_, err := g.client().Pull(g.Context(), g.endpoint(g.at), g.under(paths), dst, g.options(o))
	return err
}

// A client with the key of an end that was started for one push can do only that push, and only
// once.
func TestGrantOfAPush(t *testing.T) {
	OnHost(t)
	asked := Options{Recursive: true, Links: true, Perms: true, Times: true}
	also := func(f func(*Options)) Options {
		o := asked
		f(&o)
		return o
	}
	g := startedFor(t, true, asked, []string{"/there/[sb]*"}, "home/dst")
	before := g.files()
	none := filepath.Join(t.TempDir(), "stolen")
	exclude := []filter.Rule{{Pattern: "x"}}
	for name, try := range map[string]struct {
		do   func() error
		says string
	}{
		"another path":             {func() error { return g.push(asked, "home/.ssh", "src") }, "a push, and not of or to"},
		"the path, written so":     {func() error { return g.push(asked, "home/./dst", "src") }, "a push, and not of or to"},
		"the path, as a directory": {func() error { return g.push(asked, "home/dst/", "src") }, "a push, and not of or to"},
		"below the path":           {func() error { return g.push(asked, "home/dst/../.ssh", "src") }, "a push, and not of or to"},
		"reading a secret":         {func() error { return g.pull(asked, none, "home/.ssh/keys") }, "a push, and not a pull"},
		"reading the destination":  {func() error { return g.pull(asked, none, "home/dst") }, "a push, and not a pull"},
		"deletion":                 {func() error { return g.push(also(func(o *Options) { o.Delete = true }), "home/dst", "src") }, "one that deletes nothing"},
		"attributes":               {func() error { return g.push(also(func(o *Options) { o.Xattrs = true }), "home/dst", "src") }, "one without -X"},
		"owners": {func() error {
			return g.push(also(func(o *Options) { o.Owner, o.Group = true, true }), "home/dst", "src")
		}, "one without -o, without -g"},
		"less": {func() error {
			return g.push(also(func(o *Options) { o.Perms, o.HardLinks = false, true }), "home/dst", "src")
		},
			"one with -p, without -H"},
		"sizes":             {func() error { return g.push(also(func(o *Options) { o.MinFileBytes = 1 }), "home/dst", "src") }, "one without bounds of size"},
		"what is the same":  {func() error { return g.push(also(func(o *Options) { o.IgnoreTimes = true }), "home/dst", "src") }, "one with the quick check"},
		"what has its size": {func() error { return g.push(also(func(o *Options) { o.SizeOnly = true }), "home/dst", "src") }, "one without --size-only"},
		"filter rules":      {func() error { return g.push(also(func(o *Options) { o.Rules = exclude }), "home/dst", "src") }, "one without filter rules"},
		"compression":       {func() error { return g.push(also(func(o *Options) { o.Compress = CompressZstd }), "home/dst", "src") }, "one with compression 0, and not 1"},
		"other memory":      {func() error { return g.push(also(func(o *Options) { o.RemoteGPU = "auto" }), "home/dst", "src") }, "one with slots in other memory"},
		"another source":    {func() error { return g.push(asked, "home/dst", "home/.ssh") }, `one of other sources, and not of ".ssh"`},
		"a hidden source":   {func() error { return g.push(asked, "home/dst", "src/.rc") }, `one of other sources, and not of ".rc"`},
		"no name":           {func() error { return g.push(asked, "home/dst", "src/.") }, `one of other sources, and not of "."`},
		"a stream": {func() error {
			in, err := dest.NewInput(0, "standard input")
			if err != nil {
				return err
			}
			o := g.options(Options{})
			_, err = g.client().PushStream(t.Context(), in, g.endpoint(g.at), g.dir+"/home/dst", o)
			return err
		}, "one with -r, with -l, with -p, with -t, with the quick check, without a stream"},
		"a bench": {func() error {
			_, err := g.client().BenchBandwidth(t.Context(), g.endpoint(g.at), 1<<20, g.options(asked))
			return err
		}, "a push, and not a bench"},
		"latency rounds": {func() error {
			_, err := g.client().BenchLatency(t.Context(), g.endpoint(g.at), 10, g.options(asked))
			return err
		}, "a push, and not a ping"},
	} {
		err := try.do()
		var said *RemoteError
		if !errors.As(err, &said) || !strings.HasPrefix(said.Text, errOtherCopy.Error()+": ") || !strings.Contains(said.Text, try.says) || strings.Contains(said.Text, "\n") {
			t.Errorf("%s: %v", name, err)
		}
		if after := g.files(); after != before {
			t.Fatalf("%s: there is\n%s", name, after)
		}
		if _, err := os.Lstat(none); err == nil {
			t.Fatalf("%s: it was read", name)
		}
	}
	if err := g.push(asked, "home/dst", "src"); err != nil {
		t.Fatalf("the copy itself: %v", err)
	}
	if after := g.files(); !strings.Contains(after, "/home/dst/src/sub/c: C\n") {
		t.Errorf("there is\n%s", after)
	}
	before = g.files()
	for _, source := range []string{"src", "src/b.txt"} {
		g.write("src/a", "changed")
		if err := g.push(asked, "home/dst", source); err == nil || !strings.Contains(err.Error(), "it has begun already") {
			t.Errorf("again: %v", err)
		}
	}
	g.write("src/a", "A")
	if after := g.files(); after != before {
		t.Errorf("the second copy made\n%s", after)
	}
}

// If sources are patterns, the other host says which names they stand for, and sends no other
// names.
func TestGrantOfPatterns(t *testing.T) {
	OnHost(t)
	asked := Options{Recursive: true}
	two, pattern, one := []string{"/there/a", "/there/*.txt"}, []string{"/there/*.txt"}, []string{"/there/b.txt"}
	for _, tc := range []struct {
		from, sources []string
		says          string // or the copy is taken
	}{
		{two, []string{"src/a", "src/b.txt"}, ""},
		{two, []string{"src/b.txt"}, "one with several sources"},
		{two, []string{"src/a", "src/.rc"}, `the peer sent ".rc", which was not asked for`},
		{two, []string{"src/b.txt", "src/sub"}, `the peer sent "sub", which was not asked for`},
		{two, []string{"src/sub", "src/b.txt"}, `one of other sources, and not of "sub"`},
		{pattern, []string{"src/b.txt", "src/c.txt"}, ""},
		{pattern, []string{"src/b.txt"}, ""},
		{pattern, []string{"src/b.txt", "src/a"}, `the peer sent "a", which was not asked for`},
		{one, []string{"src/b.txt"}, ""},
		{one, []string{"src/b.txt", "src/c.txt"}, "one without several sources"},
	} {
		g := startedFor(t, true, asked, tc.from, "home/dst")
		g.write("src/c.txt", "C")
		err := g.push(asked, "home/dst", tc.sources...)
		if tc.says == "" && err != nil || tc.says != "" && (err == nil || !strings.Contains(err.Error(), tc.says)) {
			t.Errorf("%q: %v", tc.sources, err)
		}
		if after := g.files(); strings.Contains(after, "/home/dst/.rc") || strings.Contains(after, "/home/dst/sub") {
			t.Errorf("%q: there is\n%s", tc.sources, after)
		}
	}
}

// An end that was started for a pull sends what was asked for, and accepts nothing.
func TestGrantOfAPull(t *testing.T) {
	OnHost(t)
	asked := Options{Recursive: true, Links: true}
	g := startedFor(t, false, asked, nil, "src/a", "src/sub")
	if err := os.Symlink(g.dir+"/home", g.dir+"/src/sub/link"); err != nil {
		t.Fatal(err)
	}
	into := t.TempDir()
	before := g.files()
	follow := Options{Recursive: true, Follow: true}
	for name, try := range map[string]struct {
		do   func() error
		says string
	}{
		"a secret":            {func() error { return g.pull(asked, into, "home/.ssh/keys") }, "a pull, and not of or to"},
		"a secret as well":    {func() error { return g.pull(asked, into, "src/a", "src/sub", "home/.ssh") }, "a pull, and not of or to"},
		"what is above":       {func() error { return g.pull(asked, into, "src") }, "a pull, and not of or to"},
		"one alone":           {func() error { return g.pull(asked, into, "src/a") }, "a pull of other paths"},
		"where links lead":    {func() error { return g.pull(follow, into, "src/a", "src/sub") }, "one without -L, with -l"},
		"writing to a source": {func() error { return g.push(asked, "src/a", "home/other") }, "a pull, and not a push"},
		"writing elsewhere":   {func() error { return g.push(asked, "home/.ssh/authorized_keys", "home/other") }, "a pull, and not a push"},
	} {
		if err := try.do(); err == nil || !strings.Contains(err.Error(), errOtherCopy.Error()+": "+try.says) {
			t.Errorf("%s: %v", name, err)
		}
		if names, _ := os.ReadDir(into); len(names) > 0 || g.files() != before {
			t.Fatalf("%s: %v, and there is\n%s", name, names, g.files())
		}
	}
	if err := g.pull(asked, into, "src/a", "src/sub"); err != nil {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(into + "/sub/c"); err != nil || string(b) != "C" {
		t.Errorf("%q, %v", b, err)
	}
	if err := g.pull(asked, into, "src/a", "src/sub"); err == nil || !strings.Contains(err.Error(), "it has begun already") {
		t.Errorf("again: %v", err)
	}
}

// If a client's connection breaks before it receives the welcome, the client connects again, and
// the hung session ends. A client that continues after its hello has begun the copy.
func TestGrantIsUsedOnce(t *testing.T) {
	OnHost(t)
	asked := Options{Recursive: true}
	// first sends the hello, and then continues until its session or ctx ends.
	first := func(ctx context.Context, g *granting, then func(ctx context.Context, s *flow.Session) error) error {
		o := g.options(asked)
		o.complete()
		h, err := o.hello(wire.ModePush)
		if err != nil {
			t.Fatal(err)
		}
		h.Paths, h.Terms.Name = []string{g.dir + "/home/dst"}, "src"
		d, err := g.client().connect(ctx, g.endpoint(g.at), &o)
		if err != nil {
			return err
		}
		h.Terms.Slots, h.Terms.QPs = d.grant.Slots, d.grant.QPs
		s := newSession(d, "the server", true, o.Timeouts)
		err = s.Run(ctx, func(ctx context.Context, _ *errgroup.Group) error {
			if err := s.Ctl.Send(ctx, wire.MsgHello, h.Encode()); err != nil {
				return err
			}
			for len(s.Inbox) == 0 && ctx.Err() == nil { // the welcome, which is not read
				time.Sleep(time.Millisecond)
			}
			return then(ctx, s)
		})
		return errors.Join(err, d.close())
	}
	broken := errors.New("the connection breaks")
	t.Run("broken", func(t *testing.T) {
		g := startedFor(t, true, asked, nil, "home/dst")
		for range 3 {
			if err := first(t.Context(), g, func(context.Context, *flow.Session) error { return broken }); !errors.Is(err, broken) {
				t.Fatal(err)
			}
		}
		if err := g.push(asked, "home/dst", "src"); err != nil {
			t.Errorf("the client that comes again: %v", err)
		}
	})
	t.Run("hanging", func(t *testing.T) {
		g := startedFor(t, true, asked, nil, "home/dst")
		hangs, ended := make(chan bool), make(chan error, 1)
		go func() {
			ended <- first(t.Context(), g, func(ctx context.Context, _ *flow.Session) error {
				close(hangs)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-hangs
		if err := g.push(asked, "home/dst", "src"); err != nil {
			t.Errorf("the client that comes again: %v", err)
		}
		select {
		case err := <-ended:
			if !strings.Contains(fmt.Sprint(err), fault.ErrSuperseded.Error()) {
				t.Errorf("the session that hung: %v", err)
			}
		case <-time.After(rdmatest.Stretch(2 * link.AbortWait)):
			t.Error("the session that hung goes on")
		}
	})
	t.Run("gone on", func(t *testing.T) {
		g := startedFor(t, true, asked, nil, "home/dst")
		goesOn := make(chan bool)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() {
			ended <- first(ctx, g, func(ctx context.Context, s *flow.Session) error {
				total := wire.Totals{}
				if err := s.Ctl.Send(ctx, wire.MsgTotal, total.Encode()); err != nil { // and does not acknowledge the welcome
					return err
				}
				for !g.only.begins() && ctx.Err() == nil {
					time.Sleep(time.Millisecond)
				}
				close(goesOn)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-goesOn
		for range 2 { // while it runs, and when it has ended
			if err := g.push(asked, "home/dst", "src"); err == nil || !strings.Contains(err.Error(), "it has begun already") {
				t.Errorf("a second copy: %v", err)
			}
			cancel()
			if ended != nil {
				<-ended
			}
			ended = nil
		}
	})
}
