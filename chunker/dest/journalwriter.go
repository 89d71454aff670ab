package dest

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

const (
	// maxAhead bounds what has arrived behind gaps, in all journals of a sink together. A
	// gap is what is still in a slot, or is to be sent again, and the source begins nothing
	// else while there is such. So a copy has no more ahead than the slots of both ends
	// hold: 2 x 256 of 512 extents at most, and mostly far less. Who has more leaves gaps on
	// purpose, and then only a later copy has to begin a file anew.
	maxAhead = 1 << 18
	// maxHeldBytes is how much of a journal is held back while it goes to the disk.
	maxHeldBytes = 1 << 20
	// leastAheadRoom is how many runs a journal's map may have room for that it does not
	// need.
	leastAheadRoom = 64
)

// journal is the journal of a file that is being written. Its Temp owns it.
type journal struct {
	fd   int
	seed uint64

	mu sync.Mutex
	// next is the first piece that has not arrived. What arrived behind it is in ahead,
	// by the first piece of each run. aheadRoom is how many runs were in that map at most.
	// inAll counts those of all journals of the sink, see maxAhead.
	next      uint64
	ahead     map[uint64]PieceRun
	aheadRoom int
	inAll     *atomic.Int64
	// marked is how many pieces are known to be on the disk, and markedBytes where the file
	// ended then. spared: the mark that was due was left out.
	marked      uint64
	markedBytes int64
	spared      bool
	rec         record // of pieces that have arrived and are not in the journal, see add
	buf         []byte
	// syncing: the journal is on its way to the disk, and what is written meanwhile is held.
	syncing bool
	held    []byte
	sync    func(fd int) error // fdatasync(2)
	// wrote is when the journal was written last, and pause the longest time between two
	// such writes.
	wrote time.Time
	pause time.Duration
	// broken says that nothing more is written, because that failed or is of no use. What
	// is in the journal still holds.
	broken bool
}

// openJournal makes a journal at fd, of which the caller has written the header. The file
// has the pieces before next, up to writtenBytes.
func (s *Sink) openJournal(fd int, seed, next uint64, writtenBytes int64) *journal {
	return &journal{fd: fd, seed: seed, next: next, marked: next, markedBytes: writtenBytes, ahead: make(map[uint64]PieceRun), inAll: &s.ahead, sync: unix.Fdatasync}
}

// write appends a record, after what add has held back. The caller holds mu, where others
// know the journal.
func (j *journal) write(r *record) {
	j.writeRuns()
	j.writeRecord(r)
}

func (j *journal) writeRuns() {
	if len(j.rec.runs) > 0 {
		j.writeRecord(&j.rec)
		j.rec.runs = j.rec.runs[:0]
	}
}

func (j *journal) writeRecord(r *record) {
	j.buf = r.append(j.buf[:0], j.seed)
	if j.syncing && len(j.held) < maxHeldBytes {
		j.held = append(j.held, j.buf...)
		return
	}
	j.append(j.held)
	j.held = nil
	j.append(j.buf)
}

// append appends bytes to the file.
func (j *journal) append(b []byte) {
	if len(b) > 0 {
		now := time.Now()
		if !j.wrote.IsZero() {
			j.pause = max(j.pause, now.Sub(j.wrote))
		}
		j.wrote = now
	}
	for len(b) > 0 && !j.broken {
		n, err := unix.Write(j.fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil || n == 0 {
			j.failLocked()
			return
		}
		b = b[n:]
	}
}

// boot notes at which boot the machine is, and how many pieces are on the disk by now.
func (j *journal) boot(id [bootIDBytes]byte) {
	var d manifest.Digest
	copy(d[:], id[:])
	j.write(&record{kind: recordBoot, first: j.next, runs: []PieceRun{{Digest: d}}})
}

// add takes a run of pieces that have arrived, in any order. A hole goes into the journal with
// the next piece that was written, or with a mark: a source can send any number of holes without
// any data. After a kill before that, only the hole is sent again.
func (j *journal) add(first uint64, run PieceRun) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if first < j.next || run.Pieces == 0 || j.broken {
		return
	}
	if first != j.next {
		j.addAhead(first, run)
		return
	}
	for more := true; more; run, more = j.takeAhead(j.next) {
		j.push(run)
	}
	if last := len(j.rec.runs) - 1; !j.rec.runs[last].Hole {
		j.writeRuns()
	}
	j.shrinkAhead()
}

