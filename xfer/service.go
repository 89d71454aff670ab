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
	"gdrcp/manifest"

	"golang.org/x/sync/errgroup"
)

func (m mode) String() string {
	switch m {
	case modePush:
		return "push"
	case modePull:
		return "pull"
	case modeBench:
		return "bench"
	case modePing:
		return "ping"
	case modeExpand:
		return "look"
	}
	return "unknown"
}

// service is what a server does in a session, and what it has to end.
type service struct {
	conversation
	name  string     // of a single source
	into  *intoPlace // where a push goes
	tally *Tally
	acct  *account // nil for a bench
	close func() error
}

func (v *service) release() error {
	return errors.Join(v.conversation.release(), v.close())
}

func (v *service) talk(ctx context.Context, g *errgroup.Group) error {
	return v.conversation.talk(ctx, g)
}

func (v *service) summary(s *session, link Link, start time.Time) *Summary {
	if v.acct == nil {
		return nil
	}
	sum := v.acct.summary(v.tally, &s.params, link, start)
	sum.Local, sum.Remote = s.memories()
	return sum
}

// check holds a hello against the bounds and what the rail was made for.
func (h *hello) check(made *params) error {
	if h.slots != uint64(made.slots) || h.qps != uint64(made.qps) || h.chunkBytes != uint64(made.chunkBytes) || made.chunkBytes < MinChunkBytes {
		return fmt.Errorf("%w: a hello that does not fit its connection", ErrProtocol)
	}
	if err := manifest.CheckPieceBytes(int64(h.pieceBytes)); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if !h.hash.Valid() && !(h.mode == modeBench && h.hash == 0) {
		return fmt.Errorf("%w: hash %d", ErrProtocol, h.hash)
	}
	switch h.mode {
	case modePing, modeBench:
		return h.checkNoFiles()
	case modeExpand:
		return h.checkPatterns()
	case modePush, modePull:
		return h.checkFiles()
	}
	return fmt.Errorf("%w: mode %d", ErrProtocol, h.mode)
}

// checkNoFiles holds the hello of a bench or of latency rounds against what these
// can be: memory of the host, sealed or not.
func (h *hello) checkNoFiles() error {
	if h.flags&^flagEncrypt != 0 || h.codec != uint64(CompressOff) || h.gpu != 0 || h.maxDelete != 0 || h.sizes.isSet() || len(h.paths) > 0 || h.name != "" {
		return fmt.Errorf("%w: a %s with flags %#x, codec %d, GPU %d, %d paths", ErrProtocol, h.mode, h.flags, h.codec, h.gpu, len(h.paths))
	}
	return nil
}

// checkFiles holds the hello of a copy against what this can be.
func (h *hello) checkFiles() error {
	if h.codec != uint64(CompressOff) && h.chunkBytes > MaxCompressedChunkBytes {
		return fmt.Errorf("%w: compressed chunks of %d bytes", ErrProtocol, h.chunkBytes)
	}
	if err := h.checkSinkFlags(); err != nil {
		return err
	}
	if h.pieceBytes > h.chunkBytes {
		return fmt.Errorf("%w: pieces of %d bytes in chunks of %d", ErrProtocol, h.pieceBytes, h.chunkBytes)
	}
	if err := h.checkStream(); err != nil {
		return err
	}
	if h.flags&flagListed != 0 && h.flags&(flagMany|flagStream) != 0 {
		return fmt.Errorf("%w: a list of several sources, or of a stream", ErrProtocol)
	}
	if len(h.paths) == 0 || (h.mode == modePush && len(h.paths) != 1) || len(h.paths) > 1 != (h.flags&flagMany != 0) && h.mode == modePull {
		return fmt.Errorf("%w: %d paths", ErrProtocol, len(h.paths))
	}
	return nil
}

