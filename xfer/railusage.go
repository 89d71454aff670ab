package xfer

import (
	"sync/atomic"
	"time"
)

// railUsage adds up the links that a session had on each rail.
type railUsage struct {
	rails []*railRecord
	// barren counts how often the last link was lost since a chunk came through any.
	// doneBytes is what had come through then.
	barren    int
	doneBytes int64
}

// barrenLosses is how often in a row the last link may be lost before a chunk came through.
const barrenLosses = 4

type railRecord struct {
	use   RailUse
	bytes atomic.Int64
	link  *railLink // the last one
	down  time.Time // since when the rail is down, or zero
	// hurried is when a link was last given up because it held up the copy.
	hurried time.Time
	// untold tells that the rail was lost, which nobody was told yet; or nil.
	untold func()
}

// holdUpRest is for how long a rail that was given up because it held up the copy is not
// given up for that again.
const holdUpRest = time.Minute

func (u *railUsage) of(l *railLink) *railRecord {
	for _, r := range u.rails {
		if r.use.Rail == l.name && r.use.Transport == l.transport {
			return r
		}
	}
	r := &railRecord{use: RailUse{Rail: l.name, Transport: l.transport}}
	u.rails = append(u.rails, r)
	return r
}

// joined notes that a rail carries a link.
func (u *railUsage) joined(l *railLink) {
	r := u.of(l)
	if !r.down.IsZero() {
		r.use.DownSeconds += time.Since(r.down).Seconds()
	}
	r.bytes.Add(l.doneBytes.Load())
	l.doneBytes, r.down, r.link = &r.bytes, time.Time{}, l
}

// lost notes that a rail has lost its link.
func (u *railUsage) lost(l *railLink, why error) {
	r := u.of(l)
	r.use.Faults++
	r.use.LastFault = why.Error()
	r.down = time.Now()
}

// mayHurry reports whether a rail may be given up because it holds up the copy, and takes
// it that it then is.
func (u *railUsage) mayHurry(l *railLink) bool {
	r := u.of(l)
	if !r.hurried.IsZero() && time.Since(r.hurried) < holdUpRest {
		return false
	}
	r.hurried = time.Now()
	return true
}

// countLastLoss counts that the last link was lost, and reports whether that was too often
// in a row. Rails that are lost at once, as where a switch is started anew, are one such
// loss.
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
func (u *railUsage) read() []RailUse {
	uses := make([]RailUse, 0, len(u.rails))
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
