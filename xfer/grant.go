package xfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gdrcp/internal/filter"
)

// errOtherCopy refuses what is not the one copy that a server is there for.
var errOtherCopy = errors.New("this end was started for one copy alone")

// errSuperseded ends a session whose client has come again by another way.
var errSuperseded = errors.New("its client has come again")

// Grant is the one copy that a server is there for: its direction, its paths and
// whatever in its options adds to what it may do or keep. It admits one session.
// One whose client never heard the welcome is none: a client whose connection breaks
// there comes again by another way.
type Grant struct {
	wanted hello // of which mode, codec, flags, paths, GPU and maxDelete count
	rules  [sha256.Size]byte
	loose  uint64 // flags that may be other ones, because they follow from the paths
	// named says which names the sources of a push may have. Nil: any.
	named func(name string) bool

	mu    sync.Mutex
	begun bool
	turn  *session // the last that was admitted, until it has ended
	end   context.CancelCauseFunc
}

// Terms says which copy a client makes of these options, for the Grant of the other
// end: a push or a pull, of a stream or of files. The errors are those of Push and Pull.
//
// They are the SHA-256 of the filter rules, as they travel, and a hello.
func (o Options) Terms(push, stream bool) ([]byte, error) {
	o.Tally = nil // it counts for the copy
	o.complete()
	if stream {
		o.IgnoreTimes = true // it is copied whatever is there
	} else if err := o.checkSinkOptions(); err != nil {
		return nil, err
	}
	m := modePull
	if push {
		m = modePush
	}
	h, err := o.hello(m)
	if err != nil {
		return nil, err
	}
	if stream && push {
		h.flags |= flagStream
	}
	sum := sumOfRules(o.Rules)
	return append(sum[:], h.encode()...), nil
}

// sumOfRules is the digest of filter rules, one after the other as they travel.
func sumOfRules(rules []filter.Rule) [sha256.Size]byte {
	var b []byte
	for i := range rules {
		b = appendRule(b, &rules[i])
	}
	return sha256.Sum256(b)
}

// NewGrant is for the copy of such terms: to the one path of a push, or of the paths
// of a pull.
func NewGrant(terms []byte, paths []string) (*Grant, error) {
	if len(terms) < sha256.Size {
		return nil, fmt.Errorf("%w: terms of %d bytes", ErrProtocol, len(terms))
	}
	h, err := decodeHello(terms[sha256.Size:])
	switch {
	case err != nil:
		return nil, err
	case h.mode != modePush && h.mode != modePull, h.mode == modePush && len(paths) != 1:
		return nil, fmt.Errorf("%w: a grant for a %s of %d paths", ErrProtocol, h.mode, len(paths))
	}
	if h.mode == modePull && h.flags&flagListed != 0 {
		if top, err := listedSource(paths); err == nil { // else the client says what is wrong
			paths = top
		}
	}
	// hello.check holds flagMany of a pull against the paths, and differs flagMustBeDir
	// of a push.
	g := &Grant{wanted: h, rules: [sha256.Size]byte(terms), loose: flagMany}
	if h.mode == modePush {
		g.loose |= flagMustBeDir
	}
	g.wanted.paths = paths
	return g, nil
}

// OnlyFrom bounds what a push may bring to the names that the sources have, which
// another host reads: where such a source gives its files no name of their own, as
// dir/. does, any. A source may be a pattern, and then standsFor says whether the last
// part of it stands for a name. Whether there are several sources is held to, too,
// unless there is one that may stand for several.
func (g *Grant) OnlyFrom(sources []string, mayBeSeveral bool, standsFor func(pattern, name string) bool) {
	if !mayBeSeveral {
		g.loose &^= flagMany
	}
	if len(sources) > 1 {
		g.wanted.flags |= flagMany
	}
	g.named = func(name string) bool {
		return slices.ContainsFunc(sources, func(source string) bool {
			last := baseName(source)
			return name == last || standsFor(last, name)
		})
	}
}

