package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Reader reads a manifest and checks all of it: see Next. Its memory is bounded for any
// input, compressed or not: one line, one decompression window, and the tree of one file.
// After an error every further call returns it. Errors of the underlying stream are
// wrapped; all others wrap ErrFormat, ErrTruncated, ErrVersion, ErrOrder, ErrRoot, ErrPath
// or ErrEntry and name the line. It is not safe for concurrent use. Entries count as
// verified only once Next returns io.EOF: until then the last line is unread.
type Reader struct {
	source *source
	in     *bufio.Reader
	name   string // for errors, with ": "; empty if unknown
	header Header
	roots  *Roots
	tree   *Tree
	line   int64  // number of the current line, from 1
	plain  []byte // one unescaped name, reused
	again  []byte // that name, escaped again; reused

	entry *Entry // the last entry that Next returned
	// identities is true if the manifest may have identities. identity is that
	// of entry, or nil.
	identities bool
	identity   *Identity
	// pieceEnd is why NextPiece has no more pieces: io.EOF or ErrVoid; nil while it has
	// more.
	pieceEnd error
	previous Digest // digest of the previous run, if any
	runs     bool   // there was a previous run
	summary  Summary
	err      error
}

// NewReader reads the first line. If r begins with zstd's magic number, it is
// decompressed. Close frees the Reader's memory; the caller closes r.
func NewReader(r io.Reader) (*Reader, error) {
	src, err := newSource(r)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	return startReader(src, "")
}

// startReader reads the first line of src. On an error it closes src.
func startReader(src *source, name string) (*Reader, error) {
	m := &Reader{source: src, in: bufio.NewReaderSize(src.text, maxLineBytes), name: name, pieceEnd: io.EOF}
	line, err := m.readLine()
	if err == nil {
		m.header, m.identities, err = parseHeader(line)
	}
	if err != nil {
		src.close()
		return nil, m.fail(err)
	}
	m.roots = NewRoots(m.header.Algorithm, m.header.PieceBytes)
	m.tree = NewTree(m.header.Algorithm)
	return m, nil
}

// Close ends reading. If Open opened the file, it closes the file.
func (r *Reader) Close() error {
	if r.err == nil {
		r.err = errors.New("read manifest: closed")
	}
	return r.source.close()
}

// Header returns the first line.
func (r *Reader) Header() Header { return r.header }

// Summary returns the last line once Next has returned io.EOF; before that, the
// zero Summary.
func (r *Reader) Summary() Summary { return r.summary }

// Next returns the next entry, which belongs to the caller. A file of at most
// one piece has its Root. A file of several pieces gets its Root once
// NextPiece, SkipPieces or the following Next has reached the end of the file,
// and only then is it known whether the file is void. Next returns io.EOF if
// the last line agrees with all lines before it, and nothing follows it.
func (r *Reader) Next() (*Entry, error) {
	if err := r.SkipPieces(); err != nil && !errors.Is(err, ErrVoid) {
		return nil, err
	}
	line, err := r.readLine()
	if err != nil {
		return nil, r.fail(err)
	}
	if line, err = r.takeIdentity(line); err != nil {
		return nil, r.fail(err)
	}
	if rest, ok := bytes.CutPrefix(line, []byte("root ")); ok && r.identity == nil {
		if err := r.end(rest); err != nil {
			return nil, r.fail(err)
		}
		r.err = io.EOF
		return nil, io.EOF
	}
	e, several, err := r.parseEntry(line)
	if err == nil && r.identity != nil && e.Type != File {
		err = fmt.Errorf("%w: an identity of %q, which is no file", ErrFormat, e.Path)
	}
	if err == nil {
		err = r.roots.place(e)
	}
	if err != nil {
		return nil, r.fail(err)
	}
	r.entry, r.runs = e, false
	r.tree.Reset()
	if several {
		r.pieceEnd = nil
		return e, nil
	}
	r.roots.cover(e)
	r.pieceEnd = io.EOF
	if e.Type == File && e.Size > 0 {
		r.pieceEnd = nil
	}
	return e, nil
}

