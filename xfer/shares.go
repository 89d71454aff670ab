package xfer

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

// heldBy is what a key has. v.mu is held.
func (v *Server) heldBy(key string) held { return v.held[key] }

// hold adds to what a key has, or with sign -1 takes it off. v.mu is held.
func (v *Server) hold(key string, more held, sign int) {
	h := v.held[key]
	before := h.sessions
	h.sessions += sign * more.sessions
	if before == 0 && h.sessions > 0 {
		v.seated++
	} else if before > 0 && h.sessions == 0 {
		v.seated--
	}
	h.waiting += sign * more.waiting
	h.bytes += int64(sign) * more.bytes
	if h == (held{}) {
		delete(v.held, key) // keys come and go
		return
	}
	v.held[key] = h
}

// timesLeft bounds what a key may have beside others, as buffers that ports of a
// switch share are bounded (Choudhury and Hahne, Dynamic queue length thresholds
// for shared-memory packet switches, 1998): so many times what is left then. One
// key gets 7/8 of all, two get 7/15 each, and there is always something left for
// one more: of few places the last, while some key has none.
const timesLeft = 7

// sharesLocked reports whether a key has to leave something to others.
func (v *Server) sharesLocked() bool { return v.cfg.Keys != nil && v.cfg.Keys.Len() > 1 }

// fitsLocked reports whether a key may have n bytes more. Where it is the least of
// the only session of a key, all that is left will do.
func (v *Server) fitsLocked(key string, n int64, least bool) bool {
	left := v.cfg.MaxMemory - v.memory - n
	return left >= 0 && (least || !v.sharesLocked() || (v.held[key].bytes+n)/timesLeft <= left)
}

// takePlaceLocked says why a key may not have one more session, where that is so.
// behind: it is another key's turn.
func (v *Server) takeSeatLocked(key string, maxOfKey int, behind bool) *notAdmittedError {
	h := v.held[key]
	left := v.cfg.MaxSessions - v.load.Sessions - 1
	switch {
	case left < 0:
		no := busy("%s running, and it takes no more", sessionsText(v.load.Sessions, ""))
		no.scarce = true
		return no
	case maxOfKey > 0 && h.sessions >= maxOfKey:
		return busy("%s running, and it may have no more", sessionsText(h.sessions, " of key "+key))
	case v.sharesLocked() && ((h.sessions+1)/timesLeft > left || left == 0 && h.sessions > 0 && v.seated < v.cfg.Keys.Len()):
		return busy("%s running, and it leaves the rest to other keys", sessionsText(h.sessions, " of key "+key))
	case behind:
		return busy("%s running, and those of other keys come first, which have less", sessionsText(v.load.Sessions, ""))
	}
	return nil
}

// shareOf is how large a part of the server a key has: of its places or of its
// memory, whichever is more.
func (v *Server) shareOf(key string) float64 {
	h := v.held[key]
	return max(float64(h.sessions)/float64(v.cfg.MaxSessions), float64(h.bytes)/float64(v.cfg.MaxMemory))
}

// isBehindLocked reports whether somebody waits for room whose key has less.
func (v *Server) isBehindLocked(key string) bool {
	share := v.shareOf(key)
	return slices.ContainsFunc(v.queue, func(w *waiter) bool { return w.no.scarce && v.shareOf(w.key) < share })
}

// wakeLocked gives room to those who wait for it. The next is always of the key
// that has the smallest share, and of a key who came first. Who waits for what all
// sessions have holds up the keys that have more, or a large ring would wait for
// as long as small ones come; who waits for something of its own, as for another
// session of its key, holds up nobody.
func (v *Server) wakeLocked() {
	lines := v.linesLocked()
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
		decided[w] = v.decideLocked(w, waits && l.share > waitsShare)
		if !decided[w] && w.no.scarce && !waits {
			waits, waitsShare = true, l.share
		}
		l.share = v.shareOf(w.key)
		if l.waiters = l.waiters[1:]; len(l.waiters) == 0 {
			lines = slices.Delete(lines, next, next+1)
		}
	}
	for i := len(v.queue) - 1; i >= 0; i-- {
		if decided[v.queue[i]] {
			v.dropLocked(i)
		}
	}
}

// line is who waits with one key, the first one first.
type line struct {
	share   float64
	waiters []*waiter
}

// linesLocked are those of all keys, by who came first.
func (v *Server) linesLocked() (lines []*line) {
	of := make(map[string]*line)
	for _, w := range v.queue {
		l := of[w.key]
		if l == nil {
			l = &line{share: v.shareOf(w.key)}
			of[w.key], lines = l, append(lines, l)
		}
		l.waiters = append(l.waiters, w)
	}
	return lines
}

// makeWayLocked turns the last one away who waits with the key that most wait
// with, for one of a key with fewer.
func (v *Server) makeWayLocked(key string) bool {
	most, last := v.held[key].waiting+1, -1
	for i, w := range v.queue {
		if n := v.held[w.key].waiting; n > most || n == most && last >= 0 && w.key == v.queue[last].key {
			most, last = n, i
		}
	}
	if last < 0 {
		return false
	}
	w := v.queue[last]
	w.no = busy("%d clients wait with key %s, and others came", most, w.key)
	v.dropLocked(last)
	close(w.done)
	return true
}

// errIdle ends a session that does not begin.
var errIdle = errors.New("it was granted a session and did not begin it, and other keys waited for the room")

// endIfIdle ends a session whose first queue pair has not come, if somebody waits
// for what it has whose key has less.
func (v *Server) endIfIdle(h *serverSession) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !h.entered && v.isBehindLocked(h.key) {
		h.end(errIdle)
	}
}
