package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// With --basis-manifest a sink that compares (basis.go) takes the digests of its own files from a
// manifest that was made of them here, and does not read them, as long as a file's inode, size and
// times match the manifest. Such a file is kept, and does not count as verified. A file in which
// anything differs is copied from the existing file, and that copy is read as a whole before it
// gets its name (dest.Basis.Copy).

// maxKnownBytes bounds the digests of files that are announced and have not ended. A file
// for which there is no room is read.
const maxKnownBytes = 64 << 20

// knownRunBytes is the memory of a run of pieces.
const knownRunBytes = 40

// knownRun is pieces with the same digest, up to the piece end.
type knownRun struct {
	digest manifest.Digest
	end    uint64
}

// knownFile is a basis manifest's record of a file.
type knownFile struct {
	id      manifest.Identity
	size    int64
	mtimeNs int64
	runs    []knownRun
}

// isOf reports whether a file is the one that the manifest was made of, in that state.
func (f *knownFile) isOf(s fileset.Stamp) bool {
	return s.Ino == f.id.Ino && s.CtimeNs == f.id.CtimeNs && s.MtimeNs == f.mtimeNs && s.Size == f.size
}

// digestOf returns the digest of a piece.
func (f *knownFile) digestOf(piece uint64) (d manifest.Digest, ok bool) {
	low, high := 0, len(f.runs)
	for low < high {
		if middle := (low + high) / 2; f.runs[middle].end <= piece {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low == len(f.runs) {
		return d, false
	}
	return f.runs[low].digest, true
}

// holds reports whether the file contains an extent of which only digests were sent.
func (f *knownFile) holds(x *wire.Extent, p *wire.Terms) bool {
	piece := uint64(x.Off / p.PieceBytes)
	if x.Flags&wire.ExtHole == 0 {
		d, ok := f.digestOf(piece)
		return ok && d == x.Digest
	}
	for _, run := range appendHole(nil, x, f.size, p) {
		for range run.n {
			if d, ok := f.digestOf(piece); !ok || d != run.digest {
				return false
			}
			piece++
		}
	}
	return true
}

// knownFiles reads a basis manifest in parallel to the entries of a copy. Both are in order of
// path. One goroutine uses find; release may be called concurrently.
type knownFiles struct {
	r    *manifest.Reader
	next *manifest.Entry // the reader is at its pieces; nil before the first and at the end
	done bool
	// leftBytes is how much room there is for digests.
	leftBytes atomic.Int64
}

// openBasis opens the manifest of the destination's files. If nothing else is asked for, the copy
// uses its algorithm and piece size.
func (o *Options) openBasis(ctx context.Context, h *wire.Hello) (*knownFiles, error) {
	if o.BasisManifest == "" {
		return nil, nil
	}
	r, err := openChecked(ctx, o.BasisManifest)
	if err != nil {
		return nil, err
	}
	if o.Hash == 0 && o.GPU == "" && o.RemoteGPU == "" {
		h.Terms.Hash, h.Terms.PieceBytes = r.Header().Algorithm, r.Header().PieceBytes
	}
	switch has := r.Header(); {
	case !r.HasIdentities():
		err = fmt.Errorf("%w: %q does not say which inodes it is of: make it with gdrcp manifest create --identities", ErrUsage, o.BasisManifest)
	case has.Algorithm != h.Terms.Hash || has.PieceBytes != h.Terms.PieceBytes:
		err = fmt.Errorf("%w: %q has digests by %s of pieces of %d KiB, and the copy uses %s and %d KiB", ErrUsage, o.BasisManifest,
			has.Algorithm, has.PieceBytes>>10, h.Terms.Hash, h.Terms.PieceBytes>>10)
	default:
		k := &knownFiles{r: r}
		k.leftBytes.Store(maxKnownBytes)
		return k, nil
	}
	return nil, errors.Join(err, r.Close())
}

// close closes the manifest. It may be called on nil.
func (k *knownFiles) close() error {
	if k == nil {
		return nil
	}
	return k.r.Close()
}

// find returns the manifest's record of a file, or nil if there is none, or there is no room. The
// caller gives the room back with release.
func (k *knownFiles) find(e *manifest.Entry) (*knownFile, error) {
	for !k.done && (k.next == nil || manifest.ComparePaths(k.next.Path, e.Path) < 0) {
		next, err := k.r.Next()
		if errors.Is(err, io.EOF) {
			k.done, k.next = true, nil
			break
		}
		if err != nil {
			return nil, err
		}
		k.next = next
	}
	if k.done || k.next.Path != e.Path || k.next.Type != manifest.File || k.next.Size != e.Size {
		return nil, nil
	}
	id, ok := k.r.Identity()
	if !ok {
		return nil, nil
	}
	f := &knownFile{id: id, size: k.next.Size, mtimeNs: k.next.MtimeNs}
	for end := uint64(0); ; {
		d, n, err := k.r.NextPiece()
		switch {
		case errors.Is(err, io.EOF):
			k.leftBytes.Add(-int64(len(f.runs)) * knownRunBytes)
			return f, nil
		case errors.Is(err, manifest.ErrVoid):
			return nil, nil
		case err != nil:
			return nil, err
		}
		end += n
		if f.runs = append(f.runs, knownRun{d, end}); int64(len(f.runs))*knownRunBytes > k.leftBytes.Load() {
			return nil, nil
		}
	}
}

// release gives back the room of a file.
func (k *knownFiles) release(f *knownFile) {
	if f != nil {
		k.leftBytes.Add(int64(len(f.runs)) * knownRunBytes)
	}
}

// know looks up a file that is compared in the basis manifest.
func (k *sink) know(e *sinkEntry) (err error) {
	if k.known != nil && e.comparison.pieces > 0 && e.Size > 0 {
		e.known, err = k.known.find(&e.Entry)
	}
	return err
}

// trusts decides whether the file that an entry is compared with is one that the basis manifest
// knows. The caller holds the entry's lock.
func (e *sinkEntry) trusts() bool {
	e.comparison.trusted = e.known != nil && e.temp == nil && e.arrived.bytes == 0 && e.known.isOf(e.basis.Stamp())
	return e.comparison.trusted
}

// trustedFile returns the basis manifest's record of an entry whose file is not read, or nil.
func (e *sinkEntry) trustedFile() *knownFile {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.comparison.trusted {
		return nil
	}
	return e.known
}

// isTrusted reports whether a file is kept unread because the basis manifest vouches for it.
func (b *entryState) isTrusted() bool { return b.isUnchanged() && b.comparison.trusted }
