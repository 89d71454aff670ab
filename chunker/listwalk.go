package chunker

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
)

// Names gives the names of a list in the order of a walk, each once, and before a name
// every directory on the way to it. At the end of the list it returns io.EOF.
type Names interface {
	Next() (fileset.Listed, error)
}

// takeMode says which contents of a directory belong to a walk.
type takeMode uint8

const (
	takeAll      takeMode = iota // all that is in it, at any depth
	takeContents                 // what is in it, and what the list has below it
	takeListed                   // what the list has below it
	takeNothing
)

// lookAhead is how many names a walk reads ahead to see whether a directory on the way
// leads to anything. If the walk does not know by then, it assumes that the directory
// does.
const lookAhead = 4096

// listing is where a walk is in its list.
type listing struct {
	names Names
	err   error            // of names, when it gave one
	queue []fileset.Listed // read ahead
	head  fileset.Listed   // the next name
	path  []byte           // of it
	ended bool
	// survivor is a name that exists and is not left out.
	survivor string
	// item is what the list says of the entry that is being looked at. inDir: the entry
	// was found in its directory.
	item  fileset.Listed
	inDir bool
}

// Only makes the walk find only the entries in names. The tree's one source must be a
// directory, which itself is found only if it is named. Names that do not exist are
// Problems. Call Only before Next.
func (w *Walker) Only(names Names) error {
	w.list = &listing{names: names}
	return w.list.next()
}

func (t *listing) next() error {
	item, ok := t.ahead(0)
	if !ok {
		t.ended = true
		if errors.Is(t.err, io.EOF) {
			return nil
		}
		return t.err
	}
	t.queue = slices.Delete(t.queue, 0, 1)
	t.head, t.path = item, append(t.path[:0], item.Path...)
	return nil
}

// ahead returns the n-th name behind the head, or false if there is none.
func (t *listing) ahead(n int) (fileset.Listed, bool) {
	for len(t.queue) <= n && t.err == nil {
		var item fileset.Listed
		if item, t.err = t.names.Next(); t.err == nil {
			t.queue = append(t.queue, item)
		}
	}
	if len(t.queue) <= n {
		return fileset.Listed{}, false
	}
	return t.queue[n], true
}

// below returns the next name's path below a directory, or nil if the name is
// elsewhere.
func (t *listing) below(dir string) []byte {
	switch {
	case t.ended:
		return nil
	case dir == "" || dir == ".":
		if (string(t.path) == ".") != (dir == "") {
			return nil
		}
		return t.path
	case len(t.path) <= len(dir)+1 || string(t.path[:len(dir)]) != dir || t.path[len(dir)] != '/':
		return nil
	}
	return t.path[len(dir)+1:]
}

// peek returns the next name in the level's directory, from the directory or from the
// list.
func (w *Walker) peek(l *level) ([]byte, bool) {
	name, more := w.names.Peek(&l.names)
	if w.list == nil {
		return name, more
	}
	child := w.list.below(l.path)
	if child == nil || bytes.IndexByte(child, '/') >= 0 || more && bytes.Compare(name, child) < 0 {
		return name, more
	}
	return child, true
}

// advance goes past the name that peek returned.
func (w *Walker) advance(l *level) error {
	t := w.list
	if t == nil {
		return w.names.Advance(&l.names)
	}
	chosen, _ := w.peek(l)
	name, more := w.names.Peek(&l.names)
	t.inDir = more && bytes.Equal(name, chosen)
	t.item = fileset.Listed{}
	listed := bytes.Equal(t.below(l.path), chosen) && !t.ended
	if listed {
		t.item = t.head
	}
	if t.inDir {
		if err := w.names.Advance(&l.names); err != nil {
			return err
		}
	}
	if !listed {
		return nil
	}
	return t.next()
}

// orphan passes over names below the level whose directory on the way is missing. It
// returns the first of them that the list has, with the error.
func (w *Walker) orphan(l *level) (*Found, error) {
	t := w.list
	for t != nil && l.path != "" {
		rest := t.below(l.path)
		first, _, deeper := bytes.Cut(rest, []byte{'/'})
		if !deeper || l.isPending(first) {
			return nil, nil
		}
		item := t.head
		if err := t.next(); err != nil {
			return nil, err
		}
		if !item.Named {
			continue
		}
		a, err := w.tree.lookUp(item.Path)
		switch {
		case err != nil:
		case w.leavesOut != nil && w.leavesOut(item.Path, a.isDir()):
			continue
		default:
			err = unix.ENOTDIR // the directory on the way was made only now
		}
		return w.problem(item.Path, fileset.OpErr("stat", item.Path, err)), nil
	}
	return nil, nil
}

func (l *level) isPending(name []byte) bool {
	for i := range l.pending {
		if l.pending[i].name == string(name) {
			return true
		}
	}
	return false
}

// takes returns which contents of the directory that is being looked at belong to the
// walk.
func (w *Walker) takes(l *level) takeMode {
	t := w.list
	switch {
	case t == nil:
		return takeAll
	case w.recursive && (t.item.Named || l.path != "" && t.inDir && l.take == takeAll):
		return takeAll
	case t.item.Contents:
		return takeContents
	case t.item.Named, t.item.Implied, l.path == "":
		return takeListed
	}
	return takeNothing
}

// passesOverListed reports whether the walk passes over an entry, because it is left
// out, or because it is on the way to nothing. An entry that is left out and lies on
// the way to a name of the list counts as only on the way, as in rsync. A name that
// does not exist is reported even if it is left out.
func (w *Walker) passesOverListed(path string, isLeftOut, maybeDir, maybeOther bool) bool {
	t := w.list
	isGone := maybeDir && maybeOther
	if isLeftOut && !(isGone && t.item.Named) {
		t.item.Named, t.item.Contents, t.inDir = false, false, false
	}
	if t.item.Named || t.inDir {
		return false
	}
	return !t.item.Implied || maybeOther || !w.leadsOn(path)
}

// leadsOn reports whether a directory is on the way to a name that exists and is not
// left out. It looks at the list's next names before their turn.
func (w *Walker) leadsOn(dir string) bool {
	t := w.list
	for n := -1; n < lookAhead && w.ended() == nil; n++ {
		item, ok := t.head, !t.ended
		if n >= 0 {
			item, ok = t.ahead(n)
		}
		contents := dir + "/"
		switch {
		case !ok, item.Path > contents && !strings.HasPrefix(item.Path, contents):
			return false
		case item.Path > contents && item.Named && (item.Path == t.survivor || w.survives(item.Path)):
			t.survivor = item.Path
			return true
		}
	}
	return true
}

func (w *Walker) survives(path string) bool {
	a, err := w.tree.lookUp(path)
	return err == nil && (w.leavesOut == nil || !w.leavesOut(path, a.isDir()))
}

// isUnlistedTop reports whether an entry is a top that the walk needs only for entries
// below it.
func (w *Walker) isUnlistedTop(f *Found) bool {
	return w.list != nil && f.Problem == nil && f.Entry.Path == "." && w.list.item == fileset.Listed{}
}
