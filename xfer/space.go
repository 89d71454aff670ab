package xfer

import (
	"fmt"
	"sync/atomic"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

// room is how much space announced files still need on one file system.
type room struct {
	needed atomic.Int64 // bytes that are not yet counted as written
	// writing are the bytes that are being written: the disk may have them already.
	writing atomic.Int64
}

// rooms are the file systems that files are expected on. A destination has more than
// one where others are mounted below it. Only the goroutine that hears of entries uses
// it.
type rooms map[*chunker.FileSystem]*room

// write notes that bytes are about to be written, and, with a negative number, that they
// have been counted. It does nothing for a file that is not expected.
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

// expect books the space that an announced file will need on its file system. The
// directories on the way to it have been made.
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
		return fmt.Errorf("%w %v: the announced sizes overflow", chunker.ErrNoSpace, fs)
	}
	return nil
}

// notNeeded takes off the account of free space what an ended entry was still expected
// to need.
func (e *sinkEntry) notNeeded() { e.room.add(min(e.stored, e.AllocBytes) - e.AllocBytes) }

// check checks that the announced files fit on the disks.
func (all rooms) check() error {
	for fs, r := range all {
		free, err := fs.FreeBytes()
		if err != nil {
			return err
		}
		// In this order, what is written and counted meanwhile is taken off twice at worst. That
		// lets a copy begin for which there is no room; the other way round refuses one that fits.
		writing := r.writing.Load()
		if needed := r.needed.Load() - writing; needed > free {
			return fmt.Errorf("%w %v: %d bytes needed, %d free", chunker.ErrNoSpace, fs, needed, free)
		}
	}
	return nil
}
