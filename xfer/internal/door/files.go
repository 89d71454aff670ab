package door

import (
	"fmt"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// The rest of this file shares the process's limit of open files (setrlimit(2))
// among sessions, by the same rule as memory. A session gets the minimum that
// it needs when it is admitted, and more as it opens more.

const (
	// doorFiles is the number of files that a server has open apart from its
	// sessions and waiting clients: at most 576 connections that have proved no
	// key, with one listener.
	doorFiles = 768
	// sessionFiles is the number of files, apart from its connections, that a
	// session may open without asking: the directories that it starts in,
	// temporary files, and the minimum of files and directories that it needs
	// to make progress. That is 12 files of 4 descriptors at a sink with the
	// default number of parallel transfers. With wire.MaxTransfers it is 24
	// files, which seldom need more than 2 each, and 18 of 2 at a source.
	sessionFiles = 72
	// allFiles is used for a process without a limit of open files.
	allFiles = 1 << 30
)

// mostWaiting returns how many clients may wait for room, in total and per key.
func (c *Config) mostWaiting() (all, ofKey int) {
	all = min(maxWaiting, max(c.Files/16, 4))
	return all, min(maxWaitingOfKey, all/4)
}

// filesOfSessions returns how many files all sessions together may have open.
func (c *Config) filesOfSessions() int {
	waiting, _ := c.mostWaiting()
	return max(c.Files-doorFiles-waiting, c.Files/2, 2*(sessionFiles+wire.MaxQPs))
}

// fitsFilesLocked reports whether a key may have n more files open. least means
// that these are the minimum for the only session of a key, which may take all
// that are left. While some key has no session, others leave enough for one.
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

// qpsWithinFilesLocked returns how many of the queue pairs that a session
// requested it can get, since each needs a descriptor, or the reason why it
// gets none.
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

// addFilesLocked accounts n more files to a session, or fewer if n is negative.
func (q *admissionQueue) addFilesLocked(s *Session, n int) {
	s.files += n
	q.files += n
	q.hold(s.peer.key, held{files: n}, 1)
}

// Take reserves n more files for the session. It reserves none and returns
// false if the session's key may not have that many, or if future sessions need
// them.
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

// Give releases n of the files that Take reserved.
func (s *Session) Give(n int) {
	q := s.queue
	q.mu.Lock()
	defer q.mu.Unlock()
	q.addFilesLocked(s, -n)
	if len(q.waiting) > 0 {
		q.wakeLocked()
	}
}
