package xfer

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// listedSource is the source of a copy by a list: the contents of one directory.
func listedSource(paths []string) ([]string, error) {
	if len(paths) != 1 {
		return nil, fmt.Errorf("%w: a list of files takes one SRC, the directory that holds them", ErrUsage)
	}
	if chunker.BaseName(paths[0]) == "." {
		return paths, nil
	}
	return []string{paths[0] + "/."}, nil
}

// placeListed places the entries of a list. The top directory is an entry only if the list names
// it. Otherwise placeListed makes the top anyway, unless the options forbid that.
func (k *sink) placeListed(first *wire.AnnouncedEntry) error {
	err := k.store.Place(&manifest.Entry{Type: manifest.Dir, Path: "."}, ".")
	if err != nil || first.Path == "." || k.Session.Terms.Has(wire.FlagDryRun|wire.FlagExisting) {
		return err
	}
	return k.store.MakeTop()
}

// listedCheck checks the entries of a pull against the list. Both are in the same order. It keeps
// the names of the list that the entry's path continues.
type listedCheck struct {
	names     chunker.Names
	recursive bool
	begun     bool
	ended     bool
	head      fileset.Listed
	on        []fileset.Listed // each is a prefix of the next
	top       fileset.Listed   // ".", if the list names it
}

func (l *listedCheck) next() (err error) {
	if l.head, err = l.names.Next(); errors.Is(err, io.EOF) {
		l.ended = true
		return nil
	}
	return err
}

// find reports whether the list has an entry: by its name, in a directory that it names, or on the
// way to a name. implied says that the entry is only on the way to a name.
func (l *listedCheck) find(e *manifest.Entry) (implied, ok bool, err error) {
	if !l.begun {
		l.begun = true
		if err := l.next(); err != nil {
			return false, false, err
		}
	}
	for !l.ended && manifest.ComparePaths(l.head.Path, e.Path) <= 0 {
		if l.head.Path == "." {
			l.top = l.head
		} else {
			l.leave(l.head.Path)
			l.on = append(l.on, l.head)
		}
		if err := l.next(); err != nil {
			return false, false, err
		}
	}
	l.leave(e.Path)
	for _, item := range append([]fileset.Listed{l.top}, l.on...) {
		switch {
		case item.Path == e.Path:
			return item.Implied, ok || item.Named || e.Type == manifest.Dir, nil
		case item.Path != "" && manifest.IsBelow(e.Path, item.Path):
			ok = ok || l.recursive && item.Named || item.Contents && parentOf(e.Path) == item.Path
		}
	}
	return false, ok, nil
}

// leave drops the names that a path does not continue.
func (l *listedCheck) leave(path string) {
	for n := len(l.on); n > 0 && !strings.HasPrefix(path, l.on[n-1].Path); n-- {
		l.on = l.on[:n-1]
	}
}

func parentOf(path string) string {
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		return path[:i]
	}
	return "."
}
