package xfer

import (
	"fmt"
	"strings"

	"gdrcp/chunker"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// pullFilter records what a pull asked for, or what the OneCopy of a push allows. The source says
// which entries exist. Only this end can know which of them may be written at the destination: a
// user who pulls one file into a home directory does not want a .bashrc as well.
type pullFilter struct {
	flags uint64
	// name is the name of a single source at the destination. It is "." if the source's contents go
	// into the destination itself.
	name string
	// named reports whether a name is one of several sources'. It is nil for a single source.
	named func(name string) bool
	// begun says that the first entry was seen. alone says that it is a single file or link.
	begun, alone bool
	// filter knows what must be left out. It is nil if this end cannot know.
	filter *entryFilter
	// listed knows the names of a list. It is nil without one.
	listed *listedCheck
}

func newPullFilter(h *wire.Hello) *pullFilter {
	a := &pullFilter{flags: h.Terms.Flags}
	if h.Terms.Flags&wire.FlagMany == 0 {
		a.name = sourceName(h.Paths[0])
		return a
	}
	names := make(map[string]bool, len(h.Paths))
	for _, p := range h.Paths {
		names[chunker.BaseName(p)] = true
	}
	a.named = func(name string) bool { return names[name] }
	return a
}

// sourceName is the name of a single source of a pull at the destination.
func sourceName(path string) string { return chunker.BaseName("/" + path) }

// check refuses an entry that no server announces if it serves what was asked for. The
// destination's Place checks that a tree has "." at its top. A nil pullFilter accepts everything.
func (a *pullFilter) check(e *manifest.Entry) error {
	if a == nil {
		return nil
	}
	if a.listed != nil {
		return a.checkListed(e)
	}
	more := a.alone
	if !a.begun {
		a.begun, a.alone = true, a.named == nil && e.Type != manifest.Dir
	}
	top, _, below := strings.Cut(e.Path, "/")
	switch {
	case a.flags&wire.FlagRecursive == 0 && (e.Type == manifest.Dir || below):
		return fmt.Errorf("%w: the peer sent %q, which needs -r, and -r was not asked for", ErrProtocol, e.Path)
	case e.Type == manifest.Symlink && (a.flags&wire.FlagFollow != 0 || a.flags&wire.FlagLinks == 0):
		return fmt.Errorf("%w: the peer sent %q as a link, but links are followed or left out", ErrProtocol, e.Path)
	case more, a.named != nil && !a.named(top), a.alone && a.name != "." && e.Path != a.name:
		return fmt.Errorf("%w: the peer sent %q, which was not asked for", ErrProtocol, e.Path)
	case a.filter != nil && a.filter.hides(e.Path, e.Type == manifest.Dir):
		return fmt.Errorf("%w: the peer sent %q, which the filters leave out", ErrProtocol, e.Path)
	}
	return nil
}

// checkListed is check for a copy by a list.
func (a *pullFilter) checkListed(e *manifest.Entry) error {
	implied, ok, err := a.listed.find(e)
	switch {
	case err != nil:
		return err
	case !ok:
		return fmt.Errorf("%w: %q announced, which is not in the list", ErrProtocol, e.Path)
	case a.flags&wire.FlagFollow != 0 && e.Type == manifest.Symlink:
		return fmt.Errorf("%w: %q announced as a link, and links were to be followed", ErrProtocol, e.Path)
	case !implied && a.filter != nil && a.filter.hides(e.Path, e.Type == manifest.Dir):
		return fmt.Errorf("%w: the peer sent %q, which the filters leave out", ErrProtocol, e.Path)
	}
	return nil
}
