package xfer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"gdrcp/chunker"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// entryState is what both ends keep of an announced entry for the copyResults.
type entryState struct {
	wire.AnnouncedEntry
	id uint64
	// expect is the root in the given manifest, where wanted.
	expect manifest.Digest
	wanted bool
	// group is the file that the entry is one of several names of, or nil.
	group *linkGroup
	// tree collects the digests of a file of several pieces.
	tree *manifest.Tree

	logMu sync.Mutex
	log   []pieceRun // digests not yet in the manifest that is being written
	begun bool       // guarded by the copyResults' mu: the file's line is written
	// grown: the file became longer while it was read, and this is its beginning.
	grown bool
}

// grownText tells of a file that was copied as long as it was at first.
func (b *entryState) grownText() string {
	return fmt.Sprintf("%q: grew while it was copied: its first %d bytes were", b.Path, b.Size)
}

// isLink reports whether the entry is a further name of a file that another
// entry brings.
func (b *entryState) isLink() bool { return b.Names.Several && b.Names.First != b.id }

// addExtent books an extent's digest or, for a hole, those of its pieces, which
// appendHole made. Calls for one file come in order of offset. It fills in the
// digest of a hole that is a whole file.
func (b *entryState) addExtent(x *wire.Extent, hole []pieceRun, p *wire.Terms, keep bool) {
	if b.Size <= p.PieceBytes {
		if len(hole) > 0 {
			x.Digest = hole[0].digest
		}
		return
	}
	if b.tree == nil {
		b.tree = manifest.NewTree(p.Hash)
	}
	if x.Flags&wire.ExtHole == 0 {
		b.push(x.Digest, 1, keep)
		return
	}
	for i := range hole {
		b.push(hole[i].digest, hole[i].n, keep)
	}
}

func (b *entryState) push(d manifest.Digest, n uint64, keep bool) {
	b.tree.PushRun(d, n)
	if !keep {
		return
	}
	b.logMu.Lock()
	defer b.logMu.Unlock()
	if k := len(b.log); k > 0 && b.log[k-1].digest == d {
		b.log[k-1].n += n
		return
	}
	b.log = append(b.log, pieceRun{d, n})
}

// drainLog takes what was logged since the last call.
func (b *entryState) drainLog() []pieceRun {
	b.logMu.Lock()
	defer b.logMu.Unlock()
	l := b.log
	b.log = nil
	return l
}

// rootOf is the root of a file all of whose extents were booked; last is the
// digest of the last one.
func (b *entryState) rootOf(last manifest.Digest) manifest.Digest {
	if b.tree == nil {
		return last
	}
	root := b.tree.Root()
	b.tree = nil
	return root
}

// sinkEntry is an announced entry at the sink, until its end has been told.
type sinkEntry struct {
	entryState
	attrs      *chunker.Attributes // what it is to have beside its Entry; nil for nothing
	xattrBytes int
	room       *room // of a file that is expected; nil for others

	mu      sync.Mutex
	temp    *chunker.Temp
	at      chunker.Published // once it is published
	written int64             // bytes verified and written, holes included
	stored  int64             // of these, bytes of data
	// booked is how far the ledger has come in the file, and last says that it
	// has seen its end.
	booked int64
	last   bool
	// givenUp: the source said in a chunk that the file is not to be published;
	// why, it says in a message.
	givenUp bool
	// ready: everything is there and the file is with the publisher.
	ready bool
	// unwanted: the source was told not to send its data.
	unwanted bool
	// over: the entry has ended, well or by problem.
	over    bool
	problem *wire.Exception
	// wanted again, by offset: what the piece must be, and how often it was bad.
	repairs map[int64]repair
}

type repair struct {
	digest manifest.Digest
	tries  int
}

// srcEntry is an announced entry at the source, until the sink has told what
// became of it.
type srcEntry struct {
	entryState
	stamp      chunker.Stamp
	xattrBytes int
	// mayGrow: the file may become longer while it is read, and hasGrown: it has.
	mayGrow  bool
	hasGrown atomic.Bool
	// packed is how far the file has been cut into extents; the packer's.
	packed int64
	// unwanted: the sink wants no data of it. Guarded by the chunkSender's lock.
	unwanted bool
	// committed: every extent has been posted. Guarded by the chunkSender's lock.
	committed bool
	// read counts the bytes with which workers are done, holes included.
	read atomic.Int64
	// problem is why the entry must not be published. The poller looks at it,
	// and must not wait for those who read the file.
	problem atomic.Pointer[wire.Exception]
	// settled: the sink has told what became of the entry.
	settled atomic.Bool

	mu sync.RWMutex
	// file is open while a file of several extents is read. Readers hold the
	// lock shared.
	file *chunker.File
}

// giveUp marks the entry as not to be published. It reports whether this was
// the first reason, which stands.
func (e *srcEntry) giveUp(outcome Outcome, text string) bool {
	return e.problem.CompareAndSwap(nil, &wire.Exception{Entry: e.id, Outcome: outcome, Text: text})
}

func (e *srcEntry) failed() *wire.Exception { return e.problem.Load() }

// closeFile closes the file that several extents shared.
func (e *srcEntry) closeFile() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.file != nil {
		e.file.Close()
		e.file = nil
	}
}
