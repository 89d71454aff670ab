package chunker

import (
	"sync"
	"sync/atomic"
)

// dirHandle is an open directory of a sink, and what the sink knows of it.
type dirHandle struct {
	keptDir
	fresh bool // made by this sink, so nothing foreign is in it
	// searchOnly: it may be searched, and not read; see opendir.go.
	searchOnly bool
	swept      sync.Once // leftovers were looked for
	// journals: when they were looked for, there were partial files.
	journals atomic.Bool
	folding  atomic.Uint32
	spelt    uint64                 // its number among those in spellings, whose lock guards it, or 0
	device   atomic.Pointer[device] // once it was asked for
	adds     struct {
		once sync.Once
		only bool
	}
	// tried is which permission bits new files here had, by those that they were made with.
	triedMu sync.Mutex
	tried   map[uint32]uint32
}

// newDirHandle takes over fd and returns a handle with one reference.
func newDirHandle(fd int, path string) (*dirHandle, error) {
	h := new(dirHandle)
	return h, h.begin(fd, path)
}

func (h *dirHandle) retain() *dirHandle {
	h.keptDir.retain()
	return h
}

func (h *dirHandle) release() {
	if h != nil {
		h.keptDir.release()
	}
}

// MayOpen bounds the directories that the sink keeps open. Call it before Place.
func (s *Sink) MayOpen(b Budget) { s.dirs.budget = b }
