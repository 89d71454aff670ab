package dest

import (
	"cmp"
	"context"
	"errors"
	"io"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Clone makes a file that begins as a copy of the basis, of so many of its bytes as will be
// compared, and shares its blocks (ioctl_ficlone(2)). It is like one of CreatePartial, or
// with a nil p like one of Create that only its owner may read until it is finished. Its
// reads (ReadAt) do not change with the basis. It is nil where the file system cannot do
// that.
func (b *Basis) Clone(p *Partial, bytes int64) (*Temp, error) {
	d := b.temp.sink.deviceOf(b.temp.dir)
	if d.noClones.Load() {
		return nil, nil
	}
	t, err := b.createWhole(p)
	if err != nil {
		return nil, nil // Create meets the same error, if anything has to be written at all
	}
	err = fsys.Uninterrupted(func() error { return unix.IoctlFileClone(t.fd, b.temp.fd) })
	if err == nil {
		// What is behind would show through holes.
		err = fsys.Uninterrupted(func() error { return unix.Ftruncate(t.fd, bytes) })
	}
	if err == nil {
		t.origin.cloned = true
		err = fsys.Fstat(t.fd, &t.made)
		t.written.Store(t.made.Size) // where that is not the entry's, Finish mends it
	}
	if err == nil {
		return t, nil
	}
	if err == unix.EOPNOTSUPP || err == unix.ENOTTY || err == unix.ENOSYS {
		d.noClones.Store(true)
	}
	if err := t.Discard(); err != nil {
		return nil, err
	}
	if err = fileset.OpErr("clone", t.place, err); errors.Is(err, fileset.ErrNoSpace) {
		return nil, err
	}
	return nil, nil
}

// Copy makes a file like that of Clone, whose blocks are its own. It is written by the rung
// of its file system, several parts at once; where that is the page cache, by
// copy_file_range(2) where possible. It has no journal. What is written behind it goes into
// it. Publish compares the whole of it with what it must hold (MustHold), because the basis
// may have changed after a piece was compared and before it was copied. Copy blocks for the
// disk; see Watch. Bytes that cannot be read are left out.
func (b *Basis) Copy() (*Temp, error) {
	t, err := b.createWhole(nil)
	if err != nil {
		return nil, err
	}
	if err = b.fits(); err == nil {
		err = b.copyInto(t)
	}
	t.origin.copied = true
	if err != nil {
		return nil, errors.Join(fileset.OpErr("copy", t.place, err), t.Discard())
	}
	return t, nil
}

// createWhole makes a file that may begin with what the basis has. OpenBasis refuses to compare where
// that cannot be, unless it could not tell yet.
func (b *Basis) createWhole(p *Partial) (*Temp, error) {
	t, err := b.create(p)
	if err == nil && t.inOrder != nil {
		return nil, errors.Join(fileset.OpErr("copy", t.place, fileset.ErrChanged), t.Discard())
	}
	return t, err
}

// create makes the file. Nobody else may read it before it is finished, because the old
// content may be for other eyes than the new one.
func (b *Basis) create(p *Partial) (*Temp, error) {
	s := b.temp.sink
	if p != nil {
		return s.CreatePartial(&b.entry, b.temp.attrs, p)
	}
	t, err := s.newTemp(&b.entry, b.temp.attrs)
	if err != nil {
		return nil, err
	}
	t.private, t.wantsJournal = true, true
	if err := t.create(b.entry.Mode); err != nil {
		t.dir.release()
		return nil, fileset.OpErr("create", t.place, err)
	}
	return t, nil
}

// fits checks that the disk has room for a copy, before most of the copy is made.
func (b *Basis) fits() error {
	if _, most := fsys.FreeBytes(b.temp.fd); b.temp.made.Blocks*512 > most {
		return unix.ENOSPC
	}
	return nil
}

// copyInto copies all data of the basis. Holes stay holes.
func (b *Basis) copyInto(t *Temp) error {
	if b.temp.made.Blocks*512 < b.temp.made.Size {
		t.ExpectHoles()
	}
	copyData := b.copyByKernel
	if t.goesPastCache() {
		copyData = b.copyPastCache
	}
	if err := copyData(t); err != nil {
		return err
	}
	t.written.Store(t.size)
	return fsys.Uninterrupted(func() error { return unix.Ftruncate(t.fd, t.size) }) // the end may be a hole
}

// dataEnd finds where the data of the basis ends.
func (b *Basis) dataEnd() fsys.DataEnd {
	return fsys.DataEnd{Seek: func(off int64, whence int) (int64, error) { return unix.Seek(b.temp.fd, off, whence) }}
}

// copyByKernel copies the data through the page cache, or as the file system can by itself.
func (b *Basis) copyByKernel(t *Temp) error {
	c := rangeCopier{from: b.temp.fd, to: t.fd}
	data := b.dataEnd()
	for off := b.dataFrom(0); off < t.size; off = b.dataFrom(off) {
		if err := t.step(); err != nil {
			return err
		}
		n, err := c.copy(off, int(min(copyStepBytes, data.Behind(off, t.size)-off)))
		if err == errNotRead {
			// A piece with such a part is never the same, so it is written anew. No piece
			// is smaller than this.
			n = int(manifest.MinPieceBytes - off%manifest.MinPieceBytes)
		} else if err != nil {
			return err
		} else {
			t.sink.wrote.Add(fileset.IOBuffered, n)
		}
		off += int64(n)
	}
	return nil
}

// rangeCopier copies ranges of one file to the same place in another.
type rangeCopier struct {
	from, to int
	buf      []byte // used where copy_file_range(2) does not work
}

// copy copies up to most bytes at off, and returns how many. errNotRead: none of them can
// be read.
func (c *rangeCopier) copy(off int64, most int) (int, error) {
	if c.buf == nil {
		in, out := off, off
		n, err := unix.CopyFileRange(c.from, &in, c.to, &out, most, 0)
		switch {
		case err == unix.EINTR:
			return 0, nil
		case err == nil && n > 0:
			return n, nil
		case err == unix.ENOSPC || err == unix.EDQUOT:
			return 0, err
		}
		c.buf = make([]byte, 1<<20)
	}
	n, _ := fsys.FDReader(c.from).ReadAt(c.buf[:min(most, len(c.buf))], off) // an error is met again
	if n == 0 {
		return 0, errNotRead
	}
	for done := 0; done < n; {
		m, err := unix.Pwrite(c.to, c.buf[done:n], off+int64(done))
		if err != nil && err != unix.EINTR {
			return 0, err
		}
		done += max(m, 0)
	}
	return n, nil
}

// IsClone reports whether Clone made the file.
func (t *Temp) IsClone() bool { return t.origin.cloned }

// IsCopy reports whether the file began as what stands in its place, as a copy or as that
// file itself: what is the same need not be written, and holes have to be made (MakeHole).
func (t *Temp) IsCopy() bool { return t.origin.cloned || t.origin.copied || t.origin.inPlace }

// sharesPages reports whether the file began with what others may have in use: it is the file
// in its place, or has its blocks.
func (t *Temp) sharesPages() bool { return t.origin.cloned || t.origin.inPlace }

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
	parts.SetLimit(min(chunker.DiskWorkers(), aheadReadBytes/partBytes))
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
