package door

import (
	"errors"
	"slices"
)

// The rest of this file implements fairness between the keys of a server. No
// key may have all places or all memory. The key that has least is served
// first. A key that has more than others and does nothing with it makes room
// for them.

// held is what a key uses: its sessions, their memory and open files, and its
// waiting clients.
type held struct {
	sessions, waiting, files int
	bytes                    int64
}

// heldBy returns what a key uses. The caller holds q.mu.
func (q *admissionQueue) heldBy(key string) held { return q.held[key] }

// hold adds to what a key uses, or with sign -1 subtracts from it. The caller
// holds q.mu.
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
	h.files += sign * more.files
	h.bytes += int64(sign) * more.bytes
	if h == (held{}) {
		delete(q.held, key) // drop keys that use nothing
		return
	}
	q.held[key] = h
}

// shareFactor bounds what a key may use if there are others: shareFactor times
// what is then left. Switches share buffers between ports in this way
// (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory
// packet switches, 1998). One key gets 7/8 of all, two get 7/15 each, and
// something is always left for one more. If places are few, the last place is
// left free while some key has none.
const shareFactor = 7

// sharesLocked reports whether a key has to leave room for others.
func (q *admissionQueue) sharesLocked() bool { return q.cfg.Keys != nil && q.cfg.Keys.Len() > 1 }

// fitsLocked reports whether a key may have n more bytes. least means that this
// is the smallest ring for the only session of a key, which may take all that
// is left.
func (q *admissionQueue) fitsLocked(key string, n int64, least bool) bool {
	left := q.cfg.MaxMemory - q.memory - n
	return left >= 0 && (least || !q.sharesLocked() || (q.held[key].bytes+n)/shareFactor <= left)
}

// takeSeatLocked returns nil if a key may have one more session, and otherwise
// the reason why not. behind means that it is another key's turn.
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

// shareOf returns the fraction of the server that a key uses: of the places,
// the memory or the open files, whichever is largest.
func (q *admissionQueue) shareOf(key string) float64 {
	h := q.held[key]
	return max(float64(h.sessions)/float64(q.cfg.MaxSessions), float64(h.bytes)/float64(q.cfg.MaxMemory),
		float64(h.files)/float64(q.cfg.filesOfSessions()))
}

// isBehindLocked reports whether a client of a key that uses less waits for
// room.
func (q *admissionQueue) isBehindLocked(key string) bool {
	share := q.shareOf(key)
	return slices.ContainsFunc(q.waiting, func(w *waiter) bool { return w.no.scarce && q.shareOf(w.peer.key) < share })
}

// wakeLocked allocates room to waiting clients. The next client is always one
// of the key with the smallest share, and of that key the client that came
// first. A client that waits for a resource that all sessions share blocks the
// keys that use more; otherwise a large ring would wait for as long as small
// ones keep coming. A client that waits for a resource of its own key, for
// example for another session to end, blocks nobody.
func (q *admissionQueue) wakeLocked() {
	lines := q.linesLocked()
	decided := make(map[*waiter]bool)
	waits, waitsShare := false, 0.0 // the smallest share of a key that waits for a scarce resource
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

// line has the waiters of one key, in order of arrival.
type line struct {
	share   float64
	waiters []*waiter
}

// linesLocked returns the lines of all keys, in the order of their first waiters.
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

// makeWayLocked makes room in the queue for a client of key. It refuses the
// last waiter of the key that has the most waiters, if that key has more than
// key would have.
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

// ErrIdle ends a granted session that does not begin.
var ErrIdle = errors.New("it was granted a session and did not begin it, and other keys waited for the room")

// endIfIdle ends a session whose first queue pair does not exist yet, if a
// client of a key that uses less waits for its room.
func (q *admissionQueue) endIfIdle(s *Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !s.entered && q.isBehindLocked(s.peer.key) {
		s.End(ErrIdle)
	}
}
