package chunker

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/sorted"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Flags of a name in a List.
const (
	listNamed = 1 << iota
	listContents
	listImplied
)

// ListBuilder sorts any number of names. More than 4 MiB of names go to unlinked
// temporary files.
type ListBuilder struct {
	stack *sorted.Stack
	names sorted.Names
	last  string // the path that was added last
	key   []byte
}

// NewListBuilder returns a builder without names. Finish or Close it.
func NewListBuilder() *ListBuilder {
	b := &ListBuilder{stack: sorted.NewStack()}
	b.names = b.stack.Begin()
	return b
}

// Close frees what the builder holds. What Finish returned stays.
func (b *ListBuilder) Close() error { return b.stack.Spill.Close() }

// Add adds a name, read as by CleanListed, and the directories on the way to
// it. Errors wrap manifest.ErrPath where no entry can have such a name.
func (b *ListBuilder) Add(name string) error {
	item := fileset.CleanListed(name)
	if err := manifest.CheckPath(item.Path); err != nil {
		return fmt.Errorf("%q: %w", name, err)
	}
	// The directories that both paths share were added with the last path.
	shared := 0
	for i := 0; i < len(item.Path); i++ {
		if item.Path[i] == '/' && i > shared && strings.HasPrefix(b.last, item.Path[:i+1]) {
			shared = i
		}
	}
	for i := shared + 1; i < len(item.Path); i++ {
		if item.Path[i] == '/' {
			if err := b.add(item.Path[:i], listImplied); err != nil {
				return err
			}
		}
	}
	b.last = item.Path
	flags := byte(listNamed)
	if item.Contents {
		flags |= listContents
	}
	return b.add(item.Path, flags)
}

// add adds a record: the path ("" for the top, which comes first), then a NUL, which is
// less than any byte that can continue a path, then the flags.
func (b *ListBuilder) add(path string, flags byte) error {
	if path == "." {
		path = ""
	}
	b.key = append(append(b.key[:0], path...), 0, flags)
	return b.stack.Add(&b.names, b.key)
}

// Finish sorts the names. After that the builder can only be closed.
func (b *ListBuilder) Finish() (*List, error) {
	if err := b.stack.Finish(&b.names); err != nil {
		return nil, err
	}
	w := listWriter{list: &List{}}
	err := w.fill(b)
	if err == nil {
		err = w.flush()
	}
	if err != nil {
		return nil, errors.Join(err, w.list.Close())
	}
	return w.list, nil
}

// listWriter writes sorted names, each once.
type listWriter struct {
	list  *List
	path  []byte
	flags byte
	begun bool
	buf   []byte
}

func (w *listWriter) fill(b *ListBuilder) error {
	for {
		key, more := b.stack.Peek(&b.names)
		if !more {
			return w.emit()
		}
		path, flags := key[:len(key)-2], key[len(key)-1]
		if !w.begun || !bytes.Equal(path, w.path) {
			if err := w.emit(); err != nil {
				return err
			}
			w.path, w.flags, w.begun = append(w.path[:0], path...), 0, true
		}
		w.flags |= flags
		if err := b.stack.Advance(&b.names); err != nil {
			return err
		}
	}
}

// emit writes the last name that was read.
func (w *listWriter) emit() error {
	if !w.begun {
		return nil
	}
	w.list.count++
	w.buf = append(w.buf, w.flags)
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(len(w.path)))
	w.buf = append(w.buf, w.path...)
	if len(w.buf) < sorted.BudgetBytes {
		return nil
	}
	return w.spill()
}

// spill moves what is in memory to the file.
func (w *listWriter) spill() (err error) {
	l := w.list
	if l.file == nil {
		if l.file, err = fsys.OpenUnlinked(os.TempDir()); err != nil {
			return fmt.Errorf("make temporary file for a list of names: %w", err)
		}
	}
	n, err := l.file.WriteAt(w.buf, l.size)
	l.size += int64(n)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("spill a list of names: %w", err)
	}
	return nil
}

func (w *listWriter) flush() error {
	if w.list.file != nil {
		return w.spill()
	}
	w.list.memory, w.list.size = bytes.NewReader(w.buf), int64(len(w.buf))
	return nil
}

// List is a sorted list of names, in memory or in an unlinked temporary file.
type List struct {
	memory *bytes.Reader // or
	file   *os.File
	size   int64
	count  int64
}

// Len is how many names there are, with the directories on the way to them.
func (l *List) Len() int64 { return l.count }

// Close frees the list, which may be nil.
func (l *List) Close() error {
	if l == nil || l.file == nil {
		return nil
	}
	return l.file.Close()
}

// Names returns a reader of the list, from its beginning. There may be several.
func (l *List) Names() Names {
	var at io.ReaderAt = l.memory
	if l.file != nil {
		at = l.file
	}
	return &listReader{bufio.NewReaderSize(io.NewSectionReader(at, 0, l.size), 64<<10)}
}

type listReader struct{ in *bufio.Reader }

// Next implements Names.
func (r *listReader) Next() (fileset.Listed, error) {
	var head [3]byte
	if _, err := io.ReadFull(r.in, head[:]); err != nil {
		return fileset.Listed{}, err
	}
	path := make([]byte, binary.NativeEndian.Uint16(head[1:]))
	if _, err := io.ReadFull(r.in, path); err != nil {
		return fileset.Listed{}, fmt.Errorf("read a list of names: %w", err)
	}
	flags := head[0]
	item := fileset.Listed{Path: string(path), Named: flags&listNamed != 0, Contents: flags&listContents != 0, Implied: flags&listImplied != 0}
	if item.Path == "" {
		item.Path = "."
	}
	return item, nil
}

// CheckListDir checks that the source of a copy by a List is a directory. stat is
// os.Stat, or os.Root's if the path is below a root.
func CheckListDir(stat func(string) (os.FileInfo, error), path string) error {
	st, err := stat(path)
	named := cmp.Or(strings.TrimSuffix(path, "/."), "/") // the contents of what was named
	var pe *os.PathError
	switch {
	case errors.Is(err, unix.ENOTDIR), err == nil && !st.IsDir():
		return fmt.Errorf("%q is not a directory: a list of files needs one", named)
	case errors.As(err, &pe):
		return fmt.Errorf("%q: %w", named, pe.Err)
	}
	return err
}
