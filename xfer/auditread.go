package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/manifest"

	"golang.org/x/sync/errgroup"
)

const (
	// auditWindow is how many pieces may be on their way between the walk and
	// what becomes of them. It bounds memory and open files.
	auditWindow = 256
	// auditBufferBytes bounds the memory into which files are read, as far as
	// more than one worker is concerned.
	auditBufferBytes = 64 << 20
)

// audit reads a tree: one goroutine walks it and cuts files into pieces, workers
// digest them, and another takes them in order.
type audit struct {
	tree   *chunker.Tree
	walker *chunker.Walker
	single bool // the tree is one file
	// leaveOut tells of a file below the tree's top whether it is the new
	// manifest's own. Nil: none is.
	leaveOut func(it *auditItem) bool
	header   manifest.Header
	tally    *Tally
	rules    *filter.Rules // nil where there are none
	chosen   *chosen
	// names are what alone is read, with recursive all that is in directories of
	// theirs. Nil: the whole tree is, whatever recursive says.
	names     chunker.Names
	recursive bool

	work  chan *auditPiece // to the workers
	order chan *auditPiece // the same and more, to be taken in order
	// cutting and taking are the items that the first and the last of the
	// goroutines are at.
	cutting, taking *auditItem
}

// auditItem is an entry on its way.
type auditItem struct {
	entry manifest.Entry
	// name is the entry's path in the tree where that is another one.
	name    string
	stamp   chunker.Stamp
	sparse  bool
	problem error           // why it cannot be read
	want    *manifest.Entry // what it is compared with; nil: not in the manifest
	differs manifest.Difference
	gone    bool          // in the manifest only
	file    *chunker.File // of several pieces, while they are read
}

// treePath is where the tree has the entry.
func (it *auditItem) treePath() string {
	if it.name != "" {
		return it.name
	}
	return it.entry.Path
}

// close closes the file; a second time does nothing.
func (it *auditItem) close() {
	if it != nil && it.file != nil {
		_ = it.file.Close() // it was read only
		it.file = nil
	}
}

// auditPiece is a piece, or several of zeros with one digest, or none and only
// the end of its item.
type auditPiece struct {
	item   *auditItem
	index  uint64
	off    int64
	length int64
	count  uint64 // pieces; 0 for none
	hole   bool
	last   bool // nothing of the item comes after
	want   manifest.Digest
	wanted bool

	digest manifest.Digest
	err    error
	ready  chan struct{} // closed when digest or err is there
}

// auditTaker takes pieces in order, and after an item's last its end.
type auditTaker interface {
	piece(p *auditPiece) error
	end(it *auditItem) error
}

