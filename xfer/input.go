package xfer

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// streamSource reads a stream, ahead of the chunks that it is cut into, into private memory. The
// stream cannot be read again, but a chunk that was damaged on the way must be sent again from
// somewhere. The memory has a buffer for each chunk that may be in flight, and two more for those
// that are read and filled meanwhile.
type streamSource struct {
	src *source
	in  Input
	mem []byte // the buffers, outside the Go heap
	// begun says that bytes may have been read.
	begun bool
	// bytes is how much of the stream goes into each chunk but the last. It is a whole number of
	// pieces.
	bytes int64

	// The Sender's lock guards these.
	free []int         // buffers; the one used last is on top
	read []streamChunk // in order, not cut yet
	held map[int64]int // buffers of chunks that have not ended, by their place in the stream
}

// streamChunk is a part of the stream that has been read.
type streamChunk struct {
	buffer int
	off    int64
	length int64
	last   bool
}

// streamBuffers is the number of buffers of a stream.
func streamBuffers(slots int) int { return slots + 2 }

func newStreamSource(s *source, in Input) *streamSource {
	piece := s.Session.Terms.PieceBytes
	t := &streamSource{src: s, in: in, bytes: int64(s.Session.Terms.ChunkBytes) / piece * piece, held: make(map[int64]int)}
	for i := range streamBuffers(s.Session.Terms.Slots) {
		t.free = append(t.free, i)
	}
	return t
}

// release unmaps the buffers. The session's goroutines must have ended.
func (t *streamSource) release() error {
	if t == nil || t.mem == nil {
		return nil
	}
	mem := t.mem
	t.mem = nil
	return unix.Munmap(mem)
}

func (t *streamSource) buffer(i int) []byte { return t.mem[int64(i)*t.bytes:][:t.bytes:t.bytes] }

// announceStream announces the only entry to the sink.
func (s *source) announceStream(ctx context.Context) error {
	e := &srcEntry{}
	e.AnnouncedEntry = streamEntry(s.Session.Terms.Name, time.Now().UnixNano())
	a := announcer{src: s, ctx: ctx, pending: []*srcEntry{e}}
	a.body = wire.AppendEntry(binary.AppendUvarint(nil, e.id), &e.AnnouncedEntry, &a.scratch)
	a.total.Entries = 1
	return a.finish()
}

// readStream reads the stream to its end, as far ahead as there are buffers. It begins when both
// ends have their rings: until then, another attempt may still read the stream.
func (t *streamSource) readStream(ctx context.Context) (err error) {
	if err := t.src.awaitRings(ctx); err != nil {
		return err
	}
	if t.mem, err = ring.Map(len(t.free) * int(t.bytes)); err != nil {
		return fmt.Errorf("map %d buffers of %d bytes for a stream: %w", len(t.free), t.bytes, err)
	}
	t.begun = true
	defer context.AfterFunc(ctx, t.in.Interrupt)()
	ahead := make([]byte, 0, 1)
	for c := (streamChunk{}); !c.last; c.off += c.length {
		if c.buffer, err = t.takeBuffer(ctx); err != nil {
			return err
		}
		from := stat.Now()
		c.length, c.last, ahead, err = readChunk(t, t.buffer(c.buffer), ahead)
		t.src.tally.Spend(stat.Disk, from, 1)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		} else if err != nil {
			return err
		}
		t.ready(c)
	}
	return nil
}

// takeBuffer waits for a free buffer.
func (t *streamSource) takeBuffer(ctx context.Context) (int, error) {
	s := t.src
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	for len(t.free) == 0 {
		if ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
		t.awaitBufferLocked()
	}
	b := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	return b, nil
}

// awaitBufferLocked waits until something has changed. The time counts for the reason why the
// chunks in most buffers wait. There are more buffers than slots, so pack counts none for a stream.
func (t *streamSource) awaitBufferLocked() {
	o, stage := t.src.sender, stat.Slots
	if o.Under > len(t.held)/2 {
		stage = stat.Wire
	}
	counts, from := o.FillingLocked() <= len(t.held)/2, stat.Now()
	o.Cond.Wait()
	if counts {
		t.src.tally.Spend(stage, from, 1)
	}
}

