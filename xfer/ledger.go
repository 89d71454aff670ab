package xfer

import (
	"fmt"
	"sync"

	"gdrcp/manifest"
)

// ledger books at the sink what each chunk claims to hold, in order of chunk
// ids, so that every byte of every file is claimed exactly once and trees of
// digests fill from the left. Nothing of a chunk is written before it is
// booked: a chunk that comes out of turn waits in its slot.
type ledger struct {
	sink   *sink
	mu     sync.Mutex
	next   uint64
	parked map[uint64]arrived
	holes  []pieceRun // of one extent, reused
}

func newLedger(k *sink) *ledger { return &ledger{sink: k, parked: make(map[uint64]arrived)} }

// admit books a chunk that is no repair. It reports whether it was its turn;
// where it was not, the slot comes back to the workers when it is.
func (l *ledger) admit(h *chunkHeader, a arrived) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.id != l.next {
		if _, twice := l.parked[h.id]; twice || h.id < l.next {
			return false, fmt.Errorf("%w: chunk %d, %d was next", ErrProtocol, h.id, l.next)
		}
		l.parked[h.id] = a
		return false, nil
	}
	if err := l.book(h.extents); err != nil {
		return false, err
	}
	l.next++
	if p, ok := l.parked[l.next]; ok {
		delete(l.parked, l.next)
		l.sink.work <- p // as long as the ring: never blocks
	}
	return true, nil
}

func (l *ledger) book(xs []extent) error {
	p, dear := &l.sink.params, int64(0)
	if p.has(flagDryRun) {
		return fmt.Errorf("%w: data in a dry run", ErrProtocol)
	}
	for i := range xs {
		dear += min(p.dearPieces(&xs[i]), p.maxDear()+1) // no sum overflows
	}
	if dear > p.maxDear() {
		return fmt.Errorf("%w: holes of %d pieces to be digested in one chunk", ErrProtocol, dear)
	}
	for i := range xs {
		e, err := l.sink.entry(xs[i].entry)
		if err != nil {
			return err
		}
		if e == nil {
			continue // given up before; the source did not know yet
		}
		if err := l.bookExtent(e, &xs[i]); err != nil {
			return err
		}
	}
	return nil
}

// bookExtent checks that an extent is the next one of its file and books its
// digest. At the file's end the root is compared with the given manifest's.
func (l *ledger) bookExtent(e *sinkEntry, x *extent) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.unwanted {
		return errUnwanted(e)
	}
	if e.over {
		return nil
	}
	if e.Type != manifest.File || e.last {
		return fmt.Errorf("%w: data for %q, which takes none", ErrProtocol, e.Path)
	}
	if err := x.checkGrown(&l.sink.params); err != nil {
		return err
	}
	if x.flags&(extFailed|extChanged|extReject) != 0 {
		e.givenUp = true
	}
	if e.givenUp {
		return nil
	}
	if e.stream && x.flags&extLast != 0 {
		if err := e.endStreamLocked(x, &l.sink.params); err != nil {
			return err
		}
	}
	if err := checkPlace(e, x, &l.sink.params); err != nil {
		return err
	}
	l.holes = l.holes[:0]
	if x.flags&extHole != 0 {
		l.holes = appendHole(l.holes, x, e.Size, &l.sink.params)
	}
	e.addExtent(x, l.holes, &l.sink.params, l.sink.account.keepsPieces())
	e.booked += x.length
	if x.flags&extLast == 0 {
		return nil
	}
	e.last, e.grown = true, x.flags&extGrown != 0
	e.Root = e.rootOf(x.digest)
	if e.wanted && e.Root != e.expect {
		l.sink.failEntryLocked(e, Corrupt, fmt.Sprintf("%q: %v", e.Path, errNotAsManifest))
		return nil
	}
	return nil // the file is complete when the extent has landed
}

// checkPlace makes sure that an extent is where the last one ended, is a whole
// piece or a run of them, and is the last one exactly when the file ends.
func checkPlace(e *sinkEntry, x *extent, p *params) error {
	pieceBytes := p.pieceBytes
	left := e.Size - x.off
	good := x.off == e.booked && left >= 0
	if x.flags&extHole != 0 {
		good = good && x.length > 0 && x.length <= maxHoleRun*pieceBytes && (x.length == left || (x.length < left && x.length%pieceBytes == 0))
	} else {
		good = good && x.length == min(pieceBytes, left)
	}
	if !good || (x.flags&extLast != 0) != (x.length == left) {
		return fmt.Errorf("%w: %d bytes at %d of %q, which has %d and was at %d", ErrProtocol, x.length, x.off, e.Path, e.Size, e.booked)
	}
	return nil
}
