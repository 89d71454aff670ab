package dest

import (
	"context"
	"io"
	"sync"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// diskReader reads a file from its disk, not from the page cache: what was written may
// have been lost on the way there. Many goroutines may read.
type diskReader struct {
	fd     int // the file, of which somebody else is the owner
	direct int // the same past the page cache (O_DIRECT, open(2)), or -1
}

// newDiskReader brings a file to the disk and drops it from the page cache.
func newDiskReader(fd int) (*diskReader, error) {
	if err := fsys.Uninterrupted(func() error { return unix.Fsync(fd) }); err != nil {
		return nil, err
	}
	_ = unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED)
	r := &diskReader{fd: fd, direct: -1}
	if direct, err := fsys.Reopen(fd, unix.O_RDONLY|unix.O_DIRECT); err == nil {
		r.direct = direct
	}
	return r, nil
}

// newCacheReader makes a diskReader that reads what the page cache has from there.
func newCacheReader(fd int) (*diskReader, error) { return &diskReader{fd: fd, direct: -1}, nil }

// read returns n bytes at off, in buf, which has n bytes or more, whole pages. What lies
// behind the end of the file reads as zeros.
func (r *diskReader) read(buf []byte, off int64, n int) ([]byte, error) {
	got := 0
	if r.direct >= 0 {
		if m, err := unix.Pread(r.direct, buf, off); err == nil {
			got = min(m, n)
		}
	}
	// Where the file system cannot read past the page cache, the cache was dropped.
	m, err := fsys.FDReader(r.fd).ReadAt(buf[got:n], off+int64(got))
	if err != nil && err != io.EOF {
		return nil, err
	}
	clear(buf[got+m : n])
	return buf[:n], nil
}

// dataFrom returns where the next data of the file is, at off or behind it.
func (r *diskReader) dataFrom(off, size int64) int64 { return fsys.DataFrom(r.fd, off, size) }

func (r *diskReader) close() {
	if r.direct >= 0 {
		fsys.CloseQuietly(r.direct)
	}
}

// Content is what a file must hold.
type Content struct {
	Hash       manifest.Algorithm
	PieceBytes int64
	Root       manifest.Digest
}

// ReadBack has Publish read the file back from the disk, and refuse it a name where it
// does not hold what it must: then the error is ErrLost. Call it only before Finish.
func (t *Temp) ReadBack(must Content) { t.must, t.fromDisk = &must, true }

// MustHold has Publish read a file that Copy made, and refuse it a name where it does not
// hold what it must: then the error is ErrChanged. Other files hold what was written. Call
// it only before Finish.
func (t *Temp) MustHold(must Content) {
	if t.origin.copied {
		t.must = &must
	}
}

// readBack reads a synced file.
func (t *Temp) readBack() error {
	switch {
	case t.must == nil:
		return nil
	case t.fromDisk:
		return t.holds(t.must, newDiskReader, ErrLost)
	}
	return t.holds(t.must, t.ownReader(), fileset.ErrChanged)
}

// ownReader makes what reads the file once more: past the page cache where it was written so.
func (t *Temp) ownReader() func(fd int) (*diskReader, error) {
	if t.goesPastCache() {
		return newDiskReader
	}
	return newCacheReader
}

// holds reads a file through the reader that begin makes, and compares it with what it
// must hold. The error is bad where it holds something else.
func (t *Temp) holds(c *Content, begin func(fd int) (*diskReader, error), bad error) error {
	r, err := begin(t.fd)
	if err != nil {
		return fileset.OpErr("read back", t.place, err)
	}
	defer r.close()
	tree := manifest.NewTree(c.Hash)
	ahead := startDigests(pieceFile{r, c.Hash, c.PieceBytes, t.size}, t.sink.places, func(add func(first, pieces uint64, hole bool) bool) {
		for piece, all := uint64(0), max(1, manifest.PieceCount(t.size, c.PieceBytes)); piece < all; {
			run, hole := uint64(1), false
			off := int64(piece) * c.PieceBytes
			if full := (r.dataFrom(off, t.size) - off) / c.PieceBytes; full > 0 && c.Hash != manifest.BLAKE3 {
				run, hole = uint64(full), true // whole pieces, which have the same digest
			}
			if !add(piece, run, hole) {
				return
			}
			piece += run
		}
	})
	defer ahead.close()
	for p := ahead.next(); p != nil; p = ahead.next() {
		if err := t.sink.watch.step(); err != nil {
			return err
		}
		if p.err != nil {
			return fileset.OpErr("read back", t.place, p.err)
		}
		tree.PushRun(p.digest, p.pieces)
	}
	if tree.Root() != c.Root {
		return fileset.KindErr("read back", t.place, bad)
	}
	return nil
}

// readPlaces are where pieces of files are read to, each in memory of its own. They bound how
// many are read at once: each may hold a thread in the kernel. Many goroutines may use them.
type readPlaces struct {
	taken chan struct{} // holds a token for each place that is taken

	mu    sync.Mutex
	files int      // which are being read
	mems  [][]byte // of places that are not taken; none where no files are being read
}

func newReadPlaces(n int) *readPlaces { return &readPlaces{taken: make(chan struct{}, n)} }