// readChunk fills mem with ahead, the bytes that were read before, and with the bytes that follow.
// It then reads one byte more: the digest of a piece depends on whether the piece is the whole
// stream, and the last piece carries the end.
func readChunk(in io.Reader, mem, ahead []byte) (n int64, last bool, next []byte, err error) {
	at := copy(mem, ahead)
	m, err := readWhole(in, mem[at:])
	n = int64(at + m)
	if err == nil {
		next = ahead[:1]
		_, err = readWhole(in, next)
	}
	if err == io.EOF {
		return n, true, nil, nil
	}
	return n, false, next, err
}

// readWhole fills b. io.EOF says that the reader has no more, after n bytes. Unlike the functions
// of package io, readWhole treats no other error as an end.
func readWhole(in io.Reader, b []byte) (n int, err error) {
	for empty := 0; n < len(b); {
		m, err := in.Read(b[n:])
		n += m
		if err != nil {
			return n, err
		}
		if empty++; m > 0 {
			empty = 0
		}
		if empty == maxEmptyReads {
			return n, io.ErrNoProgress
		}
	}
	return n, nil
}

// maxEmptyReads is how often in a row a reader may return no bytes.
const maxEmptyReads = 100

// Read implements io.Reader. It counts every byte that arrives as progress.
func (t *streamSource) Read(b []byte) (int, error) {
	n, err := t.in.Read(b)
	if n > 0 {
		t.src.tally.Step()
	}
	return n, err
}

// ready passes a part of the stream to the packer.
func (t *streamSource) ready(c streamChunk) {
	s := t.src
	s.tally.AddTotal(c.length)
	if c.last {
		s.tally.SetTotalKnown(true)
	}
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	t.read = append(t.read, c)
	s.sender.Cond.Broadcast()
}

// hasNextLocked reports whether a part waits to be cut. For a tree, which has no
// streamSource, it is always true.
func (t *streamSource) hasNextLocked() bool { return t == nil || len(t.read) > 0 }

// cutStream makes a chunk of the next part of the stream. The chunk remains empty if the sink has
// given the stream up meanwhile.
func (s *source) cutStream(c *outChunk) {
	s.sender.Mu.Lock()
	defer s.sender.Mu.Unlock()
	e, t := s.nextFileLocked(), s.stream
	if e == nil {
		return
	}
	next := t.read[0]
	t.read = t.read[:copy(t.read, t.read[1:])]
	if e.failed() != nil {
		// Send no more data of the entry: one extent announces its end to the sink.
		next.length, next.last = 0, true
	}
	t.held[next.off/t.bytes] = next.buffer
	for at := int64(0); at < next.length || at == 0; at += s.Session.Terms.PieceBytes {
		x := wire.Extent{Entry: e.id, Off: next.off + at, Length: min(s.Session.Terms.PieceBytes, next.length-at), SlotOff: uint32(at)}
		if next.last && at+x.Length == next.length {
			x.Flags = wire.ExtLast
			s.pastFileLocked(e)
		}
		c.Extents, c.Of.files = append(c.Extents, x), append(c.Of.files, e)
	}
	c.PlainBytes = uint32(next.length)
}

// readAt copies a piece that has been read to its slot.
func (t *streamSource) readAt(buf []byte, off int64) error {
	t.src.sender.Mu.Lock()
	b, ok := t.held[off/t.bytes]
	t.src.sender.Mu.Unlock()
	if !ok {
		return fmt.Errorf("%w: bytes at %d of a stream wanted after they had arrived", ErrProtocol, off)
	}
	copy(buf, t.buffer(b)[off%t.bytes:])
	return nil
}

// endedLocked gives back the buffer of a chunk that is no longer needed.
func (t *streamSource) endedLocked(c *outChunk) {
	if t == nil || len(c.Extents) == 0 {
		return
	}
	k := c.Extents[0].Off / t.bytes
	if b, ok := t.held[k]; ok {
		delete(t.held, k)
		t.free = append(t.free, b)
	}
}

// sizeAt is the size of the file that a piece belongs to, as far as the piece's digest
// depends on it.
func (e *srcEntry) sizeAt(x *wire.Extent) int64 {
	switch {
	case !e.Stream:
		return e.Size
	case x.Off == 0 && x.Flags&wire.ExtLast != 0:
		return x.Length
	}
	return wire.StreamBytes
}
