package xfer

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// openManifest opens the manifest that the copy must match. The session then uses its algorithm and
// piece size.
func (o *Options) openManifest(ctx context.Context, h *wire.Hello) error {
	if o.Manifest != "" {
		r, err := openChecked(ctx, o.Manifest)
		if err != nil {
			return err
		}
		o.wantManifest = r
		if o.Hash != 0 && o.Hash != r.Header().Algorithm {
			return errors.Join(fmt.Errorf("%w: the manifest uses %s, not %s", ErrUsage, r.Header().Algorithm, o.Hash), o.closeManifest())
		}
		h.Terms.Hash, h.Terms.PieceBytes = r.Header().Algorithm, r.Header().PieceBytes
	}
	if o.Compress != CompressOff && o.ChunkBytes > MaxCompressedChunkBytes {
		return errors.Join(fmt.Errorf("%w: --compress takes chunks of at most %d MiB", ErrUsage, MaxCompressedChunkBytes>>20), o.closeManifest())
	}
	if int64(h.Terms.ChunkBytes) < h.Terms.PieceBytes && h.Terms.Mode != wire.ModeBench {
		return errors.Join(fmt.Errorf("%w: chunks of %d KiB, pieces are of %d KiB: a chunk must hold one", ErrUsage, h.Terms.ChunkBytes>>10, h.Terms.PieceBytes>>10), o.closeManifest())
	}
	return nil
}

// openChecked opens a manifest after it has read it to its end once. Only the end vouches for the
// rest, and a truncated manifest must not cause any file to be replaced.
func openChecked(ctx context.Context, name string) (*manifest.Reader, error) {
	st, err := os.Stat(name)
	if name == "-" || (err == nil && !st.Mode().IsRegular()) {
		return nil, fmt.Errorf("%w: the manifest is read twice, and %q is not a regular file", ErrUsage, name)
	}
	r, err := manifest.Open(name)
	if err != nil {
		return nil, err
	}
	for err == nil {
		if err = context.Cause(ctx); err == nil {
			_, err = r.Next()
		}
	}
	if !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, r.Close())
	}
	return r.Again()
}

func (o *Options) closeManifest() error {
	if o.wantManifest == nil {
		return nil
	}
	r := o.wantManifest
	o.wantManifest = nil
	return r.Close()
}

// manifestCursor reads a given manifest in parallel to the entries of a copy. Both are in order of
// path.
type manifestCursor struct {
	r    *manifest.Reader
	next *manifest.Entry
	done bool
	// unread is what the source could not read.
	unread manifest.Unread
}

func (c *manifestCursor) advance() error {
	for c.next == nil && !c.done {
		e, err := c.r.Next()
		if errors.Is(err, io.EOF) {
			c.done = true
			return nil
		}
		if err != nil {
			return err
		}
		err = c.r.SkipPieces()
		if errors.Is(err, manifest.ErrVoid) {
			continue // begun and not copied: the same as absent
		}
		if err != nil {
			return err
		}
		c.next = e
	}
	return nil
}

// find returns the manifest's entry of that path, or nil. It calls missing for entries before that,
// because they are not at the source.
func (c *manifestCursor) find(path string, missing func(*manifest.Entry) error) (*manifest.Entry, error) {
	for {
		if err := c.advance(); err != nil {
			return nil, err
		}
		if c.done || manifest.ComparePaths(path, c.next.Path) < 0 {
			return nil, nil
		}
		e := c.next
		c.next = nil
		if e.Path == path {
			return e, nil
		}
		if e.Path != "." && !c.unread.Holds(e.Path) {
			if err := missing(e); err != nil {
				return nil, err
			}
		}
	}
}

// rest reports the entries that are left.
func (c *manifestCursor) rest(missing func(*manifest.Entry) error) error {
	for {
		if err := c.advance(); err != nil {
			return err
		}
		if c.done {
			return nil
		}
		if !c.unread.Holds(c.next.Path) {
			if err := missing(c.next); err != nil {
				return err
			}
		}
		c.next = nil
	}
}
