package xfer

import (
	"errors"
	"fmt"

	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// errNotVerified says that a piece does not match its digest.
var errNotVerified = errors.New("did not verify")

// judge counts the failures of a piece. why is nil for a good piece, and otherwise says why it is
// bad. again says that the source must send the piece again. A repair must be of a piece that was
// requested, and must have the digest that was first claimed.
func (w *lander) judge(e *sinkEntry, x *wire.Extent, why error, isRepair bool) (again bool, err error) {
	if why == nil && !isRepair {
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.over {
		return false, nil
	}
	r, known := e.repairs[x.Off]
	if isRepair != known {
		return false, fmt.Errorf("%w: byte %d of %q sent again unasked", ErrProtocol, x.Off, e.Path)
	}
	if !known {
		r = repairOf(x)
	} else if !r.isFor(x) {
		return false, fmt.Errorf("%w: %d bytes at %d of %q sent again, in another form than they are wanted", ErrProtocol, x.Length, x.Off, e.Path)
	}
	if isRepair && x.Digest != r.digest {
		w.sink.failEntryLocked(e, Changed, fmt.Sprintf("%q: %v", e.Path, errChangedFile))
		return false, nil
	}
	if why == nil {
		delete(e.repairs, x.Off)
		w.sink.wanted.Add(-1)
		return false, nil
	}
	w.sink.tally.AddRepairs(1)
	r.digest = x.Digest
	if errors.Is(why, errAllOpen) {
		if r.waits++; r.waits > flow.MaxWaits {
			w.sink.failEntryLocked(e, Failed, fmt.Sprintf("%q: %v", e.Path, why))
			return false, nil
		}
	} else if r.tries++; r.tries > flow.MaxResends {
		w.sink.failEntryLocked(e, Corrupt, fmt.Sprintf("%q: bytes %d to %d %v in %d tries", e.Path, x.Off, x.Off+x.Length, why, r.tries))
		return false, nil
	}
	if most := mostWanted(w.sink.Session); !known && w.sink.wanted.Add(1) > most {
		return false, fmt.Errorf("%w: more than %d pieces are to be sent again", ErrProtocol, most)
	}
	if e.repairs == nil {
		e.repairs = make(map[int64]repair)
	}
	e.repairs[x.Off] = r
	return true, nil
}

// mostWanted is how many requests for pieces a sink may have open. A source begins no other chunk
// while pieces wait to be sent again. So all such pieces are of chunks that are in the source's
// slots or in the sink's.
func mostWanted(s *flow.Session) int64 {
	return int64(flow.SourceSlots(s.Terms.Slots)+s.Terms.Slots) * wire.MaxExtents
}
