package chunker

import (
	"context"
	"sync"

	"golang.org/x/sys/unix"
)

// readPlaces are where pieces of files are read to, each in memory of its own. They bound how
// many are read at once: each may hold a thread in the kernel. Many goroutines may use them.
type readPlaces struct {
	taken chan struct{} // holds a token for each place that is taken

	mu    sync.Mutex
	files int      // which are being read
	mems  [][]byte // of places that are not taken; none where no files are being read
}

func newReadPlaces(n int) *readPlaces { return &readPlaces{taken: make(chan struct{}, n)} }

// begin says that a file is going to be read.
func (r *readPlaces) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.files++
}

// end says that a file has been read. The last one gives the memory back.
func (r *readPlaces) end() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.files--; r.files > 0 {
		return
	}
	for _, mem := range r.mems {
		_ = unix.Munmap(mem)
	}
	r.mems = nil
}

// take waits for a place and returns its memory, of at least so many bytes and of whole pages,
// as O_DIRECT wants it. The caller gives it back by give, and takes no other before that. Where
// stop is closed first, the error is context.Canceled.
func (r *readPlaces) take(stop <-chan struct{}, bytes int) ([]byte, error) {
	select {
	case r.taken <- struct{}{}:
	case <-stop:
		return nil, context.Canceled
	}
	r.mu.Lock()
	var mem []byte
	if last := len(r.mems) - 1; last >= 0 {
		mem, r.mems = r.mems[last], r.mems[:last]
	}
	r.mu.Unlock()
	if len(mem) >= bytes {
		return mem, nil
	}
	if mem != nil {
		_ = unix.Munmap(mem)
	}
	mem, err := unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		<-r.taken
	}
	return mem, err
}

// give gives a place back.
func (r *readPlaces) give(mem []byte) {
	r.mu.Lock()
	r.mems = append(r.mems, mem)
	r.mu.Unlock()
	<-r.taken
}
