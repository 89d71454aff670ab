package door

import (
	"errors"
	"slices"
)

// What follows is how the keys of a server get along: none may have all that there
// is, who has least comes first, and who has more than others and does nothing with
// it makes room for them.

// held is what a key has: its sessions and their memory, and who waits with it.
type held struct {
	sessions, waiting int
	bytes             int64
}

// heldBy is what a key has. q.mu is held.
func (q *admissionQueue) heldBy(key string) held { return q.held[key] }

// hold adds to what a key has, or with sign -1 takes it off. q.mu is held.
func (q *admissionQueue) hold(key string, more held, sign int) {
	h := q.held[key]
	before := h.sessions
	h.sessions += sign * more.sessions
	if before == 0 && h.sessions > 0 {
		q.seated++
	} else if before > 0 && h.sessions == 0 {
		q.seated--
	}
	h.waiting += sign * more.waiting
	h.bytes += int64(sign) * more.bytes
	if h == (held{}) {
		delete(q.held, key) // keys come and go
		return
	}
	q.held[key] = h
}

// shareFactor bounds what a key may have beside others, as buffers that ports of a
// switch share are bounded (Choudhury and Hahne, Dynamic queue length thresholds
// for shared-memory packet switches, 1998): so many times what is left then. One
// key gets 7/8 of all, two get 7/15 each, and there is always something left for
// one more: of few places the last, while some key has none.
const shareFactor = 7

// sharesLocked reports whether a key has to leave something to others.
func (q *admissionQueue) sharesLocked() bool { return q.cfg.Keys != nil && q.cfg.Keys.Len() > 1 }

// fitsLocked reports whether a key may have n bytes more. Where it is the least of
// the only session of a key, all that is left will do.
func (q *admissionQueue) fitsLocked(key string, n int64, least bool) bool {
	left := q.cfg.MaxMemory - q.memory - n
	return left >= 0 && (least || !q.sharesLocked() || (q.held[key].bytes+n)/shareFactor <= left)
}

// takeSeatLocked says why a key may not have one more session, where that is so.
// behind: it is another key's turn.
func (q *admissionQueue) takeSeatLocked(key string, maxOfKey int, behind bool) *notAdmittedError {
	h := q.held[key]
	left := q.cfg.MaxSessions - q.load.Sessions - 1
	switch {
	case left < 0:
		no := busy("%s running, and it takes no more", sessionsText(q.load.Sessions, ""))
		no.scarce = true
		return no
	case maxOfKey > 0 && h.sessions >= maxOfKey:
		return busy("%s running, and it may have no more", sessionsText(h.sessions, " of key "+key))
	case q.sharesLocked() && ((h.sessions+1)/shareFactor > left || left == 0 && h.sessions > 0 && q.seated < q.cfg.Keys.Len()):
		return busy("%s running, and it leaves the rest to other keys", sessionsText(h.sessions, " of key "+key))
	case behind:
		return busy("%s running, and those of other keys come first, which have less", sessionsText(q.load.Sessions, ""))
	}
	return nil
}

// shareOf is how large a part of the server a key has: of its places or of its
// memory, whichever is more.
func (q *admissionQueue) shareOf(key string) float64 {
	h := q.held[key]
	return max(float64(h.sessions)/float64(q.cfg.MaxSessions), float64(h.bytes)/float64(q.cfg.MaxMemory))
}

// isBehindLocked reports whether somebody waits for room whose key has less.
func (q *admissionQueue) isBehindLocked(key string) bool {
	share := q.shareOf(key)
	return slices.ContainsFunc(q.waiting, func(w *waiter) bool { return w.no.scarce && q.shareOf(w.peer.key) < share })
}

// wakeLocked gives room to those who wait for it. The next is always of the key
// that has the smallest share, and of a key who came first. Who waits for what all
// sessions have holds up the keys that have more, or a large ring would wait for
// as long as small ones come; who waits for something of its own, as for another
// session of its key, holds up nobody.
func (q *admissionQueue) wakeLocked() {
	lines := q.linesLocked()
	decided := make(map[*waiter]bool)
	waits, waitsShare := false, 0.0 // the smallest share of who waits for what all have
	for len(lines) > 0 {
		next := 0
		for i, l := range lines {
			if l.share < lines[next].share {
				next = i
			}
		}
		l := lines[next]
		w := l.waiters[0]
		decided[w] = q.decideLocked(w, waits && l.share > waitsShare)
		if !decided[w] && w.no.scarce && !waits {
			waits, waitsShare = true, l.share
		}
		l.share = q.shareOf(w.peer.key)
		if l.waiters = l.waiters[1:]; len(l.waiters) == 0 {
			lines = slices.Delete(lines, next, next+1)
		}
	}
	for i := len(q.waiting) - 1; i >= 0; i-- {
		if decided[q.waiting[i]] {
			q.dropLocked(i)
		}
	}
}

// line is who waits with one key, the first one first.
type line struct {
	share   float64
	waiters []*waiter
}

// linesLocked are those of all keys, by who came first.
func (q *admissionQueue) linesLocked() (lines []*line) {
	of := make(map[string]*line)
	for _, w := range q.waiting {
		l := of[w.peer.key]
		if l == nil {
			l = &line{share: q.shareOf(w.peer.key)}
			of[w.peer.key], lines = l, append(lines, l)
		}
		l.waiters = append(l.waiters, w)
	}
	return lines
}

// makeWayLocked turns the last one away who waits with the key that most wait
// with, for one of a key with fewer.
func (q *admissionQueue) makeWayLocked(key string) bool {
	most, last := q.held[key].waiting+1, -1
	for i, w := range q.waiting {
		if n := q.held[w.peer.key].waiting; n > most || n == most && last >= 0 && w.peer.key == q.waiting[last].peer.key {
			most, last = n, i
		}
	}
	if last < 0 {
		return false
	}
	w := q.waiting[last]
	w.no = busy("%d clients wait with key %s, and others came", most, w.peer.key)
	q.dropLocked(last)
	close(w.done)
	return true
}

// ErrIdle ends a session that does not begin.
var ErrIdle = errors.New("it was granted a session and did not begin it, and other keys waited for the room")

// endIfIdle ends a session whose first queue pair has not come, if somebody waits
// for what it has whose key has less.
func (q *admissionQueue) endIfIdle(s *Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.entered && q.isBehindLocked(s.peer.key) {
		s.End(ErrIdle)
	}
}
