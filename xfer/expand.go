package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"gdrcp/internal/fsys"
	"gdrcp/internal/pattern"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

const (
	// maxLooks bounds the entries that are looked at for the patterns of a session. expandTimeout
	// bounds the time.
	maxLooks      = 1 << 20
	expandTimeout = 5 * time.Second
	// looksAtOnce is how many names of a directory are read together.
	looksAtOnce = 1024
	// maxKeptBytes bounds the names that are kept while the entries below them are looked at.
	// nameBytes is the size of each name besides its letters: a string, its place in a growing
	// list, and the rounding of the allocator.
	maxKeptBytes = 16 << 20
	nameBytes    = 64
	// maxNamesBytes leaves room for the other fields of the pull's hello.
	maxNamesBytes = wire.MaxBodyBytes - 512
)

// errManyNames says that a pattern matches more than a hello has room for.
var errManyNames error = manyNamesError{}

// manyNamesError is an ErrUsage in words of its own.
type manyNamesError struct{}

func (manyNamesError) Error() string {
	return fmt.Sprintf("it matches more names than one copy takes (about %d KiB): "+
		"copy the directory with --include and --exclude, or name the files by --files-from", maxNamesBytes>>10)
}

func (manyNamesError) Is(target error) bool { return target == ErrUsage }

// CheckExpansion refuses the names that patterns expand to if a pull has no room for them. The
// error is an ErrUsage that names the pattern. Paths that stand for one name count, but are not
// refused here.
func CheckExpansion(patterns []string, names [][]string) error {
	var body []byte
	for i, p := range patterns {
		body = appendNames(body, names[i])
		if len(names[i]) > 1 && len(body) > maxNamesBytes {
			return fmt.Errorf("pattern %q: %w", p, errManyNames)
		}
	}
	return nil
}

// appendNames appends the matches of one pattern to the body of wire.MsgNames.
func appendNames(body []byte, names []string) []byte {
	body = binary.AppendUvarint(body, uint64(len(names)))
	for _, name := range names {
		body = binary.AppendUvarint(body, uint64(len(name)))
		body = append(body, name...)
	}
	return body
}

// Expand asks a server to expand the paths of a pull. A path stands for itself if an entry of
// exactly that name exists, if the path is no pattern, or if nothing matches it. Expand checks the
// answer against the patterns. The names of each pattern are sorted.
func (c *Client) Expand(ctx context.Context, ep Endpoint, paths []string, o Options) ([][]string, error) {
	if _, _, err := o.placements(); err != nil { // the copy's own: its GPUs are not requested here
		return nil, err
	}
	if o.needsVerbs() {
		o.Require = "verbs"
	}
	o.Slots, o.QPs, o.ChunkBytes, o.Manifest, o.WriteManifest = 1, 1, MinChunkBytes, "", ""
	o.GPU, o.RemoteGPU, o.GPUFlush, o.Report, o.Tally = "", "", "", nil, nil
	o.complete()
	h, err := o.benchHello(wire.ModeExpand)
	if err != nil {
		return nil, err
	}
	h.Paths = paths
	var out [][]string
	_, err = c.benchSession(ctx, ep, &o, h, func(ctx context.Context, s *flow.Session, _ *errgroup.Group) error {
		return s.Expect(ctx, wire.MsgNames, "names", func(body []byte) (err error) {
			out, err = decodeNames(body, paths)
			return err
		})
	})
	return out, err
}

// decodeNames decodes the body of wire.MsgNames. For each pattern in turn, the body has a uvarint
// with the number of names, and for each name a uvarint with its length and then the name.
// decodeNames checks the names against their patterns: a server that could name anything could make
// the client write anything anywhere (CVE-2019-6111).
func decodeNames(body []byte, patterns []string) ([][]string, error) {
	c := wire.Cursor{Buf: body}
	out := make([][]string, len(patterns))
	for i, p := range patterns {
		n := c.Uvarint()
		for ; n > 0 && !c.Bad; n-- {
			out[i] = append(out[i], c.Str())
		}
		if c.Bad || !standsFor(p, out[i]) {
			return nil, fmt.Errorf("%w: the server names other files than %q", ErrProtocol, p)
		}
	}
	if len(c.Buf) > 0 {
		return nil, fmt.Errorf("%w: %d bytes behind the names", ErrProtocol, len(c.Buf))
	}
	return out, c.Err("names")
}

// standsFor reports whether a path may stand for names. The names must be in ascending
// order.
func standsFor(path string, names []string) bool {
	if len(names) == 1 && names[0] == path {
		return true
	}
	for i, name := range names {
		if !pattern.Is(path) || !pattern.Matches(path, name) || i > 0 && names[i-1] >= name {
			return false
		}
	}
	return len(names) > 0
}

// expander is the server's end. It reports which names below the served root the patterns match,
// and nothing else.
type expander struct {
	Session *flow.Session
	root    *servedRoot
	paths   []string
}

func (e *expander) release() error                 { return nil }
func (e *expander) Done(*link.Link, uint64)        {}
func (e *expander) Opened()                        {}
func (e *expander) Fast(*wire.Frame) (bool, error) { return false, nil }
func (e *expander) Immediate(_ *link.Link, imm uint32) error {
	return fmt.Errorf("%w: immediate %#x among names", ErrProtocol, imm)
}

