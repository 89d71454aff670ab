package xfer

import (
	"fmt"
	"sync"
	"sync/atomic"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// entryState is what both ends keep of an announced entry for copyResults.
type entryState struct {
	wire.AnnouncedEntry
	id uint64
	// expect is the root in the given manifest, if wanted is set.
	expect manifest.Digest
	wanted bool
	// group is the file that has this entry as one of several names, or nil.
	group *linkGroup
	// tree collects the digests of a file of several pieces.
	tree *manifest.Tree

	logMu sync.Mutex
	log   []pieceRun // digests that are not yet in the manifest that is being written
	begun bool       // guarded by the copyResults' mu: the file's line is written
	// arrived is the part of the file that an earlier copy left here.
	arrived arrivedPieces
	// comparison is for a file that the sink compares with its own.
	comparison comparison
	// refusedBefore are the entries before this one that were never announced. It is nil if the
	// copy has only one attempt.
	refusedBefore *refusedCounts
	// grown says that the file became longer while it was read, and that the entry is its
	// beginning.
	grown bool
}

// grownText is the message about a file that was copied at its initial size.
func (b *entryState) grownText() string {
	return fmt.Sprintf("%q: grew while it was copied: its first %d bytes were", b.Path, b.Size)
}

// isLink reports whether the entry is a further name of a file that is sent with another entry.
func (b *entryState) isLink() bool { return b.Names.Several && b.Names.First != b.id }

// addExtent books the digest of an extent or, for a hole, those of its pieces, which appendHole
// made. Calls for one file come in order of offset. addExtent fills in the digest of a hole that is
// a whole file.
func (b *entryState) addExtent(x *wire.Extent, hole []pieceRun, p *wire.Terms, keep bool) {
	switch {
	case x.Flags&wire.ExtHole != 0:
		b.comparison.holeBytes += x.Length
	case x.Flags&wire.ExtDigest != 0:
		b.comparison.digestBytes += x.Length
	}
	if b.Size <= p.PieceBytes {
		if len(hole) > 0 {
			x.Digest = hole[0].digest
		}
		return
	}
	if x.Flags&wire.ExtArrived != 0 {
		b.tree, b.arrived.tree = b.arrived.tree, nil
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

// drainLog returns the digests that were logged since the last call.
func (b *entryState) drainLog() []pieceRun {
	b.logMu.Lock()
	defer b.logMu.Unlock()
	l := b.log
	b.log = nil
	return l
}

// rootOf returns the root of a file whose extents were all booked. last is the digest of the last
// extent.
func (b *entryState) rootOf(last manifest.Digest) manifest.Digest {
	if b.tree == nil {
		return last
	}
	root := b.tree.Root()
	b.tree = nil
	return root
}

// sinkEntry is an announced entry at the sink, until its outcome was sent to the source.
type sinkEntry struct {
	entryState
	attrs      *dest.Attributes // the attributes it gets besides its Entry; nil for none
	xattrBytes int
	room       *room // of a file that is expected; nil for others
	// makesRoom is how many of the entry's bytes may not be needed, once lookedForRoom.
	makesRoom     int64
	lookedForRoom bool

	mu   sync.Mutex
	temp *dest.Temp
	// basis is what the entry is compared with, while it is open. noBasis says that there is none,
	// or none any more. hasToken says that the entry has a token of openFiles.
	basis    *dest.Basis
	noBasis  bool
	hasToken bool
	// notInPlace is why the existing file is only compared, and not written.
	notInPlace error
	known      *knownFile     // the basis manifest's entry for it, or nil
	at         dest.Published // once it is published
	written    int64          // bytes verified and written, holes included
	stored     int64          // of these, bytes of data
	// booked is the offset up to which the ledger has booked the file. last says that the ledger
	// has seen the file's end.
	booked int64
	last   bool
	// lastByte of a file that grows in place is written when everything else is there (heldBack).
	lastByte []byte
	// givenUp says that a chunk of the source forbade to publish the file. The source sends the
	// reason in a message.
	givenUp bool
	// ready says that everything is there and the file is with the publisher.
	ready bool
	// unwanted says that the source was asked not to send the entry's data.
	unwanted bool
	// over says that the entry has ended, well or with a problem.
	over    bool
	problem *wire.Exception
	// repairs holds the pieces to send again, by offset.
	repairs map[int64]repair
}

// isGivenUp reports whether a chunk of the source forbade to publish the file.
func (e *sinkEntry) isGivenUp() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.givenUp
}

// repair is a piece, or a hole, that must be sent again, with the digest that a piece must have.
type repair struct {
	length int64
	isHole bool
	digest manifest.Digest
	tries  int // how often it was bad
	waits  int // how often no file could be opened for it
}

// repairOf returns the repair for an extent that was bad.
func repairOf(x *wire.Extent) repair {
	return repair{length: x.Length, isHole: x.Flags&wire.ExtHole != 0, digest: x.Digest}
}

// isFor reports whether an extent has the requested bytes, in the form in which they first came: a
// hole as a hole, and nothing else as one.
func (r repair) isFor(x *wire.Extent) bool {
	return x.Length == r.length && (x.Flags&wire.ExtHole != 0) == r.isHole
}

// srcEntry is an announced entry at the source, until the sink has reported its outcome.
type srcEntry struct {
	entryState
	stamp      fileset.Stamp
	xattrBytes int
	// mayGrow says that the file may become longer while it is read. hasGrown says that it has.
	mayGrow  bool
	hasGrown atomic.Bool
	// rootAgain is the root by the second reading of a file of several extents that has grown, or
	// nil. It is set before the file's last extent is committed.
	rootAgain *manifest.Digest
	// packed is the offset up to which the file has been cut into extents. It belongs to the
	// packer.
	packed int64
	// unwanted says that the sink wants no data of the file. The Sender's lock guards it.
	unwanted bool
	// committed says that every extent has been posted. The Sender's lock guards it.
	committed bool
	// read counts the bytes that workers have finished with, holes included.
	read atomic.Int64
	// problem is why the entry must not be published. The poller reads it, and must not wait for
	// the workers that read the file.
	problem atomic.Pointer[wire.Exception]
	// settled says that the sink has reported the entry's outcome.
	settled atomic.Bool

	mu sync.RWMutex
	// file is open while a file of several extents is read. Readers share the lock.
	file *chunker.File
}

// giveUp marks the entry as not to be published. It reports whether this was the first reason. The
// first reason is kept.
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
