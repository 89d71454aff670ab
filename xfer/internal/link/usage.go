package link

import (
	"gdrcp/xfer/internal/result"
	"sync/atomic"
	"time"
)

// railUsage adds up the links that a session had on each rail.
type railUsage struct {
	rails []*railRecord
	// barren counts how often the last link was lost since a chunk came through any.
	// DoneBytes is what had come through then.
	barren    int
	doneBytes int64
}

// BarrenLosses is how often in a row the last link may be lost before a chunk came through.
const BarrenLosses = 4

type railRecord struct {
	use   result.RailUse
	bytes atomic.Int64
	link  *Link     // the last one
	down  time.Time // since when the rail is down, or zero
	// Hurried is when a link was last given up because it held up the copy.
	Hurried time.Time
	// untold tells that the rail was lost, which nobody was told yet; or nil.
	untold func()
}

// HoldUpRest is for how long a rail that was given up because it held up the copy is not
// given up for that again.
const HoldUpRest = time.Minute

func (u *railUsage) Of(l *Link) *railRecord {
	for _, r := range u.rails {
		if r.use.Rail == l.name && r.use.Transport == l.Transport {
			return r
		}
	}
	r := &railRecord{use: result.RailUse{Rail: l.name, Transport: l.Transport}}
	u.rails = append(u.rails, r)
	return r
}

// joined notes that a rail carries a link.
func (u *railUsage) joined(l *Link) {
	r := u.Of(l)
	if !r.down.IsZero() {
		r.use.DownSeconds += time.Since(r.down).Seconds()
	}
	r.bytes.Add(l.DoneBytes.Load())
	l.DoneBytes, r.down, r.link = &r.bytes, time.Time{}, l
}

// lost notes that a rail has lost its link.
func (u *railUsage) lost(l *Link, why error) {
	r := u.Of(l)
	r.use.Faults++
	r.use.LastFault = why.Error()
	r.down = time.Now()
}

// mayHurry reports whether a rail may be given up because it holds up the copy, and takes
// it that it then is.
func (u *railUsage) mayHurry(l *Link) bool {
	r := u.Of(l)
	if !r.Hurried.IsZero() && time.Since(r.Hurried) < HoldUpRest {
		return false
	}
	r.Hurried = time.Now()
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
	return u.barren >= BarrenLosses
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
