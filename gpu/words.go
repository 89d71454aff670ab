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
	// wordStride keeps words that different goroutines read in separate cache lines.
	wordStride = 64
)

// words is pinned host memory of one GPU, divided into numbers that streams write.
type words struct {
	own *Context
	mem []byte
	// refused is set when the driver has refused a write; then no further one is tried.
	refused atomic.Bool

	made int // number of words created

	mu   sync.Mutex
	free []*word
}

// word is a number in host memory. A stream writes it after its work, so that a
// goroutine can see without calling the driver that the work is done.
type word struct {
	at   *uint32
	addr uint64        // the GPU's address for it
	last atomic.Uint32 // the number that was or will be written last; it increases from user to user
	// queued is the last number that the driver accepted. A stream may write up to it.
	queued atomic.Uint32
}

// newWords creates the words of a GPU. Without them marks wait by calling the driver, so
// it is not an error if the GPU cannot access host memory: then the result is nil.
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
		// The end of the context reports the driver's error again.
		_ = w.close()
		return nil
	}
	for at := 0; at < wordsBytes; at += wordStride {
		w.free = append(w.free, &word{at: (*uint32)(unsafe.Pointer(&mem[at])), addr: uint64(addr) + uint64(at)})
	}
	w.made = len(w.free)
	return w
}

// close frees the words. No mark may use one. It is bounded like Context.closing.
func (w *words) close() error {
	if w == nil {
		return nil
	}
	rc := w.own.closing("unpin memory", func() C.int { return C.gdr_unpin(w.own.c, unsafe.Pointer(&w.mem[0])) })
	w.mu.Lock()
	back := len(w.free) == w.made
	w.mu.Unlock()
	// A GPU may still write a word that was not returned, or all of them if it hangs.
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

// take returns an unused word, or nil, for example if the driver accepts no writes.
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

// give returns a word. One that may still be written remains unused.
func (w *words) give(back *word) {
	if back == nil || atomic.LoadUint32(back.at) != back.queued.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.free = append(w.free, back)
}

// queue has a stream write the next number. If the driver refuses, the number
// is never written.
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

// written reports whether the last number has been written. Then all earlier work of the
// stream is visible (cuStreamWriteValue32: a fence like __threadfence_system).
func (w *word) written() bool { return atomic.LoadUint32(w.at) == w.last.Load() }
