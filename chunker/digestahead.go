package chunker

import (
	"sync"

	"gdrcp/manifest"
)

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
	workers := min(int64(DiskWorkers()), max(1, aheadReadBytes/file.pieceBytes), max(1, int64(manifest.PieceCount(file.size, file.pieceBytes))))
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
