package dest

import (
	"context"
	"errors"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Partial says what has to be the same for a later copy to go on with a file.
type Partial struct {
	// Source stands for the file at the source: where the file there changes, so does
	// Source.
	Source     [16]byte
	Hash       manifest.Algorithm
	PieceBytes int64
	// Recheck reads and digests everything that has arrived again, also if the partial file
	// is as its journal says.
	Recheck bool
}

func (p *Partial) isOf(h *journalHead) bool {
	return p.Source == h.partial.Source && p.Hash == h.partial.Hash && p.PieceBytes == h.partial.PieceBytes
}

// Arrived is what an earlier copy brought of a file: its first pieces.
type Arrived struct {
	Pieces uint64
	Bytes  int64
	// Tree is the tree of their digests. The caller owns it.
	Tree *manifest.Tree
	// DiskBytes is how much of the disk they take.
	DiskBytes int64
}

// Watch is how a sink's owner follows and ends what may take long. The zero value does
// neither.
type Watch struct {
	// Stop, when closed, ends it. It may be nil.
	Stop <-chan struct{}
	// Step is called now and then while it goes on. It must not block. It may be nil.
	Step func()
}

// step reports progress. The error is context.Canceled where the work is to end.
func (w *Watch) step() error {
	select {
	case <-w.Stop:
		return context.Canceled
	default:
	}
	if w.Step != nil {
		w.Step()
	}
	return nil
}

// Watch sets how what takes long is followed. Call it only before Place.
func (s *Sink) Watch(w Watch) { s.watch = w }

// CreatePartial is Create for a file with which a later copy may go on: a journal beside
// the file says what has arrived (Verified). What an earlier copy left of another file of
// that name is removed. Where no journal can be made, or another copy is writing the
// file, the Temp is as Create makes it.
func (s *Sink) CreatePartial(e *manifest.Entry, a *Attributes, p *Partial) (*Temp, error) {
	t, err := s.newTemp(e, a)
	if err != nil {
		return nil, err
	}
	t.private, t.wantsJournal = true, true
	if err := t.create(e.Mode); err != nil {
		t.dir.release()
		return nil, fileset.OpErr("create", t.place, err)
	}
	if !t.unlocked && !t.nameless && t.inOrder == nil {
		t.putAway()
		t.journal = t.beginJournal(p)
	}
	return t, nil
}

// beginJournal makes a file's journal. It returns nil where that is not possible.
func (t *Temp) beginJournal(p *Partial) *journal {
	dirfd, name := journalAt(t.dir, t.partials, t.leaf)
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := fsys.Openat(dirfd, name, flags, 0o600)
	if err == unix.EEXIST {
		if old, head, _, err := openJournalFile(dirfd, name, unix.O_RDONLY, true); err == nil {
			fsys.CloseQuietly(old)
			if head.size == t.size && p.isOf(&head) {
				// It could not be gone on with, and perhaps another time can.
				return nil
			}
		}
		if !dropPartial(t.sink.hosts.in(dirfd), name) {
			return nil
		}
		fd, err = fsys.Openat(dirfd, name, flags, 0o600)
	}
	if err != nil {
		return nil
	}
	head := journalHead{temp: t.name, inode: fileset.InodeOf(&t.made), uid: t.made.Uid, gid: t.made.Gid, partial: *p, size: t.size}
	b := head.encode()
	_, seed, err := decodeJournalHead(b)
	if err == nil {
		_, err = unix.Write(fd, b)
	}
	j := t.sink.openJournal(fd, seed, 0, 0)
	j.boot(t.sink.hosts.boot)
	if err == nil && !j.broken {
		// Some file systems give every file the same owner or mode.
		var again int
		if again, _, _, err = openJournalFile(dirfd, name, unix.O_RDONLY, true); err == nil {
			fsys.CloseQuietly(again)
			return j
		}
	}
	_ = fsys.Unlinkat(dirfd, name)
	fsys.CloseQuietly(fd)
	return nil
}

// DropPartial removes what an earlier copy left of a file, unless a copy is using it.
func (s *Sink) DropPartial(e *manifest.Entry) {
	dir, leaf, err := s.parentOf("create", e.Path)
	if err != nil {
		return // Create meets the same error
	}
	defer dir.release()
	if !dir.fresh {
		s.dropPartialsOf(dir, leaf)
	}
}

// bytesOf is how many bytes the first pieces of a file hold.
func (p *Partial) bytesOf(pieces uint64, size int64) int64 {
	if pieces >= manifest.PieceCount(size, p.PieceBytes) {
		return size
	}
	return int64(pieces) * p.PieceBytes
}

// Verified notes that a run of pieces of the file, from the piece first on, was verified
// and written. Runs may come in any order, each piece once.
func (t *Temp) Verified(first uint64, run PieceRun) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if t.journal != nil && t.state == tempOpen {
		t.journal.add(first, run)
	}
}

