package xfer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"time"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// service is what a server does in a session, and what it must close after it.
type service struct {
	role    conversation
	name    string          // of a single source
	into    *wire.IntoPlace // where a push goes
	root    string          // identifies the directory here: see wire.Hello
	tally   *Tally
	results *copyResults // nil for a bench
	spare   string       // see ServerConfig.Spare
	close   func() error
}

func (v *service) release() error {
	return errors.Join(v.role.release(), v.close())
}

func (v *service) talk(ctx context.Context, g *errgroup.Group) error {
	return v.role.talk(ctx, g)
}

func (v *service) summary(s *flow.Session, link Link, start time.Time) *Summary {
	if v.results == nil {
		return nil
	}
	sum := v.results.summary(v.tally, &s.Terms, link, start)
	sum.Local, sum.Remote = s.Memories()
	sum.Rails = s.Links.Uses()
	return sum
}

// serve prepares what a client asked for: its source or its sink below the root. tally counts what
// the service does.
func (v *Server) serve(s *flow.Session, h *wire.Hello, a keyScope, tally *Tally) (*service, error) {
	tally.Start(time.Now())
	agreed := h.Terms
	agreed.Slots, agreed.QPs = s.Terms.Slots, s.Terms.QPs
	s.Terms = agreed
	s.RingWish.Placement, s.RingWish.Shrinks = ring.PlacementOf(h), !h.WholeRing
	if h.Terms.Mode == wire.ModeBench || h.Terms.Mode == wire.ModePing {
		return v.serveBench(s, h, tally)
	}
	if h.Terms.Mode == wire.ModeExpand {
		return serveNames(s, h, a)
	}
	s.RingWish.GPUs = v.cfg.GPUs
	o := Options{Tally: tally}
	if v.cfg.Report != nil {
		o.Report = func(e Event) {
			e.Peer = s.Peer
			v.cfg.Report(e)
		}
	}
	s.Report = o.report
	acct, err := newCopyResults(&s.Terms, &o)
	if err != nil {
		return nil, err
	}
	out := &service{tally: o.Tally, results: acct, spare: v.cfg.Spare, close: func() error { return nil }}
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	if err := out.begin(s, h, a, root); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	closeStore := out.close
	out.close = func() error { return errors.Join(closeStore(), root.Close()) }
	return out, nil
}

// whoIsReadOnly names what refuses a push.
func (a keyScope) whoIsReadOnly() string {
	if a.ReadOnlyKey != "" {
		return "the key " + a.ReadOnlyKey
	}
	return "the server"
}

// open opens the directory that is served. For the user's own files it returns nil, which may be
// closed too.
func (a keyScope) open() (*servedRoot, error) {
	if a.Root == nil {
		return nil, nil
	}
	r, err := a.Root.Open()
	if err != nil {
		return nil, &servedError{err}
	}
	return &servedRoot{r}, nil
}

// servedError says why the served directory cannot be opened. Only this host may know its path: a
// peer gets only the cause.
type servedError struct{ err error }

func (e *servedError) Error() string { return "open the served directory: " + e.err.Error() }
func (e *servedError) Unwrap() error { return e.err }

// toPeer is the part of an error that a peer may read, if that error ends a session.
func toPeer(err error) string {
	var served *servedError
	if !errors.As(err, &served) {
		return fault.OneLine(err.Error())
	}
	cause := errors.New("it cannot be opened")
	var at *fs.PathError
	if errors.As(served.err, &at) {
		cause = at.Err
	}
	return "open the served directory: " + cause.Error()
}

// servedRoot is the directory that a client's paths are relative to. Nil stands for the user's own
// files.
type servedRoot struct{ *os.Root }

// Close closes the directory. It may be called on nil.
func (r *servedRoot) Close() error {
	if r == nil {
		return nil
	}
	return r.Root.Close()
}

// begin prepares the session's sink or source.
func (v *service) begin(s *flow.Session, h *wire.Hello, a keyScope, root *servedRoot) error {
	if h.Terms.Mode == wire.ModePull {
		return v.beginSource(s, h, a, root)
	}
	if a.ReadOnly {
		return fmt.Errorf("%w: %s is read-only", fs.ErrPermission, a.whoIsReadOnly())
	}
	o := dest.Options{Dest: h.Paths[0], MustBeDir: h.Terms.Flags&wire.FlagMustBeDir != 0, MustBeFile: h.Terms.Flags&wire.FlagStream != 0, PartialDir: h.Terms.PartialDir}
	if root != nil {
		o.Root = root.Root
	}
	o.Spare = v.spare
	store, err := openStore(&h.Terms, o, v.tally)
	if err != nil {
		return err
	}
	if v.root = store.RootID(); !keepsSettled(&h.Terms, store) || !v.isRootOf(h) {
		h.Terms.Settled, s.Terms.Settled = "", ""
	}
	k := newSink(s, store, v.tally, v.results)
	k.filter, k.served = a.Only.takes(h), a.Root
	v.role, v.close, v.into = k, store.Close, intoOf(s.ID, store)
	return nil
}