func newAudit(path string, h manifest.Header, o *AuditOptions) (*audit, error) {
	var rules *filter.Rules
	if len(o.Rules) > 0 {
		var err error
		if rules, err = filter.Compile(o.Rules); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	tree, single, err := openAudited(path, o.Follow)
	if err != nil {
		return nil, err
	}
	a := &audit{
		tree: tree, single: single, header: h, tally: o.Tally, rules: rules, chosen: newChosen([]string{path}, absoluteLocal),
		work: make(chan *auditPiece, auditWindow), order: make(chan *auditPiece, auditWindow),
	}
	if a.tally == nil {
		a.tally = &Tally{}
	}
	return a, nil
}

// run reads the tree: cut hands on what there is to read, taker takes it.
func (a *audit) run(ctx context.Context, cut func(context.Context) error, taker auditTaker) error {
	a.walker = a.tree.Walk(a.names == nil || a.recursive)
	if a.chosen.rules = a.rules; a.rules != nil {
		a.walker.LeaveOut(a.chosen.hides)
	}
	if a.names != nil {
		if err := a.walker.Only(a.names); err != nil {
			return errors.Join(err, a.walker.Close())
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(a.order)
		defer close(a.work)
		err := cut(ctx)
		a.tally.SetTotalKnown(err == nil)
		return err
	})
	workers := min(workers(), max(1, int(auditBufferBytes/a.header.PieceBytes)))
	for range workers {
		g.Go(func() error { return a.digestPieces(ctx) })
	}
	g.Go(func() error { return a.take(ctx, taker) })
	err := g.Wait()
	// Whoever was interrupted left files open.
	a.cutting.close()
	a.taking.close()
	for p := range a.order {
		p.item.close()
	}
	return errors.Join(err, a.walker.Close())
}

// next is the next entry of the tree, or nil.
func (a *audit) next() (*auditItem, error) {
	for {
		f, err := a.walker.Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		it := &auditItem{entry: f.Entry, stamp: f.Stamp, sparse: f.Sparse, problem: f.Problem}
		if a.single || a.leaveOut == nil || !a.leaveOut(it) {
			return it, nil
		}
	}
}

// cutAll hands on all there is in the tree.
func (a *audit) cutAll(ctx context.Context) error {
	for {
		it, err := a.next()
		if it == nil || err != nil {
			return err
		}
		if it.problem == nil && it.entry.Type == manifest.File {
			err = a.cutFile(ctx, it, nil)
		} else {
			err = a.pushEnd(ctx, it)
		}
		if err != nil {
			return err
		}
	}
}

func (a *audit) push(ctx context.Context, p *auditPiece) error {
	p.ready = make(chan struct{})
	if p.count == 0 {
		close(p.ready)
	} else {
		select {
		case a.work <- p:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case a.order <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pushEnd hands on that nothing more comes of an item.
func (a *audit) pushEnd(ctx context.Context, it *auditItem) error {
	return a.push(ctx, &auditPiece{item: it, last: true})
}

// cutFile hands on the pieces of a file, each with the digest that is wanted.
func (a *audit) cutFile(ctx context.Context, it *auditItem, want *wantedPieces) error {
	size := it.entry.Size
	a.tally.AddTotal(size)
	if size <= a.header.PieceBytes {
		p := &auditPiece{item: it, length: size, count: 1, last: true}
		var err error
		if p.want, _, p.wanted, err = want.take(1); err != nil {
			return err
		}
		if err := want.settle(it); err != nil {
			return err
		}
		return a.push(ctx, p)
	}
	a.cutting = it
	if it.file, it.problem = a.open(it); it.problem == nil {
		if err := a.cutPieces(ctx, it, want); err != nil {
			return err
		}
	}
	if err := want.settle(it); err != nil {
		return err
	}
	return a.pushEnd(ctx, it)
}

// open opens a file that must be what the walk found.
func (a *audit) open(it *auditItem) (*chunker.File, error) {
	f, err := a.tree.Open(it.treePath())
	if err != nil {
		return nil, err
	}
	if err := unchanged(f, it); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func unchanged(f *chunker.File, it *auditItem) error {
	now, err := f.Stamp()
	if err != nil {
		return err
	}
	if now != it.stamp {
		return &changedError{it.treePath()}
	}
	return nil
}

// cutPieces hands on the pieces of an open file. Holes are not read.
func (a *audit) cutPieces(ctx context.Context, it *auditItem, want *wantedPieces) error {
	it.file.AdviseSequential()
	pieceBytes, size := a.header.PieceBytes, it.entry.Size
	data, stop := int64(0), size // the next data, up to stop
	if it.sparse {
		stop = 0
	}
	for off := int64(0); off < size; {
		if off >= stop {
			var err error
			if data, stop, err = it.file.Data(off, size); err != nil {
				data, stop = off, size // reading will tell
			}
			stop = max(stop, off+1)
		}
		p := &auditPiece{item: it, index: uint64(off / pieceBytes), off: off, count: 1}
		if full := (data - off) / pieceBytes; full > 0 {
			p.hole, p.count = true, uint64(full)
			if a.header.Algorithm == manifest.BLAKE3 {
				p.count = 1 // no two of its zero pieces are alike
			}
		}
		var err error
		if p.want, p.count, p.wanted, err = want.take(p.count); err != nil {
			return err
		}
		p.length = min(int64(p.count)*pieceBytes, size-off)
		off += p.length
		if err := a.push(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// digestPieces is a worker.
func (a *audit) digestPieces(ctx context.Context) error {
	var buf []byte
	for p := range a.work {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		whole := p.item.entry.Size <= a.header.PieceBytes
		switch {
		case p.hole:
			p.digest = a.header.Algorithm.ZeroPiece(int(a.header.PieceBytes), p.index, a.header.PieceBytes, whole)
		default:
			if buf == nil {
				buf = make([]byte, a.header.PieceBytes)
			}
			if p.err = a.read(p, buf[:p.length]); p.err == nil {
				p.digest = a.header.Algorithm.Piece(buf[:p.length], p.index, a.header.PieceBytes, whole)
			}
		}
		close(p.ready)
	}
	return nil
}

// read reads a piece. A file of one piece is open no longer than that.
func (a *audit) read(p *auditPiece, buf []byte) error {
	if !p.last {
		return p.item.readPart(p.item.file, buf, p.off)
	}
	f, err := a.open(p.item)
	if err != nil {
		return err
	}
	if err = p.item.readPart(f, buf, 0); err == nil {
		err = unchanged(f, p.item)
	}
	return errors.Join(err, f.Close())
}

func (it *auditItem) readPart(f *chunker.File, buf []byte, off int64) error {
	err := readPart(f, buf, off, it.entry.Size, func() error { return unchanged(f, it) })
	if errors.Is(err, errMisstated) {
		err = fmt.Errorf("read %q: %w", it.treePath(), err)
	}
	return err
}

// take hands pieces to taker, in order.
func (a *audit) take(ctx context.Context, taker auditTaker) error {
	for {
		var p *auditPiece
		select {
		case p = <-a.order:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if p == nil {
			return nil
		}
		it := p.item
		a.taking = it
		select {
		case <-p.ready:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if err := a.takeOne(taker, it, p); err != nil {
			return err
		}
	}
}

func (a *audit) takeOne(taker auditTaker, it *auditItem, p *auditPiece) error {
	if it.problem == nil {
		it.problem = p.err
	}
	if p.last && it.file != nil {
		if it.problem == nil {
			it.problem = unchanged(it.file, it)
		}
		it.close()
	}
	a.tally.AddBytes(p.length)
	if it.problem == nil && p.count > 0 {
		if err := taker.piece(p); err != nil {
			return err
		}
	}
	if p.last {
		if it.problem == nil && it.entry.Type == manifest.File {
			a.tally.AddFile()
		}
		return taker.end(it)
	}
	return nil
}

// changedError is a file that is not what it was.
type changedError struct{ path string }

func (e *changedError) Error() string {
	return "read " + strconv.Quote(e.path) + ": " + chunker.ErrChanged.Error()
}
func (e *changedError) Unwrap() error { return chunker.ErrChanged }
