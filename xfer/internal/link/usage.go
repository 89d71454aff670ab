package link

import (
	"sync/atomic"
	"time"

	"gdrcp/xfer/internal/result"
)

// railUsage adds up a session's links on each rail.
type railUsage struct {
	rails []*railRecord
	// barren counts consecutive losses of the last link without any chunk in between. doneBytes is
	// the payload that had arrived at the last of these losses.
	barren    int
	doneBytes int64
}

// barrenLosses is how often in a row the last link may be lost without any chunk in between.
const barrenLosses = 4

type railRecord struct {
	use   result.RailUse
	bytes atomic.Int64
	link  *Link     // the last one
	down  time.Time // start of the present outage, or zero
	// Hurried is when a link was last dropped because it held up the copy.
	hurried time.Time
	// untold reports the loss of the rail if that is not reported yet. Otherwise it is nil.
	untold func()
}

// holdUpRest is how long a rail that was dropped because it held up the copy is not dropped for
// that again.
const holdUpRest = time.Minute

func (u *railUsage) of(l *Link) *railRecord {
	for _, r := range u.rails {
		if r.use.Rail == l.name && r.use.Transport == l.Transport {
			return r
		}
	}
	r := &railRecord{use: result.RailUse{Rail: l.name, Transport: l.Transport}}
	u.rails = append(u.rails, r)
	return r
}

// joined records that a rail carries a link.
func (u *railUsage) joined(l *Link) {
	r := u.of(l)
	if !r.down.IsZero() {
		r.use.DownSeconds += time.Since(r.down).Seconds()
	}
	r.bytes.Add(l.DoneBytes.Load())
	l.DoneBytes, r.down, r.link = &r.bytes, time.Time{}, l
}

// lost records that a rail has lost its link.
func (u *railUsage) lost(l *Link, why error) {
	r := u.of(l)
	r.use.Faults++
	r.use.LastFault = why.Error()
	r.down = time.Now()
}

// mayHurry reports whether a rail may be dropped because it holds up the copy. If so, it assumes
// that the caller drops it.
func (u *railUsage) mayHurry(l *Link) bool {
	r := u.of(l)
	if !r.hurried.IsZero() && time.Since(r.hurried) < holdUpRest {
		return false
	}
	r.hurried = time.Now()
	return true
}

// countLastLoss counts a loss of the last link, and reports whether there were too many in a row.
// If several rails are lost together, as when a switch restarts, that is one loss.
func (u *railUsage) countLastLoss() (barren bool) {
	if done := u.doneSoFar(); done > u.doneBytes {
		u.barren, u.doneBytes = 0, done
	}
	u.barren++
	return u.barren >= barrenLosses
}

func (u *railUsage) doneSoFar() (bytes int64) {
	for _, r := range u.rails {
		bytes += r.bytes.Load()
	}
	return bytes
}

// read returns the use of every rail so far, in the order in which they joined.
func (u *railUsage) read() []result.RailUse {
	uses := make([]result.RailUse, 0, len(u.rails))
	for _, r := range u.rails {
		use := r.use
		use.Bytes = r.bytes.Load()
		use.Relaxed = r.link != nil && r.link.relaxed.Load()
		if !r.down.IsZero() {
			use.DownSeconds += time.Since(r.down).Seconds()
		}
		uses = append(uses, use)
	}
	return uses
}
