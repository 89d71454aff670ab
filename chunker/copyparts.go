package chunker

import (
	"cmp"
	"context"
	"io"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"

	"golang.org/x/sync/errgroup"
)

// partBytes is how much of a file is copied past the page cache at once.
const partBytes = 1 << 20

// goesPastCache reports whether large writes of the file do not stay in the page cache.
func (t *Temp) goesPastCache() bool {
	if t.size < fsys.LeastDirect {
		return false
	}
	r := t.chosen()
	return t.io.err == nil && (r == fileset.IODirect || r == fileset.IODontCache)
}

// copyPastCache copies the data by the file's rung, several parts at once, because each waits
// for the disk. All files of the sink together have the places that files are read back in.
func (b *Basis) copyPastCache(t *Temp) error {
	places := t.sink.places
	places.begin()
	defer places.end()
	parts, stop := errgroup.WithContext(context.Background())
	parts.SetLimit(min(DiskWorkers(), aheadReadBytes/partBytes))
	data := b.dataEnd()
	for off := b.dataFrom(0); off < t.size && stop.Err() == nil; off = b.dataFrom(off) {
		if err := t.step(); err != nil {
			return cmp.Or(parts.Wait(), err)
		}
		from, to := off, min(data.Behind(off, t.size), off-off%partBytes+partBytes)
		parts.Go(func() error { return b.copyPart(t, from, to) })
		off = to
	}
	return parts.Wait()
}

// copyPart copies a part of partBytes at most. Of bytes that cannot be read it leaves out
// those of the smallest piece: a piece with such a part is never the same, so it is written
// anew.
func (b *Basis) copyPart(t *Temp, from, to int64) error {
	mem, err := t.sink.places.take(t.sink.watch.Stop, partBytes)
	if err != nil {
		return err
	}
	defer t.sink.places.give(mem)
	for off := from; off < to; {
		n, err := fsys.FDReader(b.temp.fd).ReadAt(mem[:to-off], off)
		if n == 0 && err == io.EOF {
			return nil // the file was cut short, and so is not the same
		}
		if n == 0 {
			off += manifest.MinPieceBytes - off%manifest.MinPieceBytes
			continue
		}
		if _, err := t.write(mem[:n], off); err != nil {
			return err
		}
		off += int64(n)
	}
	return nil
}
