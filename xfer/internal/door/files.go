package door

import (
	"fmt"

	"gdrcp/rdma"
)

// The rest of this file shares out the files that the process may have open (setrlimit(2)), by the
// same rule as memory. A session gets what it cannot do without when it is admitted, and more as
// it opens more.

const (
	// doorFiles is what a server has open beside its sessions and the clients that wait: at most
	// 576 connections that have shown no key, with one listener.
	doorFiles = 768
	// sessionFiles is what a session has open beside its connections, without asking: the
	// directories that it begins in, temporary files, and the least files and directories that
	// it needs to get on.
	sessionFiles = 40
	// allFiles is of a process that may open any number of files.
	allFiles = 1 << 30
)

// mostWaiting is how many clients may wait for room, and of how many one key.
func (c *Config) mostWaiting() (all, ofKey int) {
	all = min(maxWaiting, max(c.Files/16, 4))
	return all, min(maxWaitingOfKey, all/4)
}

// filesOfSessions is how many files all sessions may have open together.
func (c *Config) filesOfSessions() int {
	waiting, _ := c.mostWaiting()
	return max(c.Files-doorFiles-waiting, c.Files*3/8, 2*(sessionFiles+1))
}

// fitsFilesLocked reports whether a key may have n files more open. least says that these are the
// fewest for the only session of a key: such a session may take all that are left. While some key
// has no session, others leave enough for one.
func (q *admissionQueue) fitsFilesLocked(key string, n int, least bool) bool {
	left, h := q.cfg.filesOfSessions()-q.files-n, q.held[key]
	if least || !q.sharesLocked() {
		return left >= 0
	}
	seated := q.seated
	if h.sessions == 0 {
		seated++
	}
	return (h.files+n)/shareFactor <= left && (left > sessionFiles || seated >= q.cfg.Keys.Len())
}

// qpsWithinFilesLocked returns how many queue pairs of those that a session asked for it can get,
// since each takes a descriptor, or says why it gets none.
func (q *admissionQueue) qpsWithinFilesLocked(key string, qps int) (int, *notAdmittedError) {
	for ; qps > 0; qps-- {
		if q.fitsFilesLocked(key, sessionFiles+qps, qps == 1 && q.heldBy(key).sessions == 0) {
			return qps, nil
		}
	}
	all := q.cfg.filesOfSessions()
	no := &notAdmittedError{
		code: rdma.RejectResources, passing: q.files > 0,
		why: fmt.Sprintf("the sessions of key %s have %d files open, and of the %d that all sessions may have open the %d that are left are for other keys (ulimit -n)", key, q.heldBy(key).files, all, all-q.files),
	}
	if q.files+sessionFiles+1 > all {
		no.scarce = true
		no.why = fmt.Sprintf("all sessions may have %d files open, and %d of them are left (ulimit -n)", all, all-q.files)
	}
	return 0, no
}

// addFilesLocked books n files for a session, or with a negative n returns them.
func (q *admissionQueue) addFilesLocked(s *Session, n int) {
	s.files += n
	q.files += n
	q.hold(s.peer.key, held{files: n}, 1)
}

// Take takes n files more for the session off those that all sessions may have open. It takes
// none and returns false if the session's key may not have so many, or if sessions that may come
// need them.
func (s *Session) Take(n int) bool {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	all := q.cfg.filesOfSessions()
	spare := min((q.cfg.MaxSessions-q.load.Sessions)*(sessionFiles+s.Grant.QPs), all/2)
	if q.files+n > all-spare || !q.fitsFilesLocked(s.peer.key, n, false) {
		return false
	}
	q.addFilesLocked(s, n)
	return true
}

// Give returns n of the files that Take took.
func (s *Session) Give(n int) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addFilesLocked(s, -n)
	if len(q.waiting) > 0 {
		q.wakeLocked()
	}
}
