package xfer

import (
	"fmt"
	"sync"

	"gdrcp/manifest"
)

// ledger books at the sink what each chunk claims to hold, in order of chunk
// ids, so that every byte of every file is claimed exactly once and trees of
// digests fill from the left. Chunks that come out of turn wait here; how many
// can is bounded by the source's obligation to stay close to its oldest one.
type ledger struct {
	sink *sink
	mu   sync.Mutex
	next uint64
	wait map[uint64][]extent
	most int
}

func newLedger(k *sink) *ledger {
	return &ledger{sink: k, wait: make(map[uint64][]extent), most: (reorderSlots + 1) * k.params.slots}
}

// admit books a chunk that is no repair.
func (l *ledger) admit(h *chunkHeader) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.id != l.next {
		if _, twice := l.wait[h.id]; twice || h.id < l.next || h.id-l.next > uint64(l.most) {
			return fmt.Errorf("%w: chunk %d, %d was next", ErrProtocol, h.id, l.next)
		}
		l.wait[h.id] = append([]extent(nil), h.extents...)
		return nil
	}
	if err := l.book(h.extents); err != nil {
		return err
	}
	for {
		l.next++
		xs, ok := l.wait[l.next]
		if !ok {
			return nil
		}
		delete(l.wait, l.next)
		if err := l.book(xs); err != nil {
			return err
		}
	}
}

func (l *ledger) book(xs []extent) error {
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
	if e.over {
		return nil
	}
	if e.Type != manifest.File || e.last {
		return fmt.Errorf("%w: data for %q, which takes none", ErrProtocol, e.Path)
	}
	if x.flags&(extFailed|extChanged|extReject) != 0 {
		e.givenUp = true
	}
	if e.givenUp {
		return nil
	}
	if err := checkPlace(e, x, l.sink.params.pieceBytes); err != nil {
		return err
	}
	e.addExtent(x, &l.sink.params, l.sink.account.keepsPieces())
	e.booked += x.length
	if x.flags&extLast == 0 {
		return nil
	}
	e.last = true
	e.Root = e.rootOf(x.digest)
	if e.wanted && e.Root != e.expect {
		l.sink.failEntryLocked(e, Corrupt, fmt.Sprintf("%q: %v", e.Path, errNotAsManifest))
		return nil
	}
	return l.sink.completeLocked(e)
}

// checkPlace makes sure that an extent is where the last one ended, is a whole
// piece or a run of them, and is the last one exactly when the file ends.
func checkPlace(e *sinkEntry, x *extent, pieceBytes int64) error {
	left := e.Size - x.off
	good := x.off == e.booked && left >= 0
	if x.flags&extHole != 0 {
		good = good && x.length > 0 && (x.length == left || (x.length < left && x.length%pieceBytes == 0))
	} else {
		good = good && x.length == min(pieceBytes, left)
	}
	if !good || (x.flags&extLast != 0) != (x.length == left) {
		return fmt.Errorf("%w: %d bytes at %d of %q, which has %d and was at %d", ErrProtocol, x.length, x.off, e.Path, e.Size, e.booked)
	}
	return nil
}