func (e *expander) talk(ctx context.Context, _ *errgroup.Group) error {
	var r link.Role = e
	e.Session.Role.Store(&r)
	within, cancel := context.WithTimeout(ctx, expandTimeout)
	defer cancel()
	g := globbing{ctx: within, root: e.root, looks: maxLooks, room: maxKeptBytes}
	var body []byte
	for _, p := range e.paths {
		names, err := g.expand(p)
		if err != nil {
			return fmt.Errorf("pattern %q: %w", p, err)
		}
		body = appendNames(body, names)
		if len(body) > maxNamesBytes {
			return fmt.Errorf("pattern %q: %w", p, errManyNames)
		}
	}
	if err := e.Session.SayLast(ctx, wire.MsgNames, body); err != nil {
		return err
	}
	return e.Session.Linger(ctx)
}

// serveNames prepares the server's end. It does not search the user's own files: a client that
// connects by ssh has expanded its patterns already.
func serveNames(s *flow.Session, h *wire.Hello, a keyScope) (*service, error) {
	root, err := a.open()
	if err != nil {
		return nil, err
	}
	if root == nil {
		return nil, fmt.Errorf("%w: patterns work only below a served directory", fs.ErrPermission)
	}
	return &service{role: &expander{Session: s, root: root, paths: h.Paths}, close: root.Close}, nil
}

// globbing expands a peer's patterns, within bounds.
type globbing struct {
	ctx   context.Context
	root  *servedRoot
	looks int // entries that may still be looked at
	room  int // bytes of names that may still be kept on the way
	names []string
	bytes int
	// dirsOnly says that the name must be that of a directory, because the pattern ends in a slash.
	dirsOnly bool
}

// expand returns the names that one path stands for: see Client.Expand.
func (g *globbing) expand(path string) ([]string, error) {
	parts := pattern.Parts(path)
	if !pattern.Is(path) || slices.Contains(parts, "..") {
		return []string{path}, nil
	}
	if _, err := g.root.Lstat(path); err == nil {
		return []string{path}, nil
	}
	g.names, g.bytes, g.dirsOnly = nil, 0, strings.HasSuffix(path, "/")
	if err := g.below("", parts); err != nil {
		return nil, err
	}
	if len(g.names) == 0 {
		return []string{path}, nil
	}
	begin, end := "", ""
	if strings.HasPrefix(path, "/") {
		begin = "/"
	}
	if g.dirsOnly {
		end = "/"
	}
	for i, name := range g.names {
		g.names[i] = begin + name + end
	}
	slices.Sort(g.names)
	return slices.Compact(g.names), nil // a directory may have a name twice (FUSE, NFS)
}

// below finds the names in a directory that match parts. "" is the top. A directory that cannot be
// read has no names, as for a shell.
func (g *globbing) below(dir string, parts []string) error {
	if !pattern.Is(parts[0]) {
		return g.found(join(dir, parts[0]), parts[1:])
	}
	// No link leads out of the root, and no fifo blocks the open.
	f, err := fsys.OpenInside(g.root.Root, below(dir), os.O_RDONLY|syscall.O_DIRECTORY)
	if err != nil {
		return nil
	}
	before := g.room
	defer func() { g.room = before }()
	matched, err := g.matching(f, parts[0])
	_ = f.Close() // the directory was only read
	switch {
	case g.room < 0 && len(parts) == 1 && !g.dirsOnly:
		return errManyNames // the last part alone matches too many
	case g.looks < 0 || g.room < 0 || g.ctx.Err() != nil:
		return err
	}
	if !errors.Is(err, io.EOF) {
		return nil
	}
	for _, name := range matched {
		if err := g.found(join(dir, name), parts[1:]); err != nil {
			return err
		}
	}
	return nil
}

// matching reads the names of a directory that match a part. The error is io.EOF after the last
// name.
func (g *globbing) matching(f *os.File, part string) (matched []string, err error) {
	for err == nil {
		var names []string
		names, err = f.Readdirnames(looksAtOnce)
		for _, name := range names {
			if pattern.MatchesPart(part, name) {
				matched = append(matched, name)
				g.room -= len(name) + nameBytes
			}
		}
		if spent := g.spend(len(names) + 1); spent != nil {
			err = spent
		} else if g.room < 0 {
			err = errManyLooks
		}
	}
	return matched, err
}

// found adds a path whose last part matched. If parts are left, found continues below the path.
func (g *globbing) found(name string, rest []string) error {
	if err := g.spend(1); err != nil {
		return err
	}
	if len(rest) > 0 {
		return g.below(name, rest)
	}
	look := g.root.Lstat
	if g.dirsOnly {
		look = g.root.Stat
	}
	st, err := look(name)
	if err != nil || g.dirsOnly && !st.IsDir() {
		return nil
	}
	g.names = append(g.names, name)
	if g.bytes += len(name); g.bytes > maxNamesBytes {
		return errManyNames
	}
	return nil
}

// errManyLooks says that a pattern asks for too many entries to be read.
var errManyLooks = fmt.Errorf("%w: too many entries would have to be read to match it", fs.ErrPermission)

// spend takes n from the number of entries that may still be looked at.
func (g *globbing) spend(n int) error {
	if g.looks -= n; g.looks < 0 {
		return errManyLooks
	}
	if g.ctx.Err() != nil {
		return fmt.Errorf("its matches were not found within %s", expandTimeout)
	}
	return nil
}

func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}