// differs says what in a hello is not the copy that was granted, or nothing.
func (g *Grant) differs(h *hello) string {
	w := &g.wanted
	switch other := h.flags ^ w.flags; {
	case h.mode != w.mode:
		return fmt.Sprintf("a %s, and not a %s", w.mode, h.mode)
	case !slices.Equal(h.paths, w.paths):
		return g.otherPath(h.paths)
	case h.mode == modePush && (h.flags&flagMustBeDir != 0) != (h.flags&flagMany != 0 || strings.HasSuffix(w.paths[0], "/")):
		return fmt.Sprintf("to %q, which was to be as it was written", w.paths[0])
	case other&h.flags&flagDelete != 0:
		return "one that deletes nothing"
	case other&^g.loose != 0:
		return "one " + otherOptions(w.flags, other&^g.loose)
	case h.maxDelete != w.maxDelete:
		return "one that may delete another number of entries"
	case h.sizes != w.sizes:
		return "one of files of other sizes"
	case h.codec != w.codec:
		return fmt.Sprintf("one with compression %d, and not %d", w.codec, h.codec)
	case h.gpu != w.gpu || h.gpuName != w.gpuName:
		return "one with slots in other memory"
	case g.named != nil && !g.named(h.name):
		return fmt.Sprintf("one of other sources, and not of %q", h.name)
	}
	return ""
}

// otherOptions says which of the flags that differ were granted and which were not.
func otherOptions(granted, other uint64) string {
	var words []string
	for _, o := range []struct {
		flag uint64
		name string
	}{
		{flagRecursive, "-r"}, {flagFollow, "-L"}, {flagLinks, "-l"}, {flagModes, "-p"}, {flagTimes, "-t"}, {flagOwner, "-o"}, {flagGroup, "-g"},
		{flagHardLinks, "-H"}, {flagXattrs, "-X"}, {flagNumericIDs, "--numeric-ids"}, {flagDryRun, "--dry-run"}, {flagUpdate, "--update"},
		{flagSameStays, "the quick check"}, {flagSizeStays, "--size-only"},
		{flagIgnoreExisting, "--ignore-existing"}, {flagExisting, "--existing"}, {flagDelete, "--delete"}, {flagNoFsync, "--no-fsync"},
		{flagEncrypt, "--encrypt"}, {flagRules, "filter rules"}, {flagListed, "--files-from"}, {flagStream, "a stream"}, {flagGrowing, "--copy-growing"},
		{flagOneFileSystem, "--one-file-system"}, {flagSizes, "bounds of size"},
		{flagMany, "several sources"},
	} {
		switch {
		case other&o.flag == 0:
		case granted&o.flag != 0:
			words = append(words, "with "+o.name)
		default:
			words = append(words, "without "+o.name)
		}
	}
	if len(words) == 0 {
		return "with other options"
	}
	return strings.Join(words, ", ")
}

// otherPath tells of paths that are not those that were granted.
func (g *Grant) otherPath(paths []string) string {
	for _, p := range paths {
		if !slices.Contains(g.wanted.paths, p) {
			return fmt.Sprintf("a %s, and not of or to %q", g.wanted.mode, p)
		}
	}
	return fmt.Sprintf("a %s of other paths", g.wanted.mode)
}

// admit takes a session in whose hello this is, and end ends, where it is the copy
// that was granted and that has not begun. A session that was admitted before, and
// whose client has not heard so, ends. A nil Grant admits all.
func (g *Grant) admit(h *hello, s *session, end context.CancelCauseFunc) error {
	if g == nil {
		return nil
	}
	if what := g.differs(h); what != "" {
		return fmt.Errorf("%w: %s", errOtherCopy, what)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun || g.turn != nil && g.turn.ctl.answered() {
		return fmt.Errorf("%w: it has begun already", errOtherCopy)
	}
	if g.turn != nil {
		g.end(errSuperseded)
	}
	g.turn, g.end = s, end
	return nil
}

// left notes that a session has ended.
func (g *Grant) left(s *session) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turn == s {
		g.begun = g.begun || s.ctl.answered()
		g.turn, g.end = nil, nil
	}
}

// checkRules holds the rules of a session against those of the copy: they say also what
// deletion leaves alone.
func (g *Grant) checkRules(rules []filter.Rule) error {
	if g != nil && sumOfRules(rules) != g.rules {
		return fmt.Errorf("%w: one with other filter rules", errOtherCopy)
	}
	return nil
}

// asked is what a sink takes of entries, where the source may not choose their names.
func (g *Grant) asked(h *hello) *asked {
	if g == nil || g.named == nil {
		return nil
	}
	a := &asked{flags: h.flags}
	if h.flags&flagMany != 0 {
		a.named = g.named
	} else {
		a.name = h.name
	}
	return a
}
