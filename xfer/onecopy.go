package xfer

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// errOtherCopy refuses any copy but the one that the server was started for.
var errOtherCopy = errors.New("this end admits only the copy that it was started for")

// OneCopy is the copy that a server was started for: its direction, its paths, and all of its
// options that extend what the copy may do or keep. It admits one session. A session whose client
// never received the welcome does not count, because a client whose connection breaks there
// connects again in another way.
type OneCopy struct {
	wanted wire.Hello // its mode, codec, flags, paths, GPU, sizes and MaxDelete count
	rules  [sha256.Size]byte
	loose  uint64 // flags that may differ, because they follow from the paths
	// named reports whether the sources of a push may have a name. Nil means any name.
	named func(name string) bool

	mu    sync.Mutex
	begun bool
	turn  *flow.Session // the last session admitted, until it has ended
	end   context.CancelCauseFunc
	over  chan struct{} // closed when turn is no longer the running session
	last  *SessionEnd   // for the session that made the copy
}

// CopyTerms encodes the copy that a client makes with these options, for the OneCopy of the peer: a
// push or a pull, of a stream or of files. The errors are those of Push and Pull.
//
// The terms are the SHA-256 of the filter rules, as they are sent, and then a hello.
func (o Options) CopyTerms(push, stream bool) ([]byte, error) {
	o.Tally = nil // it counts for the copy itself
	o.complete()
	if stream {
		o.IgnoreTimes, o.NoResume = true, true // a stream is copied whatever the destination has
		o.MaxDelete = 0                        // and nothing is deleted
	} else {
		o.hidePartials() // before the rules are read, as in a copy
		if err := o.checkSinkOptions(); err != nil {
			return nil, err
		}
	}
	m := wire.ModePull
	if push {
		m = wire.ModePush
	}
	h, err := o.hello(m)
	if err != nil {
		return nil, err
	}
	if stream && push {
		h.Terms.Flags = asStream(h.Terms.Flags)
	}
	sum := sumOfRules(o.Rules)
	return append(sum[:], h.Encode()...), nil
}

// sumOfRules is the digest of filter rules, in order, as they are sent.
func sumOfRules(rules []filter.Rule) [sha256.Size]byte {
	var b []byte
	for i := range rules {
		b = wire.AppendRule(b, &rules[i])
	}
	return sha256.Sum256(b)
}

// NewGrant makes the OneCopy for such terms. paths has the one path of a push, or the
// paths of a pull.
func NewGrant(terms []byte, paths []string) (*OneCopy, error) {
	if len(terms) < sha256.Size {
		return nil, fmt.Errorf("%w: terms of %d bytes", ErrProtocol, len(terms))
	}
	h, err := wire.DecodeHello(terms[sha256.Size:])
	switch {
	case err != nil:
		return nil, err
	case h.Terms.Mode != wire.ModePush && h.Terms.Mode != wire.ModePull, h.Terms.Mode == wire.ModePush && len(paths) != 1:
		return nil, fmt.Errorf("%w: a grant for a %s of %d paths", ErrProtocol, h.Terms.Mode, len(paths))
	}
	if h.Terms.Mode == wire.ModePull && h.Terms.Flags&wire.FlagListed != 0 {
		if top, err := listedSource(paths); err == nil { // otherwise the client reports the error
			paths = top
		}
	}
	// Hello.Check compares wire.FlagMany of a pull with the paths. differs does so with
	// wire.FlagMustBeDir of a push.
	g := &OneCopy{wanted: h, rules: [sha256.Size]byte(terms), loose: wire.FlagMany}
	if h.Terms.Mode == wire.ModePush {
		g.loose |= wire.FlagMustBeDir
	}
	g.wanted.Paths = paths
	return g, nil
}

// OnlyFrom restricts the names in a push to those of its sources, which another host reads. If a
// source gives its files no name of their own, like dir/., any name is accepted. A source may be a
// pattern: standsFor then reports whether the pattern's last part matches a name. OnlyFrom also
// fixes whether the push has several sources, unless one source may expand to several.
func (g *OneCopy) OnlyFrom(sources []string, mayBeSeveral bool, standsFor func(pattern, name string) bool) {
	if !mayBeSeveral {
		g.loose &^= wire.FlagMany
	}
	if len(sources) > 1 {
		g.wanted.Terms.Flags |= wire.FlagMany
	}
	g.named = func(name string) bool {
		return slices.ContainsFunc(sources, func(source string) bool {
			last := chunker.BaseName(source)
			return name == last || standsFor(last, name)
		})
	}
}

// differs returns how a hello differs from the granted copy, or "".
func (g *OneCopy) differs(h *wire.Hello) string {
	w := &g.wanted
	switch other := h.Terms.Flags ^ w.Terms.Flags; {
	case h.Terms.Mode != w.Terms.Mode:
		return fmt.Sprintf("a %s, and not a %s", w.Terms.Mode, h.Terms.Mode)
	case !slices.Equal(h.Paths, w.Paths):
		return g.otherPath(h.Paths)
	case h.Terms.Mode == wire.ModePush && (h.Terms.Flags&wire.FlagMustBeDir != 0) != (h.Terms.Flags&wire.FlagMany != 0 || strings.HasSuffix(w.Paths[0], "/")):
		return fmt.Sprintf("a copy to exactly %q", w.Paths[0])
	case other&h.Terms.Flags&wire.FlagDelete != 0:
		return "one that deletes nothing"
	case other&^g.loose != 0:
		return "one " + otherOptions(w.Terms.Flags, other&^g.loose)
	case h.Terms.MaxDelete != w.Terms.MaxDelete:
		return "one that may delete another number of entries"
	case h.Terms.PartialDir != w.Terms.PartialDir:
		return "one with partial files elsewhere"
	case h.Terms.Sizes != w.Terms.Sizes:
		return "one of files of other sizes"
	case h.Terms.IO != w.Terms.IO:
		return fmt.Sprintf("one with %s I/O, and not %s", w.Terms.IO, h.Terms.IO)
	case h.Terms.Transfers != w.Terms.Transfers:
		return "one with another number of files at once"
	case h.Terms.Codec != w.Terms.Codec:
		return fmt.Sprintf("one with compression %d, and not %d", w.Terms.Codec, h.Terms.Codec)
	case h.GPU != w.GPU || h.GPUName != w.GPUName:
		return "one with slots in other memory"
	case g.named != nil && !g.named(h.Terms.Name):
		return fmt.Sprintf("one of other sources, and not of %q", h.Terms.Name)
	}
	return ""
}

