package xfer

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// Input is a stream that is read once, such as standard input.
type Input interface {
	io.Reader
	// Interrupt makes the Read in progress, and every later one, return an error immediately. It
	// does not block.
	Interrupt()
}

// Output is a stream that is written once, such as standard output.
type Output interface {
	io.Writer
	// Interrupt makes the Write in progress, and every later one, return an error immediately. It
	// does not block.
	Interrupt()
	// Finish is called after the last Write, and before the source learns that everything has
	// arrived. Some write errors are reported by the file system only then. Finish returns such an
	// error, which ends the copy. Finish may block for the disk.
	Finish() error
}

// PushStream copies in until its end to dst, the name of a file below the server's root. If in
// fails before its end, nothing is published. in remains the caller's. PushStream may have read
// more of it than it copied. ErrUsage says that an option, or dst, does not apply to a stream.
func (c *Client) PushStream(ctx context.Context, in Input, ep Endpoint, dst string, o Options) (*Summary, error) {
	c.completeStream(&o)
	if err := o.checkStream(); err != nil {
		return nil, err
	}
	switch {
	case o.WriteManifest != "":
		return nil, fmt.Errorf("%w: --write-manifest does not work with a stream: a manifest begins with the size, which a stream has only at its end", ErrUsage)
	case o.CopyGrowing:
		return nil, fmt.Errorf("%w: --copy-growing does not apply to a stream, which is read to its end", ErrUsage)
	case o.RemoteGPU != "" && o.RemoteGPU != "off":
		return nil, fmt.Errorf("%w: --remote-gpu does not apply to a stream, which goes through host memory", ErrUsage)
	case strings.HasSuffix(dst, "/") || chunker.BaseName(dst) == ".":
		return nil, fmt.Errorf("%w: a stream has no name of its own: %q must name a file", ErrUsage, dst)
	}
	o.Slots = o.limits().Slots(o.Slots, o.ChunkBytes)
	o.NoResume = true
	h, err := o.hello(wire.ModePush)
	if err != nil {
		return nil, err
	}
	h.Paths, h.Terms.Name = []string{dst}, chunker.BaseName(dst)
	h.Terms.Flags = asStream(h.Terms.Flags)
	return c.copy(ctx, ep, &o, h, func(s *flow.Session, acct *copyResults) conversation {
		src := newSource(s, nil, o.Tally, acct)
		src.stream = newStreamSource(src, in)
		return src
	})
}

// asStream returns the flags of the push of a stream. In each attempt its destination is a file.
func asStream(flags uint64) uint64 { return flags&^wire.FlagItself | wire.FlagStream }

// completeStream is complete, but with small chunks: the first chunk of a stream is sent when it is
// full, and a source keeps as many as the ring has slots in further memory.
func (c *Client) completeStream(o *Options) {
	o.ChunkBytes = cmp.Or(o.ChunkBytes, DefaultChunkBytes)
	c.complete(o)
}

// PullStream writes one file of a server to out, in order, each piece after it was verified. If the
// copy fails later, the bytes written remain, and nothing follows them. out remains the caller's.
// ErrUsage says that an option does not apply to a stream.
func (c *Client) PullStream(ctx context.Context, ep Endpoint, path string, out Output, o Options) (*Summary, error) {
	c.completeStream(&o)
	if err := o.checkStream(); err != nil {
		return nil, err
	}
	switch {
	case o.VerifyWritten:
		return nil, fmt.Errorf("%w: --verify-written reads files back, and what a stream was written to cannot be read", ErrUsage)
	case o.IO == fileset.IODirect || o.IO == fileset.IODontCache:
		return nil, fmt.Errorf("%w: --io %v says how files are written, and a stream is no file", ErrUsage, o.IO)
	}
	o.Slots = o.limits().Slots(o.Slots, o.ChunkBytes)
	o.NoResume = true
	h, err := o.hello(wire.ModePull)
	if err != nil {
		return nil, err
	}
	h.Paths = []string{path}
	return c.copy(ctx, ep, &o, h, func(s *flow.Session, acct *copyResults) conversation {
		k := newSink(s, nil, o.Tally, acct)
		k.filter, k.out = newPullFilter(h), out
		return k
	})
}

// checkStream refuses the options that do not apply to a stream, and clears those that apply to no
// copy like it.
func (o *Options) checkStream() error {
	o.MaxDelete = 0 // without deletion there is nothing to bound
	for _, no := range []struct {
		given bool
		why   string
	}{
		{o.Recursive, "a stream is one file, and -r copies directories"},
		{o.Perms || o.Times || o.Owner || o.Group || o.HardLinks || o.Xattrs || o.ACLs, "a stream has no owner, mode, times, attributes or further names to keep"},
		{o.Links, "-l does not apply to a stream"},
		{len(o.Rules) > 0 || o.Names != nil || o.OneFileSystem, "filter rules, --files-from and --one-file-system do not apply to a stream"},
		{o.sinkFlags() != 0 || o.DeleteExcluded, "a stream is read or written once, from its beginning to its end: not with --dry-run, --update, --checksum, --append-verify, --inplace, --size-only, --ignore-existing, --existing, --max-size, --min-size or --delete"},
		{o.Whole, "--atomic-dir copies a directory, and a stream is one file"},
		{o.Manifest != "", "--manifest does not work with a stream, which is written before all of it is checked"},
		{o.BasisManifest != "", "--basis-manifest compares files, and a stream is only written"},
		{o.PartialDir != "" || o.Recheck, "a stream that was cut off begins anew: leave --partial-dir and --recheck out"},
		{o.GPU != "" && o.GPU != "off", "a stream goes through slots in host memory: leave --gpu out"},
	} {
		if no.given {
			return fmt.Errorf("%w: %s", ErrUsage, no.why)
		}
	}
	return nil
}

// checkStream compares an announced entry with the terms about streams.
func (k *sink) checkStream(id uint64, p *wire.AnnouncedEntry) error {
	if k.out != nil && (id > 0 || k.store == nil && p.Type != manifest.File) {
		return fmt.Errorf("%w: the peer sent %q, which is not a file or not the only one, into a stream", ErrProtocol, p.Path)
	}
	if p.Stream != (k.Session.Terms.Flags&wire.FlagStream != 0) || (p.Stream && id > 0) {
		return fmt.Errorf("%w: the peer sent %q as a stream: %t", ErrProtocol, p.Path, p.Stream)
	}
	return nil
}

// fileBytes is the size of an entry's file, as far as it is known.
func (e *sinkEntry) fileBytes() int64 {
	if !e.Stream {
		return e.Size
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Size
}

// endStreamLocked sets a stream's size from its last extent.
func (e *sinkEntry) endStreamLocked(x *wire.Extent, p *wire.Terms) error {
	if x.Flags&wire.ExtHole != 0 || x.Length > p.PieceBytes || (x.Length == 0 && x.Off > 0) || x.Off > wire.StreamBytes-p.PieceBytes {
		return fmt.Errorf("%w: %q ends with %d bytes at %d", ErrProtocol, e.Path, x.Length, x.Off)
	}
	e.Size = x.Off + x.Length
	return nil
}

// setSize sets the final size of a stream's file.
func (e *sinkEntry) setSize(t *dest.Temp) {
	if e.Stream {
		t.SetSize(e.Size)
	}
}

// streamEntry returns the entry that announces a stream.
func streamEntry(name string, mtimeNs int64) wire.AnnouncedEntry {
	return wire.AnnouncedEntry{Entry: manifest.Entry{Type: manifest.File, Path: name, Size: wire.StreamBytes, Mode: 0o666, MtimeNs: mtimeNs}, Stream: true}
}
