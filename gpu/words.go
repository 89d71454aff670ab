//go:build linux && cgo

package gpu

/*
#include "shim.h"
*/
import "C"

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	wordsBytes = 64 << 10
	// wordStride keeps words that different goroutines look at in lines of their own of the
	// processor's cache.
	wordStride = 64
)

// words is pinned host memory of one GPU, shared out in numbers that streams write.
type words struct {
	own *Context
	mem []byte
	// refused is set when the driver takes no write, and no further one is tried.
	refused atomic.Bool

	made int // how many words there are

	mu   sync.Mutex
	free []*word
}

// word is a number in host memory. A stream writes it behind its work, so that a goroutine
// sees without a call of the driver that the work is done.
type word struct {
	at   *uint32
	addr uint64        // by which the GPU reaches it
	last atomic.Uint32 // what was written last, or is to be; it goes up for all users in turn
	// queued is the last number that the driver took. A stream may write up to it.
	queued atomic.Uint32
}

// newWords makes the words of a GPU. Without them marks wait by asking the driver, so a GPU
// that does not reach host memory is no error: then they are nil.
func newWords(own *Context) *words {
	mem, err := unix.Mmap(-1, 0, wordsBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil
	}
	var addr C.uint64_t
	rc := own.opening("pin memory", func() C.int { return C.gdr_pin(own.c, unsafe.Pointer(&mem[0]), wordsBytes, &addr) })
	w := &words{own: own, mem: mem}
	switch {
	case rc != 0:
		w.unmap()
		return nil
	case addr == 0:
		// What the driver says of a failure here it says again at the end of the context.
		_ = w.close()
		return nil
	}
	for at := 0; at < wordsBytes; at += wordStride {
		w.free = append(w.free, &word{at: (*uint32)(unsafe.Pointer(&mem[at])), addr: uint64(addr) + uint64(at)})
	}
	w.made = len(w.free)
	return w
}

// close ends the words. No mark may have one. It is bounded as Context.closing.
func (w *words) close() error {
	if w == nil {
		return nil
	}
	rc := w.own.closing("unpin memory", func() C.int { return C.gdr_unpin(w.own.c, unsafe.Pointer(&w.mem[0])) })
	w.mu.Lock()
	back := len(w.free) == w.made
	w.mu.Unlock()
	// A GPU may still write a word that did not come back, or all of them where it hangs.
	if rc == 0 && back {
		w.unmap()
	}
	return w.own.ended(rc, "unpin %d bytes of host memory", len(w.mem))
}

func (w *words) unmap() {
	if w.own.Lost() == nil {
		_ = unix.Munmap(w.mem)
	}
}

// take returns a word that nobody has, or nil, as where the driver takes no write.
func (w *words) take() *word {
	if w == nil || w.refused.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.free) - 1
	if n < 0 {
		return nil
	}
	taken := w.free[n]
	w.free = w.free[:n]
	return taken
}

// give takes a word back. One that may still be written stays unused.
func (w *words) give(back *word) {
	if back == nil || atomic.LoadUint32(back.at) != back.queued.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, back)
}

// queue has a stream write the next number. If the driver refuses, the number never comes.
func (w *words) queue(s *Stream, to *word) {
	n := to.last.Add(1)
	if w.refused.Load() {
		return
	}
	if rc := C.gdr_write_value(s.ctx.c, s.c, C.uint64_t(to.addr), C.uint32_t(n)); rc != 0 {
		w.refused.Store(true)
		return
	}
	to.queued.Store(n)
}

// written reports whether the last number has come. What the stream did before that is then
// visible (cuStreamWriteValue32: a fence like __threadfence_system).
func (w *word) written() bool { return atomic.LoadUint32(w.at) == w.last.Load() }