// isRootOf reports whether the directory here is known to be that of the client's previous attempt.
func (v *service) isRootOf(h *wire.Hello) bool { return v.root != "" && v.root == h.Root }

// openStore opens a sink's store according to the terms. Its tally gets the time of syncs.
func openStore(p *wire.Terms, o dest.Options, tally *Tally) (*dest.Sink, error) {
	o.Synced = tally.AddSync
	o.Itself, o.Keep, o.NoFsync = p.Has(wire.FlagItself), keepOf(p.Flags), p.Has(wire.FlagNoFsync)
	o.IO, o.RequireAttributes, o.OnlyLooks = p.IO, p.Has(wire.FlagRequireAttributes), p.Has(wire.FlagDryRun)
	if p.Has(wire.FlagWhole) {
		o.Whole = &dest.Whole{ID: p.Stage, OnlyCheck: p.Has(wire.FlagDryRun), Force: p.Has(wire.FlagForceReplace)}
	}
	store, err := dest.Open(o)
	if err != nil {
		return nil, asUnsupported(err)
	}
	if err := checkSpecial(p, store.Special()); err != nil {
		return nil, errors.Join(err, store.Close())
	}
	return store, nil
}

// checkSpecial refuses what cannot be done with a device or fifo as the destination.
func checkSpecial(p *wire.Terms, to *dest.Special) error {
	switch {
	case to == nil:
		return nil
	case p.Has(wire.FlagReadBack):
		return fmt.Errorf("%w: --verify-written reads files back, and the destination is a %s", ErrUsage, to.Kind())
	case p.IO == fileset.IODirect || p.IO == fileset.IODontCache:
		return fmt.Errorf("%w: --io %v says how files are written, and the destination is a %s", ErrUsage, p.IO, to.Kind())
	case p.Has(wire.FlagItself) && !to.TakesAgain():
		return fmt.Errorf("what the %s at the destination took before the connection was lost cannot be taken back: start the copy anew", to.Kind())
	}
	return nil
}

// asUnsupported turns an error about a missing feature of the file system into ErrUnsupported.
func asUnsupported(err error) error {
	if errors.Is(err, dest.ErrNoExchange) {
		return fmt.Errorf("%w: %w", rdma.ErrUnsupported, err)
	}
	return err
}

func (v *service) beginSource(s *flow.Session, h *wire.Hello, a keyScope, root *servedRoot) error {
	recursive, links, follow := h.Terms.Flags&wire.FlagRecursive != 0, h.Terms.Flags&wire.FlagLinks != 0, h.Terms.Flags&wire.FlagFollow != 0
	if h.Terms.Flags&wire.FlagListed != 0 {
		if err := chunker.CheckListDir(root.Stat, h.Paths[0]); err != nil {
			return err
		}
		v.name = sourceName(h.Paths[0])
	} else if len(h.Paths) == 1 {
		o := Options{Recursive: recursive, Links: links, Follow: follow, Whole: h.Terms.Has(wire.FlagWhole)}
		if err := checkSingle(root.Stat, root.Lstat, h.Paths[0], &o); err != nil {
			return err
		}
		v.name = sourceName(h.Paths[0])
	}
	tree, err := root.tree(namedSources(h.Paths), follow || h.Terms.Flags&wire.FlagListed == 0 && followsNamed(recursive, links, follow))
	if err != nil {
		return err
	}
	tree.UserXattrsOnly(root != nil && !a.AllAttributes)
	if v.root = tree.RootID(); !v.isRootOf(h) {
		h.Terms.Settled, s.Terms.Settled = "", ""
	}
	src := newSource(s, tree, v.tally, v.results)
	src.filter = newEntryFilter(h.Paths, root.absolute)
	src.called = calledOf(h.Paths)
	if len(h.Paths) == 1 {
		src.called = []string{v.name}
	}
	s.Into = h.Into
	v.role, v.close = src, tree.Close
	return nil
}

func (r *servedRoot) tree(sources []chunker.Source, follow bool) (*chunker.Tree, error) {
	if r == nil {
		return chunker.OpenLocal(sources, follow)
	}
	return chunker.OpenRooted(r.Root, sources, follow)
}

// Stat looks up a path as a client names it. Below a root, it makes no difference whether the path
// begins with a slash.
func (r *servedRoot) Stat(name string) (os.FileInfo, error) {
	if r == nil {
		return os.Stat(name)
	}
	return fsys.StatInside(r.Root, below(name))
}

// Lstat is like Stat, but does not follow a link.
func (r *servedRoot) Lstat(name string) (os.FileInfo, error) {
	if r == nil {
		return os.Lstat(name)
	}
	return fsys.LstatInside(r.Root, below(name))
}

func below(name string) string {
	if rel := strings.TrimLeft(path.Clean("/"+name), "/"); rel != "" {
		return rel
	}
	return "."
}
