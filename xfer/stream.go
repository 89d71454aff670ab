package xfer

import (
	"context"
	"fmt"
	"io"
	"strings"

	"gdrcp/chunker"
	"gdrcp/manifest"
)

// flagStream: the one entry of a push is a stream, whose size is known at its
// end.
const flagStream = 1 << 20

// streamBytes stands for the size of a stream whose end is not known yet. It is
// more than any file has, so that what holds for large files holds for it.
const streamBytes = maxFileBytes

// Input is a stream that is read once, such as standard input.
type Input interface {
	io.Reader
	// Interrupt makes the Read under way, and every later one, return an error
	// at once. It does not block.
	Interrupt()
}

// Output is a stream that is written once, such as standard output.
type Output interface {
	io.Writer
	// Interrupt makes the Write under way, and every later one, return an error
	// at once. It does not block.
	Interrupt()
	// Finish is called behind the last Write, and before the source is told that
	// all has arrived: what the file system says of writing only by then is its
	// error, and ends the copy. It may block for the disk.
	Finish() error
}

// PushStream copies what in gives until its end to dst, the name of a file below
// the server's root. Nothing is published where in fails before. in remains the
// caller's, and may have been read further than what was copied. ErrUsage: an
// option, or dst, makes no sense for a stream.
func (c *Client) PushStream(ctx context.Context, in Input, ep Endpoint, dst string, o Options) (*Summary, error) {
	o.complete()
	if err := o.checkStream(); err != nil {
		return nil, err
	}
	switch {
	case o.WriteManifest != "":
		return nil, fmt.Errorf("%w: a manifest has a file's size before its pieces, and that of a stream is known at its end", ErrUsage)
	case o.CopyGrowing:
		return nil, fmt.Errorf("%w: --copy-growing is about files, and a stream is read to its end", ErrUsage)
	case o.RemoteGPU != "" && o.RemoteGPU != "off":
		return nil, fmt.Errorf("%w: a stream goes to slots in host memory: leave --remote-gpu out", ErrUsage)
	case strings.HasSuffix(dst, "/") || baseName(dst) == ".":
		return nil, fmt.Errorf("%w: a stream has no name: %q must be that of a file", ErrUsage, dst)
	}
	h, err := o.hello(modePush)
	if err != nil {
		return nil, err
	}
	h.paths, h.name = []string{dst}, baseName(dst)
	h.flags |= flagStream
	return c.copy(ctx, ep, &o, h, func(s *session, acct *account) conversation {
		src := newSource(s, nil, o.Tally, acct)
		src.stream = newStreamSource(src, in)
		return src
	})
}

// PullStream writes one file of a server to out, each piece after it was
// verified, in order. What was written stays where the copy fails later, and
// nothing follows it. out remains the caller's. ErrUsage: an option makes no
// sense for a stream.
func (c *Client) PullStream(ctx context.Context, ep Endpoint, path string, out Output, o Options) (*Summary, error) {
	o.complete()
	if err := o.checkStream(); err != nil {
		return nil, err
	}
	o.Slots = o.limits().slots(o.Slots, o.ChunkBytes)
	h, err := o.hello(modePull)
	if err != nil {
		return nil, err
	}
	h.paths = []string{path}
	return c.copy(ctx, ep, &o, h, func(s *session, acct *account) conversation {
		k := newSink(s, nil, o.Tally, acct)
		k.asked, k.out = newAsked(h), out
		return k
	})
}

// checkStream refuses the options that no stream has a use for.
func (o *Options) checkStream() error {
	for _, no := range []struct {
		given bool
		why   string
	}{
		{o.Recursive, "a stream is one file, and -r copies directories"},
		{o.Perms || o.Times || o.Owner || o.Group || o.HardLinks || o.Xattrs, "a stream has no owner, mode, times, attributes or further names to keep"},
		{o.Links, "a stream is what a link leads to, and -l copies links"},
		{len(o.Rules) > 0 || o.Names != nil || o.OneFileSystem, "a stream is no tree of which something could be left out"},
		{o.sinkFlags() != 0 || o.DeleteExcluded, "a stream can only be written: not with --dry-run, --update, --size-only, --ignore-existing, --existing, --max-size, --min-size or --delete"},
		{o.Manifest != "", "--manifest holds back what does not match, and a stream cannot be held back to its end"},
		{o.GPU != "" && o.GPU != "off", "a stream goes through slots in host memory: leave --gpu out"},
	} {
		if no.given {
			return fmt.Errorf("%w: %s", ErrUsage, no.why)
		}
	}
	return nil
}

// checkStream refuses a hello about a stream that no client sends.
func (h *hello) checkStream() error {
	if h.flags&flagStream == 0 {
		return nil
	}
	if h.mode != modePush || h.flags&(flagRecursive|flagMany|flagMustBeDir|flagHardLinks|flagRules|flagGrowing|flagOneFileSystem|flagsOfSink) != 0 || h.gpu != 0 {
		return fmt.Errorf("%w: a stream with mode %d, flags %#x, GPU %d", ErrProtocol, h.mode, h.flags, h.gpu)
	}
	return nil
}

// checkStream holds an announced entry against what was agreed of streams.
func (k *sink) checkStream(id uint64, p *planned) error {
	if k.out != nil && p.Type != manifest.File {
		return fmt.Errorf("%w: %q announced, which is no file for a stream", ErrProtocol, p.Path)
	}
	if p.stream != (k.params.flags&flagStream != 0) || (p.stream && id > 0) {
		return fmt.Errorf("%w: %q announced as a stream: %t", ErrProtocol, p.Path, p.stream)
	}
	return nil
}

// fileBytes is the size of an entry's file, as far as it is known.
func (e *sinkEntry) fileBytes() int64 {
	if !e.stream {
		return e.Size
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Size
}

// endStreamLocked gives a stream the size that its last extent says.
func (e *sinkEntry) endStreamLocked(x *extent, p *params) error {
	if x.flags&extHole != 0 || x.length > p.pieceBytes || (x.length == 0 && x.off > 0) || x.off > streamBytes-p.pieceBytes {
		return fmt.Errorf("%w: %q ends with %d bytes at %d", ErrProtocol, e.Path, x.length, x.off)
	}
	e.Size = x.off + x.length
	return nil
}

// setSize tells a stream's file how long it has become.
func (e *sinkEntry) setSize(t *chunker.Temp) {
	if e.stream {
		t.SetSize(e.Size)
	}
}

// asStream checks an entry that says it is a stream, and gives it its size.
func (e *planned) asStream() error {
	if e.Type != manifest.File || e.Size != 0 || e.sparse || e.names.several {
		return fmt.Errorf("%w: %q cannot be a stream", ErrProtocol, e.Path)
	}
	e.Size = streamBytes
	return nil
}

// streamEntry is what a stream is announced as.
func streamEntry(name string, mtimeNs int64) planned {
	return planned{Entry: manifest.Entry{Type: manifest.File, Path: name, Size: streamBytes, Mode: 0o666, MtimeNs: mtimeNs}, stream: true}
}
