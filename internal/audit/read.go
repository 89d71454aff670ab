package audit

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/internal/filter"
	"gdrcp/manifest"

	"golang.org/x/sync/errgroup"
)

const (
	// windowPieces bounds the pieces in flight between the walk and the taker,
	// and thereby memory and open files.
	windowPieces = 256
	// maxBufferBytes bounds the workers' buffers if there is more than one worker.
	maxBufferBytes = 64 << 20
)

// treeReader reads a tree: one goroutine walks it and cuts files into pieces,
// workers digest them, and another goroutine consumes them in order.
type treeReader struct {
	tree   *chunker.Tree
	walker *chunker.Walker
	single bool // the tree is a single file
	// leaveOut reports whether a file below the tree's top belongs to the new manifest
	// itself. Nil: no file does.
	leaveOut func(it *item) bool
	header   manifest.Header
	tally    Tally
	rules    *filter.Rules // nil if there are none
	place    filter.Place  // place of the tree, for the rules
	// names are the only entries to read, with recursive also the contents of directories
	// that they name. Nil: the whole tree is read, regardless of recursive.
	names     chunker.Names
	recursive bool

	work  chan *piece // to the workers
	order chan *piece // the same pieces and ends of items, to be consumed in order
	// cutting and taking are the current items of the first and the last goroutine.
	cutting, taking *item
}

// item is an entry in flight.
type item struct {
	entry manifest.Entry
	// name is the entry's path in the tree, if that differs.
	name    string
	stamp   fileset.Stamp
	dir     manifest.Inode // of the directory that contains its name
	foundNs int64          // when the walk found it, in nanoseconds since 1970
	sparse  bool
	problem error           // the reason if it cannot be read
	skip    bool            // the problem is the type of the file: see chunker.Found
	want    *manifest.Entry // the manifest's entry, or nil
	differs manifest.Difference
	gone    bool          // in the manifest only
	file    *chunker.File // open while the pieces of a file of several pieces are read
}

// treePath returns the entry's path in the tree.
func (it *item) treePath() string {
	if it.name != "" {
		return it.name
	}
	return it.entry.Path
}

// close closes the file; a second call does nothing.
func (it *item) close() {
	if it != nil && it.file != nil {
		_ = it.file.Close() // it was only open for reading
		it.file = nil
	}
}

// piece is one piece, or several pieces of zeros with one digest, or no piece and only
// the end of its item.
type piece struct {
	item   *item
	index  uint64
	off    int64
	length int64
	count  uint64 // number of pieces, or 0
	hole   bool
	last   bool // the last part of the item
	want   manifest.Digest
	wanted bool

	digest manifest.Digest
	err    error
	ready  chan struct{} // closed when digest or err is set
}

// taker consumes pieces in order, and the end of an item after its last piece.
type taker interface {
	piece(p *piece) error
	end(it *item) error
}

func newTreeReader(path string, h manifest.Header, o *Options) (*treeReader, error) {
	var rules *filter.Rules
	if len(o.Rules) > 0 {
		var err error
		if rules, err = filter.Compile(o.Rules); err != nil {
			return nil, err
		}
	}
	tree, single, err := openTree(path, o.Follow)
	if err != nil {
		return nil, err
	}
	t := &treeReader{
		tree: tree, single: single, header: h, tally: o.Tally, rules: rules,
		place: filter.PlaceOf(filter.Absolute(path), chunker.BaseName(path), !single),
		work:  make(chan *piece, windowPieces), order: make(chan *piece, windowPieces),
	}
	if t.tally == nil {
		t.tally = uncounted{}
	}
	return t, nil
}

