package dest

import (
	"bufio"
	"errors"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// defaultLockWait is how long Resume waits for the copy that was cut off to let go of its
// files: a server may still be busy with the end of that copy. All files of a Sink
// together wait no longer, because the other copy may well be under way.
const (
	defaultLockWait = 6 * time.Second
	lockPause       = 20 * time.Millisecond
)

// Resume returns the file that an earlier copy was cut off in, and what has arrived of it, or nil
// where there is none to go on with. Writes then go behind what has arrived. Resume reads back
// from the disk what the earlier copy had not yet brought there, and blocks for that; see Watch.
// It reads everything back with Recheck, or if the file may have been changed since (markState).
// What is left of another file of that name is removed. An error says why there is none. One
// goroutine may call it.
func (s *Sink) Resume(e *manifest.Entry, a *Attributes, p *Partial) (*Temp, *Arrived, error) {
	dir, leaf, err := s.parentOf("create", e.Path)
	if err != nil {
		return nil, nil, nil // Create meets the same error
	}
	defer dir.release()
	if dir.fresh {
		return nil, nil, errStale
	}
	partials := s.openPartials(dir, false)
	t, arrived, err := s.resumeIn(partials, e, a, p)
	stale := errors.Is(err, errStale)
	if partials != nil && (stale || err == unix.ENOENT) {
		t, arrived, err = s.resumeIn(nil, e, a, p) // an earlier copy may have left it there
		stale = stale || errors.Is(err, errStale)
	}
	if stale { // but for what is gone on with, which is locked
		s.dropPartialsOf(dir, leaf)
	}
	return t, arrived, err
}

// resumeIn is Resume for a partial file in the directory partials, of which it takes over
// the reference, or with nil beside its target.
func (s *Sink) resumeIn(partials *dirHandle, e *manifest.Entry, a *Attributes, p *Partial) (*Temp, *Arrived, error) {
	t, err := s.newTemp(e, a)
	if err != nil {
		partials.release()
		return nil, nil, nil
	}
	t.partials, t.away = partials, partials != nil
	r := resumption{temp: t, partial: p, journalFD: -1, at: journalHeader}
	t.wantsJournal = true
	err = r.open()
	if err == nil {
		err = r.load()
	}
	if err == nil {
		err = r.begin()
	}
	if err != nil {
		r.giveUp()
		t.leaveDirs()
		return nil, nil, err
	}
	if err := t.create(e.Mode); err != nil {
		// Create meets the same error. The file stays for a copy that does not.
		_ = t.Keep()
		return nil, nil, nil
	}
	return t, &r.arrived, nil
}

// errStale says that nothing can be gone on with, now or later.
var errStale = errors.New("nothing to go on with")

// resumption is a Resume under way.
type resumption struct {
	temp      *Temp
	partial   *Partial
	journalFD int
	seed      uint64
	inode     manifest.Inode // of the file, as the journal has it
	// found is the state of the file before Resume changed it, lastNs when the journal was
	// written last, and marked what the last mark says.
	found, marked markState
	lastNs        int64

	// claimed is how many pieces count, if those from trusted on are what their digests
	// say.
	trusted, claimed uint64
	arrived          Arrived
	// at is where the journal ends by what was taken of it. rest are runs behind that
	// which were taken, too, from the piece restFirst on.
	at        int64
	restFirst uint64
	rest      []PieceRun
}

// giveUp closes what a Resume that came to nothing has opened.
func (r *resumption) giveUp() {
	if r.temp.fd >= 0 {
		fsys.CloseQuietly(r.temp.fd)
	}
	if r.journalFD >= 0 {
		fsys.CloseQuietly(r.journalFD)
	}
}

// open opens the journal and the partial file, and locks the latter. errStale: they are
// not this user's, or of another file. EWOULDBLOCK: another copy may be using them.
func (r *resumption) open() error {
	t := r.temp
	dirfd, name := journalAt(t.dir, t.partials, t.leaf)
	fd, head, seed, err := openJournalFile(dirfd, name, unix.O_RDWR, true)
	if err != nil {
		return err
	}
	r.journalFD, r.seed, r.inode = fd, seed, head.inode
	if t.sink.hosts.in(dirfd).mayUsePartial(fd, &head, seed) {
		return unix.EWOULDBLOCK
	}
	if head.size != t.size || !r.partial.isOf(&head) {
		return errStale
	}
	if err := r.lock(head.temp); err != nil {
		return err
	}
	t.name, t.ino = head.temp, t.made.Ino
	if t.made.Ino != head.inode.Ino || t.made.Nlink != 1 {
		return errStale
	}
	var journal unix.Stat_t
	if err := fsys.Fstat(fd, &journal); err != nil {
		return err
	}
	r.found, r.lastNs = stateOf(t.fd), fsys.Nanoseconds(journal.Mtim)
	return r.takeBack(&head)
}

// lock opens and locks the partial file, and waits for a copy that is using it.
func (r *resumption) lock(name string) error {
	t, tries := r.temp, 0
	for {
		fd, ok := lockUnused(t.at().FD, name, true)
		if !ok {
			if err := fsys.Fstatat(t.at().FD, name, &t.made, unix.AT_SYMLINK_NOFOLLOW); err == unix.ENOENT {
				return errStale
			}
			if err := t.sink.watch.step(); err != nil || t.sink.lockWait <= 0 {
				return errors.Join(err, unix.EWOULDBLOCK)
			}
			time.Sleep(lockPause)
			t.sink.lockWait -= lockPause
			continue
		}
		mode, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
		if err == nil && mode&unix.O_ACCMODE == unix.O_RDWR {
			t.fd = fd
			return fsys.Fstat(fd, &t.made)
		}
		// It was cut off when it had its final mode already.
		err = fsys.Fchmod(fd, 0o600)
		fsys.CloseQuietly(fd)
		if err != nil || tries == 1 {
			return errStale
		}
		tries++
	}
}

// takeBack gives a file the owner, the group, the mode and the attributes that it was
// made with. It may have been cut off when it had got its final ones.
func (r *resumption) takeBack(h *journalHead) error {
	t := r.temp
	if t.made.Uid != h.uid || t.made.Gid != h.gid {
		if err := fsys.Uninterrupted(func() error { return unix.Fchown(t.fd, int(h.uid), int(h.gid)) }); err != nil {
			return errStale
		}
	}
	// The same mode set again would change ctime, and cost the next copy a whole reading if
	// this one is killed in the middle of its own.
	if t.made.Mode&0o7777 != 0o600 && fsys.Fchmod(t.fd, 0o600) != nil {
		return errStale
	}
	if t.sink.dropXattrs(fsys.XattrsOfFD(t.fd), nil, func(_ string, err error) error { return err }) != nil || fsys.Fstat(t.fd, &t.made) != nil {
		return errStale
	}
	return nil
}

func (r *resumption) records() *journalReader {
	return &journalReader{from: bufio.NewReaderSize(fsys.FDReader(r.journalFD).From(journalHeader), 64<<10), seed: r.seed, at: journalHeader}
}

// load reads the journal and finds out what counts. errStale: nothing does.
func (r *resumption) load() error {
	if err := r.survey(); err != nil {
		return err
	}
	check := r.newChecker()
	defer check.close()
	r.arrived.Tree = manifest.NewTree(r.partial.Hash)
	for j := r.records(); r.arrived.Pieces < r.claimed; {
		rec, err := j.next()
		if err != nil {
			return err // it could be read a moment ago
		}
		if rec.kind == recordPieces && !r.take(&rec, check) {
			break
		}
		r.at = j.at
	}
	if check.err != nil {
		return check.err
	}
	r.arrived.Bytes = r.partial.bytesOf(r.arrived.Pieces, r.temp.size)
	if r.arrived.Pieces == 0 {
		return errStale
	}
	return nil
}

// survey reads how many pieces the journal has, and how many of them are on the disk
// for sure. After a reboot, only those count. errStale: the journal makes no sense.
func (r *resumption) survey() error {
	total := manifest.PieceCount(r.temp.size, r.partial.PieceBytes)
	sameBoot := false
	for j := r.records(); ; {
		rec, err := j.next()
		if err == errJournal || err == io.EOF || err == io.ErrUnexpectedEOF {
			break // the journal was cut off here, as its file was
		}
		if err != nil {
			return err
		}
		switch rec.kind {
		case recordPieces:
			if rec.first != r.claimed {
				return errStale
			}
			for _, run := range rec.runs {
				if run.Pieces == 0 || run.Pieces > total-r.claimed {
					return errStale
				}
				r.claimed += run.Pieces
			}
		case recordMark, recordBoot:
			if rec.first > r.claimed {
				return errStale
			}
			if r.trusted = max(r.trusted, rec.first); rec.first == r.trusted || rec.kind == recordBoot {
				r.marked = rec.markState()
			}
			if rec.kind == recordBoot {
				id := r.temp.sink.hosts.boot
				sameBoot = id != [bootIDBytes]byte{} && rec.bootID() == id
			}
		default:
			return errStale
		}
	}
	if !sameBoot {
		// A device may have another number by now.
		r.claimed = r.trusted
	} else if r.temp.made.Dev != r.inode.Dev {
		return errStale
	}
	t := r.temp
	if r.partial.Recheck || !r.marked.proves(r.found, t.made.Size, r.partial.bytesOf(r.trusted, t.size), r.lastNs) {
		r.trusted = 0
	}
	if t.made.Size < t.size {
		r.claimed = min(r.claimed, uint64(t.made.Size/r.partial.PieceBytes)) // the rest is not in the file
	}
	if r.claimed == 0 {
		return errStale
	}
	return nil
}

// take takes the runs of a record. It reports whether all pieces of the record count.
func (r *resumption) take(rec *record, check *pieceChecker) bool {
	first := r.arrived.Pieces
	r.rest = r.rest[:0]
	for _, run := range rec.runs {
		good := min(run.Pieces, r.claimed-r.arrived.Pieces)
		if r.arrived.Pieces+good > r.trusted {
			sure := min(good, max(r.trusted, r.arrived.Pieces)-r.arrived.Pieces)
			good = sure + check.matching(r.arrived.Pieces+sure, PieceRun{Digest: run.Digest, Pieces: good - sure})
		}
		r.arrived.Tree.PushRun(run.Digest, good)
		r.arrived.Pieces += good
		if good > 0 {
			r.rest = append(r.rest, PieceRun{Digest: run.Digest, Pieces: good})
		}
		if good < run.Pieces {
			r.restFirst = first
			return false
		}
	}
	r.rest = r.rest[:0]
	return true
}

// stillOurs looks once more whether another host has gone on with the file, because load
// may have taken long. It goes by the journal: open has changed the file. The journal is
// opened anew: only that shows what others wrote (close-to-open consistency, nfs(5)).
func (r *resumption) stillOurs() error {
	dirfd, name := journalAt(r.temp.dir, r.temp.partials, r.temp.leaf)
	in := r.temp.sink.hosts.in(dirfd)
	if !in.blind() {
		return nil
	}
	fd, _, seed, err := openJournalFile(dirfd, name, unix.O_RDONLY, true)
	if err != nil {
		return err
	}
	defer fsys.CloseQuietly(fd)
	if in.mayUseFD(fd) && !in.wroteLast(fd, seed) {
		return unix.EWOULDBLOCK
	}
	return nil
}

// begin cuts the journal and then the file behind what has arrived, so that both can be
// gone on with. In this order: a journal must never mark what its file does not have.
func (r *resumption) begin() error {
	if err := r.stillOurs(); err != nil {
		return err
	}
	t := r.temp
	cut := func(fd int, n int64) error { return fsys.Uninterrupted(func() error { return unix.Ftruncate(fd, n) }) }
	sync := func(fd int) error { return fsys.Uninterrupted(func() error { return unix.Fdatasync(fd) }) }
	_, err := unix.Seek(r.journalFD, r.at, unix.SEEK_SET)
	if err == nil {
		err = cut(r.journalFD, r.at)
	}
	j := t.sink.openJournal(r.journalFD, r.seed, r.arrived.Pieces, r.arrived.Bytes)
	if err == nil && len(r.rest) > 0 {
		j.write(&record{kind: recordPieces, first: r.restFirst, runs: r.rest})
	}
	if err == nil {
		err = sync(j.fd)
	}
	if err == nil {
		err = cut(t.fd, r.arrived.Bytes)
	}
	if err == nil {
		err = t.sink.calls.fsync(t.fd)
	}
	if err == nil {
		err = fsys.Fstat(t.fd, &t.made)
	}
	if err == nil {
		j.boot(t.sink.hosts.boot)
		j.restate(stateOf(t.fd))
		err = sync(j.fd)
	}
	if err == nil && j.broken {
		err = unix.ENOSPC
	}
	if err != nil {
		return err
	}
	t.journal, t.resumed, t.private = j, true, true
	t.written.Store(r.arrived.Bytes)
	r.arrived.DiskBytes = t.made.Blocks * 512
	return nil
}
