package xfer

import "testing"

// Whether a batch waits for more files depends on what may still come.
func TestAwaitsFiles(t *testing.T) {
	over := func() *sinkEntry { return &sinkEntry{over: true} }
	ready := func() *sinkEntry { return &sinkEntry{ready: true} }
	link := func() *sinkEntry {
		e := &sinkEntry{}
		e.Names.Several, e.Names.First = true, entryWindow // of another entry
		return e
	}
	tests := []struct {
		name    string
		settled uint64
		entries []*sinkEntry // from settled on; nil has ended and been reported
		ended   bool
		want    bool
	}{
		{"nothing announced", 0, nil, false, true},
		{"more entries may come", 0, []*sinkEntry{ready()}, false, true},
		{"nothing at all", 0, nil, true, false},
		{"a single file", 0, []*sinkEntry{ready()}, true, false},
		{"one file has bytes to come", 0, []*sinkEntry{ready(), over(), {}, ready()}, true, true},
		{"all complete or given up", 3, []*sinkEntry{ready(), over(), nil, ready()}, true, false},
		{"a link is made, not published", 0, []*sinkEntry{ready(), link()}, true, false},
		{"the table goes round", entryWindow - 1, []*sinkEntry{ready(), {}}, true, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			k := &sink{window: sinkWindow{settled: tt.settled, announced: tt.settled + uint64(len(tt.entries)), ended: tt.ended}}
			for i, e := range tt.entries {
				id := tt.settled + uint64(i)
				if e != nil {
					e.id = id
				}
				k.window.table[id%entryWindow] = e
			}
			if got := k.awaitsFiles(); got != tt.want {
				t.Errorf("awaits files: %t", got)
			}
		})
	}
}

// A worker holds the lock of its entry while it waits for the publisher to close other files. The
// publisher must not wait for it.
func TestAwaitsFilesOfBusyWorkers(t *testing.T) {
	e := &sinkEntry{ready: true}
	k := &sink{window: sinkWindow{announced: 1, ended: true}}
	k.window.table[0] = e
	e.mu.Lock()
	defer e.mu.Unlock()
	if !k.awaitsFiles() {
		t.Error("an entry that a worker has in hand is not awaited")
	}
}

// Every batch costs syncs: it takes all complete files, up to its bound, even if the time to wait
// for more is over.
func TestGatherTakesAllThatIsComplete(t *testing.T) {
	for _, ended := range []bool{true, false} {
		k := &sink{finished: make(chan *sinkEntry, maxOpenFiles), drained: make(chan struct{}), window: sinkWindow{ended: ended}}
		const files = maxBatch + 300
		for range files {
			k.finished <- &sinkEntry{}
		}
		for _, want := range []int{maxBatch, files - maxBatch} {
			if got := len(k.gather(t.Context(), nil)); got != want {
				t.Errorf("ended %t: a batch of %d files, %d are complete", ended, got, want)
			}
		}
	}
}