// run reads the tree: cut sends the items, and to consumes them.
func (t *treeReader) run(ctx context.Context, cut func(context.Context) error, to taker) error {
	t.walker = t.tree.Walk(t.names == nil || t.recursive)
	if t.rules != nil {
		t.walker.LeaveOut(t.rules.Matcher(t.place).Hides)
	}
	if t.names != nil {
		if err := t.walker.Only(t.names); err != nil {
			return errors.Join(err, t.walker.Close())
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	t.walker.EndWith(ctx)
	g.Go(func() error {
		defer close(t.order)
		defer close(t.work)
		err := cut(ctx)
		t.tally.SetTotalKnown(err == nil)
		return err
	})
	for range min(chunker.DiskWorkers(), max(1, int(maxBufferBytes/t.header.PieceBytes))) {
		g.Go(func() error { return t.digestPieces(ctx) })
	}
	g.Go(func() error { return t.take(ctx, to) })
	err := g.Wait()
	// Interrupted goroutines may have left files open.
	t.cutting.close()
	t.taking.close()
	for p := range t.order {
		p.item.close()
	}
	return errors.Join(err, t.walker.Close())
}

// digestPieces reads and digests pieces; each worker runs it.
func (t *treeReader) digestPieces(ctx context.Context) error {
	var buf []byte
	for p := range t.work {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		whole := p.item.entry.Size <= t.header.PieceBytes
		switch {
		case p.hole:
			p.digest = t.header.Algorithm.ZeroPiece(int(t.header.PieceBytes), p.index, t.header.PieceBytes, whole)
		default:
			if buf == nil {
				buf = make([]byte, t.header.PieceBytes)
			}
			if p.err = t.read(ctx, p, buf[:p.length]); p.err == nil {
				p.digest = t.header.Algorithm.Piece(buf[:p.length], p.index, t.header.PieceBytes, whole)
			}
		}
		close(p.ready)
	}
	return nil
}

// read reads a piece. A file of one piece is open only during this call.
func (t *treeReader) read(ctx context.Context, p *piece, buf []byte) error {
	if !p.last {
		return p.item.readPart(p.item.file, buf, p.off)
	}
	f, err := t.open(ctx, p.item)
	if err != nil {
		return err
	}
	if err = p.item.readPart(f, buf, 0); err == nil {
		err = unchanged(f, p.item)
	}
	return errors.Join(err, f.Close())
}

func (it *item) readPart(f *chunker.File, buf []byte, off int64) error {
	err := f.ReadPart(buf, off, it.entry.Size, f.Uncached(buf, off), func() error { return unchanged(f, it) })
	if errors.Is(err, chunker.ErrMisstated) {
		err = fmt.Errorf("read %q: %w", it.treePath(), err)
	}
	return err
}

// take passes pieces to to, in order.
func (t *treeReader) take(ctx context.Context, to taker) error {
	for {
		var p *piece
		select {
		case p = <-t.order:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if p == nil {
			return nil
		}
		it := p.item
		t.taking = it
		select {
		case <-p.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := t.takeOne(to, it, p); err != nil {
			return err
		}
	}
}

func (t *treeReader) takeOne(to taker, it *item, p *piece) error {
	if it.problem == nil {
		it.problem = p.err
	}
	if p.last && it.file != nil {
		if it.problem == nil {
			it.problem = unchanged(it.file, it)
		}
		it.close()
	}
	t.tally.AddBytes(p.length)
	if it.problem == nil && p.count > 0 {
		if err := to.piece(p); err != nil {
			return err
		}
	}
	if p.last {
		if it.problem == nil && it.entry.Type == manifest.File {
			t.tally.AddFile()
		}
		return to.end(it)
	}
	return nil
}

// changedError is the error for a file that has changed.
type changedError struct{ path string }

func (e *changedError) Error() string {
	return "read " + strconv.Quote(e.path) + ": " + fileset.ErrChanged.Error()
}
func (e *changedError) Unwrap() error { return fileset.ErrChanged }

// open opens a file, and checks that it is the one found by the walk.
func (t *treeReader) open(ctx context.Context, it *item) (*chunker.File, error) {
	f, err := t.tree.Open(it.treePath())
	if err != nil {
		return nil, err
	}
	now, err := f.AgedStamp(ctx.Done())
	if err == nil && now != it.stamp {
		err = &changedError{it.treePath()}
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func unchanged(f *chunker.File, it *item) error {
	now, err := f.Stamp()
	if err != nil {
		return err
	}
	if now != it.stamp {
		return &changedError{it.treePath()}
	}
	return nil
}