// serve readies what a client asked for: its source or its sink below the root.
func (v *Server) serve(s *session, h *hello, a *Admission) (*service, error) {
	agreed := h.params()
	agreed.slots, agreed.qps = s.params.slots, s.params.qps
	s.mu.Lock() // further queue pairs may be joining
	s.params = agreed
	s.mu.Unlock()
	s.place = h.place()
	if h.mode == modeBench || h.mode == modePing {
		return v.serveBench(s, h)
	}
	if h.mode == modeExpand {
		return serveNames(s, h, a)
	}
	s.gpus = v.cfg.GPUs
	o := Options{Tally: &Tally{started: time.Now()}}
	if v.cfg.Report != nil {
		o.Report = func(e Event) {
			e.Peer = s.peer
			v.cfg.Report(e)
		}
	}
	s.report = o.report
	acct, err := newAccount(&s.params, &o)
	if err != nil {
		return nil, err
	}
	out := &service{tally: o.Tally, acct: acct, close: func() error { return nil }}
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

// open opens the directory that is served. For the user's own files that is
// nil, which may be closed too.
func (a *Admission) open() (*servedRoot, error) {
	if a.Root == nil {
		return nil, nil
	}
	r, err := a.Root.Open()
	if err != nil {
		return nil, &servedError{err}
	}
	return &servedRoot{r}, nil
}

// servedError is why what is served cannot be opened. The path of it is this
// host's to know: a peer is told the cause alone.
type servedError struct{ err error }

func (e *servedError) Error() string { return "open what is served: " + e.err.Error() }
func (e *servedError) Unwrap() error { return e.err }

// toPeer is what a peer may read of an error that ends a session.
func toPeer(err error) string {
	var served *servedError
	if !errors.As(err, &served) {
		return err.Error()
	}
	cause := errors.New("it cannot be opened")
	var at *fs.PathError
	if errors.As(served.err, &at) {
		cause = at.Err
	}
	return "open what is served: " + cause.Error()
}

// servedRoot is where a client's paths begin. Nil are the user's own files.
type servedRoot struct{ *os.Root }

// Close is of nil, too.
func (r *servedRoot) Close() error {
	if r == nil {
		return nil
	}
	return r.Root.Close()
}

// begin readies the session's sink or source.
func (v *service) begin(s *session, h *hello, a *Admission, root *servedRoot) error {
	if h.mode == modePull {
		return v.beginSource(s, h, root)
	}
	if a.ReadOnly {
		return fmt.Errorf("%w: the server is read-only", fs.ErrPermission)
	}
	o := chunker.SinkOptions{
		Dest: h.paths[0], MustBeDir: h.flags&flagMustBeDir != 0, MustBeFile: h.flags&flagStream != 0, Keep: keepOf(h.flags), NoFsync: h.flags&flagNoFsync != 0,
	}
	if root != nil {
		o.Root = root.Root
	}
	store, err := chunker.OpenSink(o)
	if err != nil {
		return err
	}
	k := newSink(s, store, v.tally, v.acct)
	k.asked = a.Only.asked(h)
	v.conversation, v.close, v.into = k, store.Close, intoOf(s.id, store)
	return nil
}

func (v *service) beginSource(s *session, h *hello, root *servedRoot) error {
	recursive, links, follow := h.flags&flagRecursive != 0, h.flags&flagLinks != 0, h.flags&flagFollow != 0
	if h.flags&flagListed != 0 {
		if err := checkListed(root.Stat, h.paths[0]); err != nil {
			return err
		}
		v.name = sourceName(h.paths[0])
	} else if len(h.paths) == 1 {
		o := Options{Recursive: recursive, Links: links, Follow: follow}
		if err := checkSingle(root.Stat, root.Lstat, h.paths[0], &o); err != nil {
			return err
		}
		v.name = sourceName(h.paths[0])
	}
	tree, err := root.tree(namedSources(h.paths), follow || h.flags&flagListed == 0 && followsNamed(recursive, links, follow))
	if err != nil {
		return err
	}
	src := newSource(s, tree, v.tally, v.acct)
	src.chosen = newChosen(h.paths, root.absolute)
	src.called = calledOf(h.paths)
	if len(h.paths) == 1 {
		src.called = []string{v.name}
	}
	s.into = h.into
	v.conversation, v.close = src, tree.Close
	return nil
}

func (r *servedRoot) tree(sources []chunker.Source, follow bool) (*chunker.Tree, error) {
	if r == nil {
		return chunker.OpenLocal(sources, follow)
	}
	return chunker.OpenRooted(r.Root, sources, follow)
}

// Stat looks at a path as a client names it: below the root, whether it begins
// with a slash or not.
func (r *servedRoot) Stat(name string) (os.FileInfo, error) {
	if r == nil {
		return os.Stat(name)
	}
	return r.Root.Stat(below(name))
}

// Lstat is Stat of a link itself.
func (r *servedRoot) Lstat(name string) (os.FileInfo, error) {
	if r == nil {
		return os.Lstat(name)
	}
	return r.Root.Lstat(below(name))
}

func below(name string) string {
	if rel := strings.TrimLeft(path.Clean("/"+name), "/"); rel != "" {
		return rel
	}
	return "."
}
