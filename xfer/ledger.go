package xfer

import (
	"errors"
	"fmt"
	"sync"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// ledger books at the sink what each chunk claims to hold, in the order of chunk ids. So every byte
// of every file is claimed exactly once, and trees of digests fill from the left. Nothing of a
// chunk is written before the chunk is booked. A chunk that comes out of turn waits in its slot.
type ledger struct {
	sink   *sink
	mu     sync.Mutex
	next   uint64
	parked map[uint64]flow.Filled
	// over: every entry has ended, so nothing of any chunk is needed.
	over  bool
	holes []pieceRun // for one extent, reused
}

func newLedger(k *sink) *ledger { return &ledger{sink: k, parked: make(map[uint64]flow.Filled)} }

// admit books a chunk that is no repair. It reports whether the chunk came in its turn. A chunk
// that came too early remains in its slot, and the workers get the slot again when its turn comes.
func (l *ledger) admit(h *wire.ChunkHeader, a flow.Filled) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over {
		return true, nil
	}
	if h.ID != l.next {
		if _, twice := l.parked[h.ID]; twice || h.ID < l.next {
			return false, fmt.Errorf("%w: chunk %d, %d was next", ErrProtocol, h.ID, l.next)
		}
		l.parked[h.ID] = a
		l.sink.receiver.Park(1)
		return false, nil
	}
	if err := l.book(h.Extents); err != nil {
		return false, err
	}
	l.sink.Session.Trace.Step(credit.Step{Kind: credit.StepBooked, Sink: true, Place: credit.Place{Slot: uint32(a.Slot), Generation: a.Generation}, Chunk: h.ID})
	l.next++
	if p, ok := l.parked[l.next]; ok {
		l.unparkLocked(l.next, p)
	}
	return true, nil
}

// unparkLocked passes a parked chunk to the workers again.
func (l *ledger) unparkLocked(id uint64, a flow.Filled) {
	delete(l.parked, id)
	l.sink.receiver.Park(-1)
	l.sink.receiver.Work.Put(a)
}

// end says that every entry has ended. Chunks that still wait for their turn go back: the chunk
// before them may never come, because the source sends nothing more of entries that have ended.
func (l *ledger) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over = true
	for id, a := range l.parked {
		l.unparkLocked(id, a)
	}
}

func (l *ledger) book(xs []wire.Extent) error {
	p, dear := &l.sink.Session.Terms, int64(0)
	read := int64(0)
	for i := range xs {
		if p.Has(wire.FlagDryRun) && xs[i].Brings() {
			return fmt.Errorf("%w: data in a dry run", ErrProtocol)
		}
		if read += min(comparedBytes(&xs[i]), p.PieceBytes+1); read > maxComparedBytes(p) {
			return fmt.Errorf("%w: digests of more than %d bytes in one chunk", ErrProtocol, maxComparedBytes(p))
		}
		dear += min(holeHashCost(p, &xs[i]), maxHashedHolePieces(p)+1) // the sum cannot overflow
	}
	if dear > maxHashedHolePieces(p) {
		return fmt.Errorf("%w: holes of %d pieces to be digested in one chunk", ErrProtocol, dear)
	}
	for i := range xs {
		e, err := l.sink.entryOfData(xs[i].Entry)
		if err != nil {
			return err
		}
		if e == nil {
			continue // given up before, and the source did not know yet
		}
		if err := l.bookExtent(e, &xs[i]); err != nil {
			return err
		}
	}
	return nil
}

// bookExtent checks that an extent is the next one of its file, and books its digest.
// At the file's end it compares the root with that of the given manifest.
func (l *ledger) bookExtent(e *sinkEntry, x *wire.Extent) error {
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
	if err := x.CheckGrown(&l.sink.Session.Terms); err != nil {
		return err
	}
	if x.Flags&(wire.ExtFailed|wire.ExtChanged|wire.ExtReject) != 0 {
		e.givenUp = true
	}
	if e.givenUp {
		return nil
	}
	if e.Stream && x.Flags&wire.ExtLast != 0 {
		if err := e.endStreamLocked(x, &l.sink.Session.Terms); err != nil {
			return err
		}
	}
	if err := checkPlace(e, x, &l.sink.Session.Terms); err != nil {
		return err
	}
	l.holes = l.holes[:0]
	if x.Flags&wire.ExtHole != 0 {
		l.holes = appendHole(l.holes, x, e.Size, &l.sink.Session.Terms)
	}
	if err := errors.Join(checkArrived(e, x), checkCompared(e, x, &l.sink.Session.Terms)); err != nil {
		return err
	}
	e.addExtent(x, l.holes, &l.sink.Session.Terms, l.sink.results.keepsPieces())
	e.booked += x.Length
	if x.Flags&wire.ExtLast == 0 {
		return nil
	}
	e.last, e.grown = true, x.Flags&wire.ExtGrown != 0
	e.Root = e.rootOf(x.Digest)
	if e.wanted && e.Root != e.expect {
		l.sink.failEntryLocked(e, Corrupt, fmt.Sprintf("%q: %v", e.Path, errNotAsManifest))
		return nil
	}
	return nil // the file is complete when the extent has been written
}

// checkPlace checks that an extent begins at the end of the previous one, is a whole piece or a run
// of pieces, and is flagged as the last one if and only if it ends the file.
func checkPlace(e *sinkEntry, x *wire.Extent, p *wire.Terms) error {
	pieceBytes := p.PieceBytes
	left := e.Size - x.Off
	good := x.Off == e.booked && left >= 0
	if x.Flags&wire.ExtArrived != 0 {
		good = good && x.Length > 0 // checkArrived checks the rest
	} else if x.Flags&wire.ExtHole != 0 {
		good = good && x.Length > 0 && x.Length <= maxHoleRun*pieceBytes && (x.Length == left || (x.Length < left && x.Length%pieceBytes == 0))
	} else {
		good = good && x.Length == min(pieceBytes, left)
	}
	if !good || (x.Flags&wire.ExtLast != 0) != (x.Length == left) {
		return fmt.Errorf("%w: %d bytes at %d of %q, which has %d and was at %d", ErrProtocol, x.Length, x.Off, e.Path, e.Size, e.booked)
	}
	return nil
}
