package audit

import (
	"context"
	"errors"
	"io"
	"time"

	"gdrcp/manifest"
)

// next returns the next entry of the tree, or nil.
func (t *treeReader) next() (*item, error) {
	for {
		f, err := t.walker.Next()
		if errors.Is(err, io.EOF) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		it := &item{entry: f.Entry, stamp: f.Stamp, dir: f.Dir, sparse: f.Sparse, problem: f.Problem, skip: f.Skip, foundNs: time.Now().UnixNano()}
		if t.single || t.leaveOut == nil || !t.leaveOut(it) {
			return it, nil
		}
	}
}

// cutAll sends everything in the tree.
func (t *treeReader) cutAll(ctx context.Context) error {
	for {
		it, err := t.next()
		if it == nil || err != nil {
			return err
		}
		if it.problem == nil && it.entry.Type == manifest.File {
			err = t.cutFile(ctx, it, nil)
		} else {
			err = t.pushEnd(ctx, it)
		}
		if err != nil {
			return err
		}
	}
}

func (t *treeReader) push(ctx context.Context, p *piece) error {
	p.ready = make(chan struct{})
	if p.count == 0 {
		close(p.ready)
	} else {
		select {
		case t.work <- p:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	select {
	case t.order <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// pushEnd sends the end of an item.
func (t *treeReader) pushEnd(ctx context.Context, it *item) error {
	return t.push(ctx, &piece{item: it, last: true})
}

// cutFile sends the pieces of a file, each with its expected digest.
func (t *treeReader) cutFile(ctx context.Context, it *item, want *wantedPieces) error {
	size := it.entry.Size
	t.tally.AddTotal(size)
	if size <= t.header.PieceBytes {
		p := &piece{item: it, length: size, count: 1, last: true}
		var err error
		if p.want, _, p.wanted, err = want.take(1); err != nil {
			return err
		}
		if err := want.settle(it); err != nil {
			return err
		}
		return t.push(ctx, p)
	}
	t.cutting = it
	if it.file, it.problem = t.open(ctx, it); it.problem == nil {
		if err := t.cutPieces(ctx, it, want); err != nil {
			return err
		}
	}
	if err := want.settle(it); err != nil {
		return err
	}
	return t.pushEnd(ctx, it)
}

// cutPieces sends the pieces of an open file. Holes are not read.
func (t *treeReader) cutPieces(ctx context.Context, it *item, want *wantedPieces) error {
	it.file.AdviseSequential()
	pieceBytes, size := t.header.PieceBytes, it.entry.Size
	data, stop := int64(0), size // the next data, up to stop
	if it.sparse {
		stop = 0
	}
	for off := int64(0); off < size; {
		if off >= stop {
			var err error
			if data, stop, err = it.file.Data(off, size); err != nil {
				data, stop = off, size // reading will report the error
			}
			stop = max(stop, off+1)
		}
		p := &piece{item: it, index: uint64(off / pieceBytes), off: off, count: 1}
		if full := (data - off) / pieceBytes; full > 0 {
			p.hole, p.count = true, uint64(full)
			if t.header.Algorithm == manifest.BLAKE3 {
				p.count = 1 // no two zero pieces have the same digest
			}
		}
		var err error
		if p.want, p.count, p.wanted, err = want.take(p.count); err != nil {
			return err
		}
		p.length = min(int64(p.count)*pieceBytes, size-off)
		off += p.length
		if err := t.push(ctx, p); err != nil {
			return err
		}
	}
	return nil
}