// Mark brings to the disk what was verified so far, and then the journal that says so:
// what is marked counts even after a reboot. It blocks for the disk. An error says that
// the disk has lost something of the file, which cannot be published any more. A file of
// which little is left is spared, but never twice in a row: it is soon whole, and then it
// would have to wait for this, and for another sync behind it. One that is being published is
// passed over: that may take hours, as where it is read back, and other files wait for their marks.
func (t *Temp) Mark() error {
	t.sink.keepStageYoung()
	if !t.mu.TryRLock() {
		return nil
	}
	defer t.mu.RUnlock()
	if t.journal == nil || t.state != tempOpen || t.sink.opt.NoFsync || t.lost.Load() != nil {
		return nil
	}
	written := t.written.Load()
	next, some := t.journal.unmarked()
	if !some || t.journal.spares(written, t.size-written) {
		return nil
	}
	var err error
	t.sink.timed(func() { err = t.sink.syncFile(t) })
	switch {
	case fsys.LacksDescriptors(err):
		return nil // it could not be asked, and is at the next mark
	case err != nil:
		// The kernel tells it once for a descriptor, so Publish would not hear of it. Nor
		// would the next mark, and a later copy.
		t.journal.fail()
		t.dropJournal()
		return t.loses(err)
	}
	t.journal.mark(next, written, stateOf(t.fd))
	return nil
}

// loses notes an error of writing that is told once. It returns the error.
func (t *Temp) loses(err error) error {
	t.lost.CompareAndSwap(nil, &err)
	return err
}

// Keep ends a file that will not be finished. What has arrived of it stays for a later
// copy. A file of which nothing has arrived, or that has no journal, is removed.
func (t *Temp) Keep() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keep()
}

func (t *Temp) keep() error {
	if t.state == tempClosed {
		return nil
	}
	if t.journal == nil || !t.journal.arrived() || t.lost.Load() != nil {
		return t.discard()
	}
	err := fileset.OpErr("close", t.place, t.io.direct.Load().close())
	if err != nil && !t.sink.deviceOf(t.dir).tells {
		return errors.Join(err, t.discard()) // it may be about marked bytes, which nobody reads again
	}
	if t.io.reached > t.written.Load() {
		_ = unix.Ftruncate(t.fd, t.written.Load()) // the space ahead would be held in vain
	}
	_ = fsys.Fchmod(t.fd, 0o600) // it may have its final mode already
	t.journal.restate(stateOf(t.fd))
	return errors.Join(err, t.close())
}

// dropJournal removes the journal of a file that has its name, or is given up. What is
// left of a journal without its file harms nothing.
func (t *Temp) dropJournal() {
	if t.journal != nil {
		dirfd, name := journalAt(t.dir, t.partials, t.leaf)
		_ = fsys.Unlinkat(dirfd, name)
	}
}

// dropOther removes what an earlier copy left of a file that has its name now. This copy
// could not go on with it.
func (t *Temp) dropOther() {
	if t.journal == nil && !t.dir.fresh && (t.wantsJournal || t.dir.journals.Load()) {
		t.sink.dropPartialsOf(t.dir, t.leaf)
	}
}

// pieceChecker compares pieces of a partial file with their digests, those behind what is
// trusted, in the order of the journal.
type pieceChecker struct {
	resumption *resumption
	from       *diskReader  // nil until needed
	ahead      *digestAhead // likewise
	bad        bool         // a piece is not what its digest says
	err        error        // the file could not be read
}

func (r *resumption) newChecker() *pieceChecker { return &pieceChecker{resumption: r} }

func (c *pieceChecker) close() {
	if c.ahead != nil {
		c.ahead.close()
	}
	if c.from != nil {
		c.from.close()
	}
}

// begin begins to read the pieces that the journal has behind what is trusted.
func (c *pieceChecker) begin() {
	r := c.resumption
	if c.from, c.err = newDiskReader(r.temp.fd); c.err != nil {
		return
	}
	file := pieceFile{c.from, r.partial.Hash, r.partial.PieceBytes, r.temp.size}
	c.ahead = startDigests(file, r.temp.sink.places, func(add func(first, pieces uint64, hole bool) bool) {
		at := uint64(0)
		for j := r.records(); at < r.claimed; {
			rec, err := j.next()
			if err != nil {
				return // whoever reads it in step meets the same
			}
			for _, run := range rec.runs {
				if rec.kind != recordPieces || at >= r.claimed {
					break
				}
				from, end := max(at, r.trusted), min(at+run.Pieces, r.claimed)
				if from < end && !file.addRun(from, PieceRun{Digest: run.Digest, Pieces: end - from}, add) {
					return
				}
				at = end
			}
		}
	})
}

// addRun asks for the pieces of a run, from the piece first on.
func (f *pieceFile) addRun(first uint64, run PieceRun, add func(first, pieces uint64, hole bool) bool) bool {
	off := int64(first) * f.pieceBytes
	end := min(off+int64(run.Pieces)*f.pieceBytes, f.size)
	if run.Pieces > 1 && run.Digest == f.zeroPiece(first) && f.from.dataFrom(off, end) >= end {
		return add(first, run.Pieces, true) // reading it would take as long as if it were there
	}
	for n := range run.Pieces {
		if !add(first+n, 1, false) {
			return false
		}
	}
	return true
}

// matching returns how many pieces of a run, from the piece first on, are what their
// digest says.
func (c *pieceChecker) matching(first uint64, run PieceRun) (good uint64) {
	if c.ahead == nil && c.err == nil {
		c.begin()
	}
	for good < run.Pieces && !c.bad && c.err == nil {
		p := c.ahead.next()
		if c.err = c.resumption.temp.sink.watch.step(); c.err != nil {
			break
		}
		if p == nil || p.first != first+good {
			c.err = errJournal // it could be read a moment ago, and another time it may be
			break
		}
		if c.err = p.err; c.err == nil {
			if c.bad = p.digest != run.Digest; !c.bad {
				good += p.pieces
			}
		}
	}
	return good
}
