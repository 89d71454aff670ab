package chunker

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"golang.org/x/sys/unix"
)

// Listed is a name of a list of what is to be copied.
type Listed struct {
	Path string
	// Named: the list has it. A directory is then walked if the walk is recursive.
	Named bool
	// Contents: of a directory, what is directly in it belongs to it.
	Contents bool
	// Implied: it is a directory on the way to a name of the list.
	Implied bool
}

// Names gives the names of a list in the order of a walk, each once, and every
// directory on the way to one before it. At its end it gives io.EOF.
type Names interface{ Next() (Listed, error) }

// takeMode is what of a directory belongs to a walk.
type takeMode uint8

const (
	takeAll      takeMode = iota // all that is in it, and so on
	takeContents                 // what is in it, and what the list has below it
	takeListed                   // what the list has below it
	takeNothing
)

// listing is where a walk is in its list.
type listing struct {
	names Names
	head  Listed // the next name
	path  []byte // of it
	ended bool
	// item is what the list has of the entry that is looked at, and inDir that it
	// was found in its directory.
	item  Listed
	inDir bool
}

// Only makes the walk find what names has, the tree's one source being a
// directory, which itself is found only where it is named. Names that are not
// there are Problems. Call it before Next.
func (w *Walker) Only(names Names) error {
	w.list = &listing{names: names}
	return w.list.next()
}

func (t *listing) next() (err error) {
	t.head, err = t.names.Next()
	if errors.Is(err, io.EOF) {
		t.ended = true
		return nil
	}
	t.path = append(t.path[:0], t.head.Path...)
	return err
}

// below is the next name's path below a directory; nil if it is elsewhere.
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

// peek returns the next name in the level's directory, by the directory or by
// the list.
func (w *Walker) peek(l *level) ([]byte, bool) {
	name, more := w.names.peek(&l.names)
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
		return w.names.advance(&l.names)
	}
	chosen, _ := w.peek(l)
	name, more := w.names.peek(&l.names)
	t.inDir = more && bytes.Equal(name, chosen)
	t.item = Listed{}
	listed := bytes.Equal(t.below(l.path), chosen) && !t.ended
	if listed {
		t.item = t.head
	}
	if t.inDir {
		if err := w.names.advance(&l.names); err != nil {
			return err
		}
	}
	if !listed {
		return nil
	}
	return t.next()
}

// orphan passes over names below the level whose directory on the way is not
// there, and returns the first that the list has, with what is wrong.
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
		_, err := w.tree.lookUp(item.Path)
		if err == nil {
			err = unix.ENOTDIR // what was on the way is there only now
		}
		return w.problem(item.Path, opErr("stat", item.Path, err)), nil
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

// takes is what of a directory, whose entry is looked at in a level, belongs to
// the walk.
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

// passesOver tells of an entry that is not to be found, because it is left out,
// or because it is on the way to nothing. What is left out and on the way to a
// name of the list is only on the way, as rsync has it.
func (t *listing) passesOver(isLeftOut, maybeOther bool) bool {
	if isLeftOut {
		t.item.Named, t.item.Contents, t.inDir = false, false, false
	}
	if t.item.Named || t.inDir {
		return false
	}
	return !t.item.Implied || maybeOther
}

// isUnlistedTop tells of a top that is there only for what is below it.
func (w *Walker) isUnlistedTop(f *Found) bool {
	return w.list != nil && f.Problem == nil && f.Entry.Path == "." && w.list.item == Listed{}
}

// CleanListed reads a name as rsync reads those of --files-from: relative to the
// source, whatever it begins with, "." and empty components cut, ".." never
// above the source. A slash at the end, or "." or "..", names a directory's
// contents too.
func CleanListed(name string) Listed {
	var parts []string
	item := Listed{Named: true}
	for part := range strings.SplitSeq(name, "/") {
		item.Contents = part == "" || part == "." || part == ".."
		switch {
		case part == ".." && len(parts) > 0:
			parts = parts[:len(parts)-1]
		case !item.Contents:
			parts = append(parts, part)
		}
	}
	if item.Path = strings.Join(parts, "/"); item.Path == "" {
		item.Path, item.Contents = ".", true
	}
	return item
}
