package xfer

import (
	"context"
	"fmt"
	"sync/atomic"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// room is how much space announced files still need on one file system.
type room struct {
	needed atomic.Int64 // bytes that are not yet counted as written
	// writing is the number of bytes that are being written: the disk may have them already.
	writing atomic.Int64
	warned  bool // the user was warned that it may be too little
}

// rooms are the file systems that files are expected on. A destination has more than one if others
// are mounted below it. Only the goroutine that receives entries uses it.
type rooms map[*dest.FileSystem]*room

// write records that bytes are about to be written, and, with a negative number, that they have
// been counted. It does nothing for a file that is not expected.
func (r *room) write(bytes int64) {
	if r != nil {
		r.writing.Add(bytes)
	}
}

// add does nothing for a file that is not expected.
func (r *room) add(bytes int64) {
	if r != nil {
		r.needed.Add(bytes)
	}
}

// expect accounts for the space that an announced file will need on its file system. The parent
// directories have been made.
func (k *sink) expect(e *sinkEntry) error {
	if k.out != nil || e.Type != manifest.File || e.problem != nil {
		return nil
	}
	fs := k.store.FileSystemOf(e.Path)
	r := k.intake.rooms[fs]
	if r == nil {
		if k.intake.rooms == nil {
			k.intake.rooms = make(rooms)
		}
		r = &room{}
		k.intake.rooms[fs] = r
	}
	e.room = r
	if r.needed.Add(e.AllocBytes-min(e.stored, e.AllocBytes)) < 0 {
		return fmt.Errorf("%w %v: the announced sizes overflow", fileset.ErrNoSpace, fs)
	}
	return nil
}

// notNeeded subtracts from the account of free space what an ended entry was still expected to
// need.
func (e *sinkEntry) notNeeded() { e.room.add(min(e.stored, e.AllocBytes) - e.AllocBytes) }

// checkRoom checks that the announced files fit on the disks. If they certainly do not, it is an
// error. If they probably do not, the user is warned once.
func (k *sink) checkRoom(ctx context.Context) error {
	if k.Session.Terms.Has(wire.FlagNoSpaceCheck) {
		return nil
	}
	for fs, r := range k.intake.rooms {
		expected, most := fs.FreeBytes()
		// In this order, bytes that are written and counted meanwhile are subtracted twice at
		// worst. That lets a copy begin for which there is no room; the reverse order would refuse
		// one that fits.
		writing := r.writing.Load()
		needed := r.needed.Load() - writing
		if needed <= expected {
			continue
		}
		if least := k.leastNeeded(r, needed, most); least > most {
			return fmt.Errorf("%w %v: %d bytes needed, %d free", fileset.ErrNoSpace, fs, least, most)
		}
		if r.warned {
			continue
		}
		r.warned = true
		if err := k.warn(ctx, fmt.Sprintf("there may be no room %v: up to %d bytes needed, %d free", fs, needed, expected)); err != nil {
			return err
		}
	}
	return nil
}

// leastNeeded is the part of the needed space that is needed in any case, if that can be more than
// most: a file that replaces one makes room when it gets its name, and a sparse file may have more
// holes than the source knows. A file that replaces another must fit next to it.
func (k *sink) leastNeeded(r *room, needed, most int64) int64 {
	if needed <= most {
		return needed
	}
	k.window.mu.Lock()
	from, upto := k.window.settled, k.window.announced
	entries := make([]*sinkEntry, 0, upto-from)
	for id := from; id < upto; id++ {
		if e := k.window.table[id%entryWindow]; e != nil && e.room == r {
			entries = append(entries, e)
		}
	}
	k.window.mu.Unlock()
	largest := int64(0)
	for _, e := range entries {
		k.lookWhatMakesRoom(e)
		needed -= e.makesRoom
		largest = max(largest, e.needsWhole())
	}
	return max(needed, largest)
}

// lookWhatMakesRoom determines once how many of an entry's bytes may not be needed.
func (k *sink) lookWhatMakesRoom(e *sinkEntry) {
	if e.lookedForRoom {
		return
	}
	e.lookedForRoom = true
	now, err := k.store.Look(e.Path)
	switch {
	case e.Sparse || err != nil || now.Exists && now.Type != manifest.File:
		e.makesRoom = e.AllocBytes
	case now.Exists:
		e.makesRoom = min(now.Size, e.AllocBytes)
	}
}

// needsWhole is the space of a file that replaces another, or 0 if it has holes, or if some of it
// may have been written.
func (e *sinkEntry) needsWhole() int64 {
	if e.Sparse || !e.mu.TryLock() {
		return 0
	}
	defer e.mu.Unlock()
	if e.over || e.ready || e.written > 0 {
		return 0
	}
	return e.AllocBytes - min(e.stored, e.AllocBytes)
}