// push appends the run that begins with the piece next to the record of what has arrived.
func (j *journal) push(run PieceRun) {
	last := len(j.rec.runs) - 1
	switch {
	case last >= 0 && j.rec.runs[last].Digest == run.Digest:
		j.rec.runs[last].Pieces += run.Pieces
		j.rec.runs[last].Hole = run.Hole
	case last+1 == maxRecordRuns:
		j.writeRuns()
		fallthrough
	default:
		if len(j.rec.runs) == 0 {
			j.rec.kind, j.rec.first = recordPieces, j.next
		}
		j.rec.runs = append(j.rec.runs, run)
	}
	j.next += run.Pieces
}

// addAhead keeps a run that arrived behind a gap, or ends the journal.
func (j *journal) addAhead(first uint64, run PieceRun) {
	if _, is := j.ahead[first]; !is && j.inAll.Add(1) > maxAhead {
		j.inAll.Add(-1)
		j.failLocked()
		return
	}
	j.ahead[first] = run
	j.aheadRoom = max(j.aheadRoom, len(j.ahead))
}

// takeAhead takes the run that begins with the piece first off what arrived ahead.
func (j *journal) takeAhead(first uint64) (run PieceRun, is bool) {
	if run, is = j.ahead[first]; is {
		delete(j.ahead, first)
		j.inAll.Add(-1)
	}
	return run, is
}

// shrinkAhead makes the map anew where most of its room is free: a map keeps the memory of
// all that was in it at once.
func (j *journal) shrinkAhead() {
	if j.aheadRoom <= max(leastAheadRoom, 2*len(j.ahead)) {
		return
	}
	ahead := make(map[uint64]PieceRun, len(j.ahead))
	maps.Copy(ahead, j.ahead)
	j.ahead, j.aheadRoom = ahead, len(ahead)
}

// fail ends a journal: nothing of what arrives from now on counts.
func (j *journal) fail() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failLocked()
}

func (j *journal) failLocked() {
	j.inAll.Add(-int64(len(j.ahead)))
	j.broken, j.ahead, j.aheadRoom = true, nil, 0
}

// closeFile closes the journal of a file that is complete. What is in it counts.
func (j *journal) closeFile() {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fd >= 0 {
		j.writeRuns()
		fsys.CloseQuietly(j.fd)
	}
	j.fd = -1
	j.failLocked()
}

// unmarked returns how many pieces have arrived, and whether some of them are not known
// to be on the disk.
func (j *journal) unmarked() (next uint64, some bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next, j.next > j.marked && !j.broken
}

// spares reports whether a mark is left out, because the rest of the file is a quarter or
// less of what came since the last mark: so the rest is soon there. The next mark is not
// left out: the rest may not come.
func (j *journal) spares(writtenBytes, restBytes int64) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.spared = !j.spared && restBytes <= (writtenBytes-j.markedBytes)/4
	return j.spared
}

// restate repeats the last mark with the state that the file has now, because this copy has
// changed more than its content, as its mode.
func (j *journal) restate(now markState) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.marked > 0 && !j.broken {
		now.pause = j.pause
		j.write(now.markRecord(j.marked))
	}
}

// mark notes that the pieces before next are on the disk, of a file that was written up to
// writtenBytes and has the state now. The caller keeps the file from being closed.
func (j *journal) mark(next uint64, writtenBytes int64, now markState) {
	j.mu.Lock()
	if !j.broken {
		now.pause = j.pause
		j.write(now.markRecord(next))
		j.marked, j.markedBytes = next, writtenBytes
	}
	fd := j.fd
	j.syncing = true
	j.mu.Unlock() // pieces that arrive do not wait for the disk: write(2) would, in XFS and ext4
	// Where this fails the mark may be lost, and the next copy sends more again.
	_ = fsys.Uninterrupted(func() error { return j.sync(fd) })
	j.mu.Lock()
	defer j.mu.Unlock()
	j.syncing = false
	j.append(j.held)
	j.held = nil
}

// arrived reports whether a later copy could go on from this journal.
func (j *journal) arrived() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.next > 0
}