// otherOptions returns which of the flags that differ were granted and which were not.
func otherOptions(granted, other uint64) string {
	var words []string
	for _, o := range []struct {
		flag uint64
		name string
	}{
		{wire.FlagRecursive, "-r"}, {wire.FlagFollow, "-L"}, {wire.FlagLinks, "-l"}, {wire.FlagModes, "-p"}, {wire.FlagTimes, "-t"}, {wire.FlagOwner, "-o"}, {wire.FlagGroup, "-g"},
		{wire.FlagHardLinks, "-H"}, {wire.FlagXattrs, "-X"}, {wire.FlagACLs, "-A"}, {wire.FlagNumericIDs, "--numeric-ids"}, {wire.FlagDryRun, "--dry-run"}, {wire.FlagUpdate, "--update"},
		{wire.FlagSameStays, "the quick check"}, {wire.FlagSizeStays, "--size-only"}, {wire.FlagChecksum, "--checksum"}, {wire.FlagAppend, "--append-verify"}, {wire.FlagInPlace, "--inplace"},
		{wire.FlagIgnoreExisting, "--ignore-existing"}, {wire.FlagExisting, "--existing"}, {wire.FlagDelete, "--delete"}, {wire.FlagNoFsync, "--no-fsync"},
		{wire.FlagEncrypt, "--encrypt"}, {wire.FlagRules, "filter rules"}, {wire.FlagListed, "--files-from"}, {wire.FlagStream, "a stream"}, {wire.FlagGrowing, "--copy-growing"},
		{wire.FlagOneFileSystem, "--one-file-system"}, {wire.FlagSizes, "bounds of size"}, {wire.FlagResume, "resume"}, {wire.FlagRecheck, "--recheck"},
		{wire.FlagReadBack, "--verify-written"}, {wire.FlagItself, "a destination that is the copy itself"}, {wire.FlagWhole, "--atomic-dir"}, {wire.FlagForceReplace, "--force-replace"},
		{wire.FlagMany, "several sources"},
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

// otherPath returns the path that was not granted.
func (g *OneCopy) otherPath(paths []string) string {
	for _, p := range paths {
		if !slices.Contains(g.wanted.Paths, p) {
			return fmt.Sprintf("a %s, and not of or to %q", g.wanted.Terms.Mode, p)
		}
	}
	return fmt.Sprintf("a %s of other paths", g.wanted.Terms.Mode)
}

// admit takes a session with hello h, if it is the granted copy and that copy has not begun. end
// ends the session. admit ends a session that was admitted before, if its client has not received
// the welcome. A nil OneCopy admits every session.
func (g *OneCopy) admit(h *wire.Hello, s *flow.Session, end context.CancelCauseFunc) error {
	if g == nil {
		return nil
	}
	if what := g.differs(h); what != "" {
		return fmt.Errorf("%w: %s", errOtherCopy, what)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.begun || g.turn != nil && g.turn.Ctl.Answered() {
		return fmt.Errorf("%w: it has begun already", errOtherCopy)
	}
	if g.turn != nil {
		g.end(fault.ErrSuperseded)
		close(g.over)
	}
	g.turn, g.end, g.over = s, end, make(chan struct{})
	return nil
}

// left records how a session has ended.
func (g *OneCopy) left(s *flow.Session, how *SessionEnd) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.turn == s {
		if g.begun = s.Ctl.Answered(); g.begun {
			g.last = how
		}
		g.turn, g.end = nil, nil
		close(g.over)
	}
}

// Ended returns how the copy ended, or nil if none has begun. It waits while the copy
// runs.
func (g *OneCopy) Ended(ctx context.Context) (*SessionEnd, error) {
	for {
		g.mu.Lock()
		running, over, last := g.turn != nil, g.over, g.last
		g.mu.Unlock()
		if !running {
			return last, nil
		}
		select {
		case <-over:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// checkRules compares the rules of a session with those of the copy. Rules matter here because they
// also say what deletion must keep.
func (g *OneCopy) checkRules(rules []filter.Rule) error {
	if g != nil && sumOfRules(rules) != g.rules {
		return fmt.Errorf("%w: one with other filter rules", errOtherCopy)
	}
	return nil
}

// takes returns the filter for a sink whose source may not choose the names of entries.
// It is nil for any other sink.
func (g *OneCopy) takes(h *wire.Hello) *pullFilter {
	if g == nil || g.named == nil {
		return nil
	}
	a := &pullFilter{flags: h.Terms.Flags}
	if h.Terms.Flags&wire.FlagMany != 0 {
		a.named = g.named
	} else {
		a.name = h.Terms.Name
	}
	return a
}
