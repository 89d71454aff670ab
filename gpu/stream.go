//go:build linux && cgo

package gpu

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"time"
	"unsafe"
)

// Stream is a sequence of operations on the GPU: each begins when the previous
// one is done. Streams do not wait for each other.
//
// Methods that queue work return before it is done, and report only whether it
// could be queued. Wait, or any later call, reports later errors; then the
// Context is unusable. Until the work is done its memory must not be closed or
// unmapped, and host memory must not be accessed.
type Stream struct {
	handle
	ctx *Context
	c   *C.struct_abi_stream
}

// NewStream creates a stream.
func (c *Context) NewStream() (*Stream, error) {
	if err := c.begin("streams"); err != nil {
		return nil, err
	}
	s := &Stream{ctx: c}
	if err := c.check(C.gdr_stream_open(c.c, &s.c), "make a stream"); err != nil {
		c.end("streams")
		return nil, err
	}
	return s, nil
}

// errOtherGPU refuses objects of another Context, which are invalid in this one.
var errOtherGPU = errors.New("of another context")

// ToDevice queues a copy of src to offset of dst. src must not be on the Go heap. If
// src is not pinned, the copy may block.
func (s *Stream) ToDevice(dst *Memory, offset int, src []byte) error {
	return s.with(dst, offset, len(src), func(addr C.uint64_t) error {
		rc := C.gdr_copy_to_device(s.ctx.c, s.c, addr, unsafe.Pointer(&src[0]), C.size_t(len(src)))
		if rc != 0 {
			return s.ctx.failed(rc, "copy %d bytes to the GPU", len(src))
		}
		return nil
	})
}

// ToHost queues a copy of len(dst) bytes at offset of src to dst. dst must not
// be on the Go heap. If dst is not pinned, the copy may block.
func (s *Stream) ToHost(dst []byte, src *Memory, offset int) error {
	return s.with(src, offset, len(dst), func(addr C.uint64_t) error {
		rc := C.gdr_copy_to_host(s.ctx.c, s.c, unsafe.Pointer(&dst[0]), addr, C.size_t(len(dst)))
		if rc != 0 {
			return s.ctx.failed(rc, "copy %d bytes from the GPU", len(dst))
		}
		return nil
	})
}

// Copy queues a copy of n bytes within the GPU. The ranges must not overlap.
func (s *Stream) Copy(dst *Memory, dstOffset int, src *Memory, srcOffset, n int) error {
	if _, err := dst.at(dstOffset, n); err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	return s.with(src, srcOffset, n, func(from C.uint64_t) error {
		return s.with(dst, dstOffset, n, func(to C.uint64_t) error {
			rc := C.gdr_copy(s.ctx.c, s.c, to, from, C.size_t(n))
			if rc != 0 {
				return s.ctx.failed(rc, "copy %d bytes on the GPU", n)
			}
			return nil
		})
	})
}

// with calls queue with the address of n bytes of m, while neither m nor the stream can
// be closed. If n is 0 it does nothing.
func (s *Stream) with(m *Memory, offset, n int, queue func(C.uint64_t) error) error {
	addr, err := m.at(offset, n)
	if err != nil {
		return fmt.Errorf("copy: %w", err)
	}
	if m.ctx != s.ctx {
		return fmt.Errorf("copy: memory %w", errOtherGPU)
	}
	if err := s.use(); err != nil {
		return fmt.Errorf("copy in a stream: %w", err)
	}
	defer s.release()
	if err := m.use(); err != nil {
		return fmt.Errorf("copy GPU memory: %w", err)
	}
	defer m.release()
	if n == 0 {
		return nil
	}
	return queue(addr)
}

