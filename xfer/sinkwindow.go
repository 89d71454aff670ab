package xfer

import (
	"fmt"
	"sync"
)

// sinkWindow holds the entries that were announced and have not settled. The workers, the
// publisher, and the goroutines that talk and settle use it.
type sinkWindow struct {
	mu         sync.Mutex
	table      [entryWindow]*sinkEntry // from settled on, by id modulo entryWindow
	announced  uint64
	planned    uint64 // number of announced entries whose data may come
	settled    uint64
	ended      bool
	placed     bool
	totalKnown bool // the sink has received a total: plans may go out
	// xattrs have arrived for entries that are not announced yet. xattrBytes counts them, and those
	// of entries that were announced and have not settled.
	xattrs     pendingXattrs
	xattrBytes int
}

func (k *sink) settledUpTo() uint64 {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	return k.window.settled
}

// entry returns the entry of that id. It is nil if the entry has ended. The error says that the
// entry was never announced.
func (k *sink) entry(id uint64) (*sinkEntry, error) {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	if id >= k.window.announced {
		return nil, fmt.Errorf("%w: data of entry %d, %d are announced", ErrProtocol, id, k.window.announced)
	}
	return k.entryLocked(id), nil
}

// entryOfData returns the entry of data in a chunk, like entry. Before the source was told that the
// data may come, this end may still report what it has of it.
func (k *sink) entryOfData(id uint64) (*sinkEntry, error) {
	k.window.mu.Lock()
	defer k.window.mu.Unlock()
	if id >= k.window.planned {
		return nil, fmt.Errorf("%w: data of entry %d, those of %d may come", ErrProtocol, id, k.window.planned)
	}
	return k.entryLocked(id), nil
}

func (k *sink) entryLocked(id uint64) *sinkEntry {
	if id < k.window.settled {
		return nil
	}
	return k.window.table[id%entryWindow]
}
