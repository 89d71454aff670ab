package xfer

import (
	"fmt"
	"sync"

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