// Record places m after all work that is queued now. If m was recorded before,
// only the last Record counts.
func (s *Stream) Record(m *Mark) error {
	if m.ctx != s.ctx {
		return fmt.Errorf("record: mark %w", errOtherGPU)
	}
	if err := s.use(); err != nil {
		return fmt.Errorf("record in a stream: %w", err)
	}
	defer s.release()
	if err := m.use(); err != nil {
		return fmt.Errorf("record a mark: %w", err)
	}
	defer m.release()
	// The word is written first: once the mark is reached, the word has been written.
	if m.word != nil {
		s.ctx.words.queue(s, m.word)
	}
	return s.ctx.check(C.gdr_mark_record(s.ctx.c, m.c, s.c), "record a mark")
}

// Wait blocks until all queued work is done, or the Context's life ends.
func (s *Stream) Wait() error { return s.wait(s.ctx.life, patience) }

// Drain is Wait, for use before the memory of the work is closed. It does not end with
// the Context's life. It blocks for 5 s at most; then the driver counts as lost. Once
// the driver is lost, Drain does nothing.
func (s *Stream) Drain() error {
	if s.ctx.Lost() != nil {
		return nil
	}
	return s.ctx.endedWait(s.wait(context.Background(), closePatience))
}

func (s *Stream) wait(ctx context.Context, limit time.Duration) error {
	if err := s.use(); err != nil {
		return fmt.Errorf("wait for a stream: %w", err)
	}
	defer s.release()
	return s.ctx.poll(ctx, limit, "wait for a stream", nil, func() C.int { return C.gdr_stream_query(s.ctx.c, s.c) })
}

// Close ends the stream. The GPU still does the queued work, but Close does not wait
// for it. Close blocks while other goroutines are in the stream's methods. Closing
// again does nothing.
func (s *Stream) Close() error {
	return s.close(func() error {
		rc := s.ctx.closing("close a stream", func() C.int { return C.gdr_stream_close(s.ctx.c, s.c) })
		s.ctx.end("streams")
		return s.ctx.ended(rc, "close a stream")
	})
}

// Mark is a position in a stream that a goroutine can wait for.
type Mark struct {
	handle
	ctx  *Context
	c    *C.struct_abi_event
	word *word // nil without one
}

// NewMark creates a mark. Until it is recorded, waiting for it returns immediately.
func (c *Context) NewMark() (*Mark, error) {
	if err := c.begin("marks"); err != nil {
		return nil, err
	}
	m := &Mark{ctx: c}
	if err := c.check(C.gdr_mark_open(c.c, &m.c), "make a mark"); err != nil {
		c.end("marks")
		return nil, err
	}
	return m, nil
}

// NewWordMark is NewMark for waits that should end soon after the work: the
// stream also writes a word of host memory, and a wait reads it before it calls
// the driver. A Record needs one more operation in the stream. If the driver
// (before CUDA 11.7) or the GPU cannot write words, it is an ordinary mark.
func (c *Context) NewWordMark() (*Mark, error) {
	m, err := c.NewMark()
	if err == nil {
		m.word = c.words.take()
	}
	return m, err
}

// Wait blocks until the work before the last Record of the mark is done, or the
// Context's life ends.
func (m *Mark) Wait() error { return m.wait(m.ctx.life, patience) }

func (m *Mark) wait(ctx context.Context, limit time.Duration) error {
	if err := m.use(); err != nil {
		return fmt.Errorf("wait for a mark: %w", err)
	}
	defer m.release()
	var glance func() bool
	if m.word != nil {
		glance = m.word.written
	}
	return m.ctx.poll(ctx, limit, "wait for a mark", glance, func() C.int { return C.gdr_mark_query(m.ctx.c, m.c) })
}

// Close ends the mark. It blocks while others wait for the mark. Closing again does
// nothing.
func (m *Mark) Close() error {
	return m.close(func() error {
		m.ctx.words.give(m.word)
		rc := m.ctx.closing("close a mark", func() C.int { return C.gdr_mark_close(m.ctx.c, m.c) })
		m.ctx.end("marks")
		return m.ctx.ended(rc, "close a mark")
	})
}