// begin says that a file is going to be read.
func (r *readPlaces) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files++
}

// end says that a file has been read. The last one gives the memory back.
func (r *readPlaces) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files--; r.files > 0 {
		return
	}
	for _, mem := range r.mems {
		_ = unix.Munmap(mem)
	}
	r.mems = nil
}

// take waits for a place and returns its memory, of at least so many bytes and of whole pages,
// as O_DIRECT wants it. The caller gives it back by give, and takes no other before that. Where
// stop is closed first, the error is context.Canceled.
func (r *readPlaces) take(stop <-chan struct{}, bytes int) ([]byte, error) {
	select {
	case r.taken <- struct{}{}:
	case <-stop:
		return nil, context.Canceled
	}
	r.mu.Lock()
	var mem []byte
	if last := len(r.mems) - 1; last >= 0 {
		mem, r.mems = r.mems[last], r.mems[:last]
	}
	r.mu.Unlock()
	if len(mem) >= bytes {
		return mem, nil
	}
	if mem != nil {
		_ = unix.Munmap(mem)
	}
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		<-r.taken
	}
	return mem, err
}

// give gives a place back.
func (r *readPlaces) give(mem []byte) {
	r.mu.Lock()
	r.mems = append(r.mems, mem)
	r.mu.Unlock()
	<-r.taken
}

// aheadReadBytes is how much of one file is being read ahead, or copied past the page cache, at most.
const aheadReadBytes = 8 << 20

// pieceFile is a file that is read and digested by pieces.
type pieceFile struct {
	from       *diskReader
	hash       manifest.Algorithm
	pieceBytes int64
	size       int64
}

func (f *pieceFile) single() bool { return f.size <= f.pieceBytes }

// zeroPiece is the digest of a piece that is zeros.
func (f *pieceFile) zeroPiece(piece uint64) manifest.Digest {
	return f.hash.ZeroPiece(int(f.pieceBytes), piece, f.pieceBytes, f.single())
}

// digestAhead reads and digests pieces of a file, several at once, because each waits for
// the disk. Its owner takes them by next, in the order in which they were asked for, and
// ends it by close.
type digestAhead struct {
	file    pieceFile
	places  *readPlaces
	todo    chan *aheadPieces // to read
	order   chan *aheadPieces // all, in order
	stop    chan struct{}
	running sync.WaitGroup
}

// aheadPieces is one piece, or a run of pieces that lie in a hole, which nobody reads.
type aheadPieces struct {
	first, pieces uint64
	hole          bool
	digest        manifest.Digest // of each piece
	err           error
	done          chan struct{} // closed when digest and err are there
}

// startDigests begins to read. ask calls its argument for each piece, or run of pieces in a
// hole; where that returns false, ask is to return. It runs beside the caller. Each piece is
// read in one of the places, which other files have, too.
func startDigests(file pieceFile, places *readPlaces, ask func(add func(first, pieces uint64, hole bool) bool)) *digestAhead {
	workers := min(int64(chunker.DiskWorkers()), max(1, aheadReadBytes/file.pieceBytes), max(1, int64(manifest.PieceCount(file.size, file.pieceBytes))))
	a := &digestAhead{file: file, places: places, todo: make(chan *aheadPieces), order: make(chan *aheadPieces, workers), stop: make(chan struct{})}
	places.begin()
	a.running.Go(func() {
		defer close(a.order)
		defer close(a.todo)
		ask(a.add)
	})
	for range workers {
		a.running.Go(a.work)
	}
	return a
}

// add has pieces read. It returns false where nobody wants any more.
func (a *digestAhead) add(first, pieces uint64, hole bool) bool {
	p := &aheadPieces{first: first, pieces: pieces, hole: hole, done: make(chan struct{})}
	if hole {
		p.digest = a.file.zeroPiece(first)
		close(p.done)
	} else {
		select {
		case a.todo <- p:
		case <-a.stop:
			return false
		}
	}
	select {
	case a.order <- p:
		return true
	case <-a.stop:
		return false
	}
}

// work reads pieces until there are no more.
func (a *digestAhead) work() {
	for p := range a.todo {
		p.digest, p.err = a.read(p.first)
		close(p.done)
	}
}

// read digests one piece.
func (a *digestAhead) read(piece uint64) (d manifest.Digest, err error) {
	mem, err := a.places.take(a.stop, int(a.file.pieceBytes))
	if err != nil {
		return d, err
	}
	defer a.places.give(mem)
	off := int64(piece) * a.file.pieceBytes
	b, err := a.file.from.read(mem[:a.file.pieceBytes], off, int(min(a.file.pieceBytes, a.file.size-off)))
	if err == nil {
		d = a.file.hash.Piece(b, piece, a.file.pieceBytes, a.file.single())
	}
	return d, err
}

// next returns the next pieces, or nil when there are no more. It blocks for the disk.
func (a *digestAhead) next() *aheadPieces {
	p := <-a.order
	if p != nil {
		<-p.done
	}
	return p
}

// close ends the reading, and waits for what is under way.
func (a *digestAhead) close() {
	close(a.stop)
	a.running.Wait()
	a.places.end()
}
