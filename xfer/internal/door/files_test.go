package door

import (
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// TestFilesAreShared: a key whose sessions open as many files as they can
// leaves enough for a session of another key, still gets sessions itself, and
// releases everything.
func TestFilesAreShared(t *testing.T) {
	q := queueOf(Config{Keys: keysOf(firstKey, secondKey, thirdKey), MaxSessions: 64, Files: 1000})
	var running []*Session
	greedy := request(q, firstKey, 0, 4).admitted(t, 4)
	for greedy.Take(1) {
	}
	if all := q.cfg.filesOfSessions(); q.files < all/3 || q.files > all*7/8 {
		t.Errorf("one session has %d files open, of %d", q.files, all)
	}
	for i := byte(1); ; i++ {
		w := request(q, firstKey, i, 4)
		if !w.decided() {
			w.refused(t, rdma.RejectResources, true)
			break
		}
		running = append(running, w.admitted(t, 4))
	}
	if len(running) < 2 {
		t.Errorf("beside it the key has %d sessions", len(running))
	}
	other := request(q, secondKey, 100, 4).admitted(t, 4)
	q.leave(other)
	for _, s := range append(running, greedy) {
		q.leave(s)
	}
	for len(q.sessions) > 0 { // the ones that waited
		for _, s := range q.sessions {
			q.leave(s)
		}
	}
	if q.files != 0 || len(q.held) != 0 {
		t.Errorf("with no session %d files are open, and keys have %v", q.files, q.held)
	}
}

// TestFilesAreLeftToAnotherKey: whatever the limit, and the number of
// connections of each session, a greedy key leaves enough for a session of
// another one.
func TestFilesAreLeftToAnotherKey(t *testing.T) {
	for files := 1; files < 3000; files += 7 {
		q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxSessions: 64, Files: files})
		for i := range byte(64) {
			w := requestOf(firstKey, i, 4)
			w.wish.QPs = uint8(1 + files%4)
			if q.enqueue(w); !w.decided() {
				break
			}
			for w.s.Take(1) {
			}
		}
		if w := request(q, secondKey, 100, 4); !w.decided() || w.s == nil {
			t.Fatalf("of %d files: %v", files, w.no)
		}
	}
}

// TestFilesWakeWaiters: files that a session releases admit a client that waits
// for them.
func TestFilesWakeWaiters(t *testing.T) {
	q := queueOf(Config{Keys: keysOf(firstKey), MaxSessions: 3, Files: 1000})
	first := request(q, firstKey, 0, 4).admitted(t, 4)
	took := 0
	for first.Take(1) {
		took++
	}
	request(q, firstKey, 1, 4).admitted(t, 4)
	q.addFilesLocked(first, q.cfg.filesOfSessions()-q.files) // more than any session takes
	w := request(q, firstKey, 2, 4)
	w.refused(t, rdma.RejectResources, true)
	first.Give(took)
	w.admitted(t, 4)
}

// TestFewFiles: if the limit is low, a session has fewer connections, and fewer
// clients wait, each of which has a connection; with almost no files left, a
// session still begins.
func TestFewFiles(t *testing.T) {
	q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxSessions: 64, Files: 300})
	for i, key := range []trust.Key{firstKey, secondKey} {
		w := requestOf(key, byte(200+i), 4)
		w.wish.QPs = wire.MaxQPs
		q.enqueue(w)
		if n := w.admitted(t, 4).Grant.QPs; (n == wire.MaxQPs) != (i == 0) {
			t.Errorf("session %d has %d queue pairs", i, n)
		}
	}
	for i := range byte(100) {
		request(q, firstKey, 2+i, 4)
	}
	if all, ofKey := q.cfg.mostWaiting(); all > 20 || len(q.waiting) != ofKey {
		t.Errorf("%d clients of one key wait, of %d, %d of all", len(q.waiting), ofKey, all)
	}
	request(queueOf(Config{Keys: keysOf(firstKey), Files: 1}), firstKey, 1, 4).admitted(t, 4)
}
