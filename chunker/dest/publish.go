package dest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/parallel"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// Publish gives finished files their final names and returns one result for each. A
// file counts as published, with a nil error, once its data and its name are on the
// disk (unless NoFsync): its data is synced, then it is renamed, then its directory is
// synced. syncFiles and syncNames say by which calls. Errors that the file system
// reports only when a file is closed are asked for before the rename, also with
// NoFsync. A file that could not be published is discarded. If only the last step
// failed, the file has its final name all the same.
// Publish blocks for the disk; a sink runs one call at a time. ErrKept: see KeepIf and
// KeepExisting. Where Watch has it stop while it waits for descriptors or reads back, the
// error of the files that are not done is context.Canceled, and they end as by Keep.
func (s *Sink) Publish(temps []*Temp) []error {
	s.syncing.Lock()
	defer s.syncing.Unlock()
	s.keepStageYoung()
	errs := make([]error, len(temps))
	for i, t := range temps {
		t.mu.Lock()
		if t.state != tempFinished {
			errs[i] = &fileset.OpError{Op: "publish", Path: t.place, Err: errors.New("it is not finished")}
		} else if lost := t.lost.Load(); lost != nil {
			errs[i] = *lost
		}
	}
	s.timed(func() { s.syncFiles(temps, errs) })
	parallel.Each(len(temps), func(i int) {
		if errs[i] == nil {
			errs[i] = cmp.Or(temps[i].keepTime(), temps[i].readBack())
		}
	})
	renamed := make([]bool, len(temps))
	eachTemp(temps, func(t *Temp) bool { return s.callsWait(t) && t.isNamedAlone() }, func(i int) {
		if errs[i] == nil {
			errs[i] = temps[i].rename()
			renamed[i] = errs[i] == nil
		}
	})
	if !s.opt.NoFsync {
		s.timed(func() { s.syncNames(temps, errs) })
	}
	eachTemp(temps, s.callsWait, func(i int) {
		t := temps[i]
		switch {
		case renamed[i]:
			t.dropJournal()
			t.dropOther()
			errs[i] = errors.Join(errs[i], t.close())
		case errors.Is(errs[i], context.Canceled):
			errs[i] = errors.Join(errs[i], t.keep())
		case errs[i] != nil:
			errs[i] = errors.Join(errs[i], t.discard())
		}
		t.mu.Unlock()
	})
	return errs
}

// eachTemp calls do with the number of each file: in order, but for those for which aside is
// true. These come last, several at once.
func eachTemp(temps []*Temp, aside func(*Temp) bool, do func(i int)) {
	var later []int
	for i, t := range temps {
		if aside(t) {
			later = append(later, i)
		} else {
			do(i)
		}
	}
	parallel.Each(len(later), func(k int) { do(later[k]) })
}

// callsWait reports whether each call for a file may wait for a server, or for a process by
// way of FUSE, as on all file systems but those of the kernel's own disks.
func (s *Sink) callsWait(t *Temp) bool { return !s.deviceOf(t.dir).tells }

// isNamedAlone reports whether no other file's name can be taken for this one's, so that the
// order in which files get their names makes no difference.
func (t *Temp) isNamedAlone() bool {
	return t.origin.standing == nil && !t.origin.inPlace && !t.sink.mayFold(t.dir)
}

// timed runs a step that brings something to the disk, and tells how long it took.
func (s *Sink) timed(step func()) {
	from := time.Now()
	step()
	if s.opt.Synced != nil && !s.opt.NoFsync {
		s.opt.Synced(time.Since(from))
	}
}

func (t *Temp) rename() error {
	switch {
	case t.origin.standing != nil:
		return t.stay()
	case t.origin.inPlace:
		return t.finishInPlace()
	}
	if t.stays != nil {
		var st unix.Stat_t
		err := t.sink.find(t.dir, t.leaf, &st)
		if err == nil && t.stays(standingOf(&st)) {
			return fileset.KindErr("publish", t.place, ErrKept)
		}
		if err != nil && err != unix.ENOENT {
			return fileset.OpErr("publish", t.place, err)
		}
	}
	return fileset.OpErr("publish", t.place, t.takeName())
}

// syncFiles brings the files' data to the disk: a single file by fsync(2), a batch by
// one syncfs(2) for each file system where that is enough, else by an fsync for each
// file. A new file's data that a syncfs left in the disk's cache would be flushed with its
// name. A file in place gets none.
func (s *Sink) syncFiles(temps []*Temp, errs []error) {
	synced := make(map[*device]bool)
	var alone []int
	for i, t := range temps {
		if errs[i] != nil {
			continue
		}
		d := s.deviceOf(t.dir)
		if t.origin.inPlace && d.leavesOverwritten && !s.opt.NoFsync {
			alone = append(alone, i)
			continue
		}
		done, known := synced[d]
		if !known {
			done = d.tells && s.opt.NoFsync || len(temps) > 1 && !d.realtime && s.syncDevice(d)
			synced[d] = done
		}
		if !done {
			alone = append(alone, i)
		}
	}
	for tries := 0; len(alone) > 0; tries++ {
		parallel.Each(len(alone), func(i int) {
			at := alone[i]
			errs[at] = s.syncFile(temps[at])
		})
		alone = slices.DeleteFunc(alone, func(at int) bool { return !fsys.LacksDescriptors(errs[at]) })
		if len(alone) == 0 || tries == descriptorTries {
			return
		}
		if err := s.awaitDescriptors(); err != nil {
			for _, at := range alone {
				errs[at] = err
			}
			return
		}
	}
}

// The files of a batch are whole, so they are not given up where the process or the system
// has as many open files as it may for a moment: all of them together wait for two seconds.
const (
	descriptorTries = 100
	descriptorPause = 20 * time.Millisecond
)

// awaitDescriptors waits for others to close files. Nobody needs a lock of Publish for that.
// The error is context.Canceled where the work is to end.
func (s *Sink) awaitDescriptors() error {
	select {
	case <-s.watch.Stop:
		return context.Canceled
	case <-time.After(descriptorPause):
		return nil
	}
}

// syncFile brings one file's data to the disk. Its descriptor was opened before the
// first write, so the kernel reports every error in writing this file to it, even if
// another process got the report first (errseq_t, in the kernel's
// Documentation/core-api).
func (s *Sink) syncFile(t *Temp) error {
	if !s.deviceOf(t.dir).tells {
		if err := s.calls.flush(t.fd); err != nil {
			return fileset.OpErr("close", t.place, err)
		}
	}
	if s.opt.NoFsync {
		return nil
	}
	return fileset.OpErr("sync", t.place, s.calls.fsync(t.fd))
}

// syncNames brings the files' names to the disk, and the directories made on
// the way to them.
func (s *Sink) syncNames(temps []*Temp, errs []error) {
	dirs := make(map[*device][]*dirHandle)
	seen := make(map[*dirHandle]struct{})
	for i, t := range temps {
		if _, is := seen[t.dir]; errs[i] == nil && !is && t.origin.standing == nil && !t.origin.inPlace {
			seen[t.dir] = struct{}{}
			d := s.deviceOf(t.dir)
			dirs[d] = append(dirs[d], t.dir)
		}
	}
	for d, these := range dirs {
		lost := s.syncDirs(d, these)
		for i, t := range temps {
			if len(lost) > 0 && errs[i] == nil && s.deviceOf(t.dir) == d {
				errs[i] = fileset.OpErr("sync directory of", t.place, lost.onTheWayTo(t.dir.Path))
			}
		}
	}
}
