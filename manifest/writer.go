package manifest

import (
	"bufio"
	"fmt"
	"io"
)

// Writer writes a manifest entry by entry, in the order that Roots requires. It buffers at
// most one buffer. The text is not a complete manifest before Close. After an error of the
// underlying stream every further call returns an error. A call that refuses its arguments
// changes nothing. A Writer is not safe for concurrent use.
type Writer struct {
	out    *bufio.Writer
	itself itself
	header Header
	// identities is true if files may have identities. identity is that of the
	// next file, or nil.
	identities bool
	identity   *Identity
	begun      bool // the first line has been written
	roots      *Roots
	tree       *Tree
	line       []byte // one line, reused

	open    bool  // between BeginFile and its end
	entry   Entry // the open file
	run     Digest
	runs    uint64 // pieces of run that are not written yet
	closed  bool
	summary Summary
}

// NewWriter starts a manifest on w with its header line. The caller closes w after
// Close.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if err := h.Check(); err != nil {
		return nil, fmt.Errorf("begin manifest: %w", err)
	}
	m := &Writer{
		out:    bufio.NewWriterSize(w, maxLineBytes),
		itself: newItself(w),
		header: h,
		roots:  NewRoots(h.Algorithm, h.PieceBytes),
		tree:   NewTree(h.Algorithm),
	}
	return m, nil
}

// flushLine writes w.line and empties it.
func (w *Writer) flushLine() error {
	if !w.begun {
		w.begun = true
		w.line = append(appendHeader(nil, w.header, w.version()), w.line...)
	}
	_, err := w.out.Write(w.line)
	w.line = w.line[:0]
	if err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return nil
}

// misuse is the error of an invalid call.
func misuse(what string) error { return fmt.Errorf("write manifest: %w: %s", ErrEntry, what) }

// WriteEntry writes a directory, a link, or a file of at most one piece whose
// Root is set.
func (w *Writer) WriteEntry(e *Entry) error {
	if w.open || w.closed {
		return misuse("an entry inside a file or after the end")
	}
	if e.Type == File {
		if PieceCount(e.Size, w.header.PieceBytes) > 1 {
			return misuse("a file of several pieces without its pieces")
		}
		if err := checkEmpty(w.header.Algorithm, e); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	if err := w.roots.place(e); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	return w.writeCovered(e)
}

// checkEmpty refuses an empty file whose root is not the digest of no bytes.
func checkEmpty(a Algorithm, e *Entry) error {
	if e.Size == 0 && e.Root != a.Piece(nil, 0, MinPieceBytes, true) {
		return fmt.Errorf("%w: %q is empty, but its digest is not that of an empty file", ErrRoot, e.Path)
	}
	return nil
}

// writeCovered writes the single line of a placed entry and adds the entry to the roots.
func (w *Writer) writeCovered(e *Entry) error {
	var hex [2 * len(Digest{})]byte
	w.appendIdentity(e)
	w.line = appendEntry(w.line, e, w.header.Algorithm.AppendHex(hex[:0], e.Root))
	w.roots.cover(e)
	return w.flushLine()
}

// BeginFile starts a file of any number of pieces, whose Root is not known yet:
// call PieceRun for all its pieces in order, then EndFile, or VoidFile at any
// time. e is copied.
func (w *Writer) BeginFile(e *Entry) error {
	if w.open || w.closed {
		return misuse("a file inside a file or after the end")
	}
	if e.Type != File {
		return misuse("pieces of what is no file")
	}
	if err := w.roots.place(e); err != nil {
		return fmt.Errorf("write manifest: %w", err)
	}
	w.open, w.entry, w.runs = true, *e, 0
	w.tree.Reset()
	if w.single() {
		return nil // its line needs its digest, which is not known yet
	}
	w.appendIdentity(e)
	w.line = appendEntry(w.line, e, []byte("*"))
	return w.flushLine()
}

// single reports whether the open file fits one line.
func (w *Writer) single() bool { return PieceCount(w.entry.Size, w.header.PieceBytes) <= 1 }

// PieceRun adds the digest of the open file's next n pieces, which are all equal. It
// takes about as long as adding a few pieces.
func (w *Writer) PieceRun(d Digest, n uint64) error {
	if !w.open {
		return misuse("a piece outside a file")
	}
	if left := PieceCount(w.entry.Size, w.header.PieceBytes) - w.tree.Pieces(); n > left {
		return misuse(fmt.Sprintf("%d pieces of %q, where %d are left", n, w.entry.Path, left))
	}
	if n == 0 {
		return nil
	}
	w.tree.PushRun(d, n)
	if w.runs > 0 && d == w.run {
		w.runs += n
		return nil
	}
	err := w.flushRun()
	w.run, w.runs = d, n
	return err
}

// flushRun writes the line of the run that has ended.
func (w *Writer) flushRun() error {
	if w.runs == 0 || w.single() {
		return nil
	}
	w.line = w.header.Algorithm.AppendHex(append(w.line, ' '), w.run)
	if w.runs > 1 {
		w.line = fmt.Appendf(w.line, " x%d", w.runs)
	}
	w.line = append(w.line, '\n')
	w.runs = 0
	return w.flushLine()
}

// EndFile ends the open file after all of its pieces. ErrRoot: root does not follow
// from the pieces.
func (w *Writer) EndFile(root Digest) error {
	if !w.open {
		return misuse("the end of no file")
	}
	if n, want := w.tree.Pieces(), PieceCount(w.entry.Size, w.header.PieceBytes); n != want {
		return misuse(fmt.Sprintf("%q ended after %d pieces of %d", w.entry.Path, n, want))
	}
	if root != w.tree.Root() {
		return fmt.Errorf("write manifest: %w: root of %q is not that of its pieces", ErrRoot, w.entry.Path)
	}
	w.open, w.entry.Root = false, root
	if w.single() {
		return w.writeCovered(&w.entry)
	}
	if err := w.flushRun(); err != nil {
		return err
	}
	w.roots.cover(&w.entry)
	w.line = w.header.Algorithm.AppendHex(append(w.line, "= "...), root)
	w.line = append(w.line, '\n')
	return w.flushLine()
}

// VoidFile voids the open file, which could not be read to its end: readers
// will drop it, and the roots and counts exclude it.
func (w *Writer) VoidFile() error {
	if !w.open {
		return misuse("the end of no file")
	}
	w.open = false
	if w.single() {
		w.identity = nil
		return nil
	}
	if err := w.flushRun(); err != nil {
		return err
	}
	w.line = append(w.line, "= -\n"...)
	return w.flushLine()
}

// Close writes the last line and returns its content. It flushes to the
// underlying stream, but does not close it. A second Close does nothing.
func (w *Writer) Close() (Summary, error) {
	if w.closed {
		return w.summary, nil
	}
	if w.open {
		return Summary{}, misuse("the end inside a file")
	}
	w.summary = w.roots.Summary()
	w.line = appendSummary(w.line, w.summary)
	if err := w.flushLine(); err != nil {
		return Summary{}, err
	}
	if err := w.out.Flush(); err != nil {
		return Summary{}, fmt.Errorf("write manifest: %w", err)
	}
	w.closed = true
	return w.summary, nil
}