// NextPiece returns the next digest of the last entry's pieces, and how many pieces in a
// row have it (at least 1). After the last piece it returns io.EOF, with the entry's Root
// set and checked, or ErrVoid if the entry must be dropped. Only files have pieces.
func (r *Reader) NextPiece() (d Digest, count uint64, err error) {
	if r.err != nil {
		return Digest{}, 0, r.err
	}
	if r.pieceEnd != nil {
		return Digest{}, 0, r.pieceEnd
	}
	total := PieceCount(r.entry.Size, r.header.PieceBytes)
	if total == 1 {
		r.pieceEnd = io.EOF
		return r.entry.Root, 1, nil
	}
	line, err := r.readLine()
	if err != nil {
		return Digest{}, 0, r.fail(err)
	}
	if rest, ok := bytes.CutPrefix(line, []byte("= ")); ok {
		if err := r.endFile(rest, total); err != nil {
			return Digest{}, 0, r.fail(err)
		}
		return Digest{}, 0, r.pieceEnd
	}
	d, count, err = r.parseRun(line)
	if err != nil {
		return Digest{}, 0, r.fail(err)
	}
	if left := total - r.tree.Pieces(); count > left {
		return Digest{}, 0, r.fail(fmt.Errorf("%w: %d pieces of %q, where %d are left", ErrFormat, count, r.entry.Path, left))
	}
	r.tree.PushRun(d, count)
	r.previous, r.runs = d, true
	return d, count, nil
}

// endFile handles the end line of a file that has total pieces.
func (r *Reader) endFile(root []byte, total uint64) error {
	if string(root) == "-" {
		r.pieceEnd = ErrVoid
		return nil
	}
	d, err := r.header.Algorithm.ParseHex(root)
	if err != nil {
		return err
	}
	if n := r.tree.Pieces(); n != total {
		return fmt.Errorf("%w: %q ends after %d pieces of %d", ErrFormat, r.entry.Path, n, total)
	}
	if d != r.tree.Root() {
		return fmt.Errorf("%w: root of %q is not that of its pieces", ErrRoot, r.entry.Path)
	}
	r.entry.Root = d
	r.roots.cover(r.entry)
	r.pieceEnd = io.EOF
	return nil
}

// SkipPieces checks the rest of the last entry's pieces. It returns nil with
// the entry's Root set, or ErrVoid if the entry must be dropped.
func (r *Reader) SkipPieces() error {
	for {
		_, _, err := r.NextPiece()
		switch {
		case err == nil:
		case errors.Is(err, io.EOF) && r.err == nil:
			return nil
		default:
			return err
		}
	}
}

// end handles the last line, without its first word, and checks that no line follows.
func (r *Reader) end(rest []byte) error {
	want := r.roots.Summary()
	got, err := parseSummary(rest)
	if err != nil {
		return err
	}
	switch {
	case got.Entries != want.Entries || got.Bytes != want.Bytes:
		return fmt.Errorf("%w: last line counts %d entries of %d bytes, there are %d of %d",
			ErrRoot, got.Entries, got.Bytes, want.Entries, want.Bytes)
	case got.Content != want.Content:
		return fmt.Errorf("%w: content root is %x, that of the entries %x", ErrRoot, got.Content, want.Content)
	case got.Meta != want.Meta:
		return fmt.Errorf("%w: meta root is %x, that of the entries %x", ErrRoot, got.Meta, want.Meta)
	}
	switch _, err := r.in.ReadByte(); {
	case err == nil:
		return fmt.Errorf("%w: something follows the last line", ErrFormat)
	case !errors.Is(err, io.EOF):
		return r.source.explain(err)
	}
	r.summary = got
	return nil
}

// readLine returns the next line without its newline, valid until the next call.
func (r *Reader) readLine() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	r.line++
	line, err := r.in.ReadSlice('\n')
	switch {
	case err == nil:
		return line[:len(line)-1], nil
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, fmt.Errorf("%w: line longer than %d bytes", ErrFormat, maxLineBytes)
	case errors.Is(err, io.EOF):
		return nil, ErrTruncated
	}
	return nil, r.source.explain(err)
}

// fail records err, about the last line that was read, as the error that ends r.
func (r *Reader) fail(err error) error {
	if r.err == nil {
		r.err = fmt.Errorf("read manifest: %sline %d: %w", r.name, r.line, err)
	}
	return r.err
}
