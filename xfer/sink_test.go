package xfer_test

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// fewOpenFiles limits the open files in the test so that a sink has the least number that it can
// work with, 64 at a time.
func fewOpenFiles(t *testing.T) {
	t.Helper()
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 256, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &was); err != nil {
			t.Error(err)
		}
	})
}

// damagedTails damages the last piece of each file when it is sent for the first time, and lets
// nothing come back from the sink before so many chunks are in flight.
func damagedTails(chunks int) rdmatest.Faults {
	var mu sync.Mutex
	seen := make(map[int]bool)
	posted, all := 0, make(chan struct{})
	var hold sync.Once
	return rdmatest.Faults{
		Corrupt: func(p rdmatest.Posted) (int, bool) {
			if !isPayload(p) {
				return 0, false
			}
			mu.Lock()
			defer mu.Unlock()
			if posted++; posted == chunks {
				close(all)
			}
			first := p.WR.Len < 1<<20 && !seen[p.WR.Len]
			seen[p.WR.Len] = true
			return 0, first
		},
		Delay: func(rdma.Completion) time.Duration {
			mu.Lock()
			begun := posted > 0
			mu.Unlock()
			if begun {
				hold.Do(func() {
					select {
					case <-all:
					case <-time.After(rdmatest.Stretch(time.Second)):
					}
				})
			}
			return 0
		},
	}
}

// More files wait for a damaged piece than the sink may have open: the workers that receive their
// pieces must not all wait for others to be closed.
func TestMoreDamagedFilesThanMayBeOpen(t *testing.T) {
	xfer.OnHost(t)
	w := tcpWay(t)
	src, s := t.TempDir(), serve(t, w)
	const files = 80
	for i := range files {
		// Tails of different lengths, to distinguish them in transit.
		write(t, filepath.Join(src, fmt.Sprintf("f%02d", i)), randomBytes(t, 1<<20+600_000+i*64))
	}
	fewOpenFiles(t)
	o := w.options(t)
	o.Slots = 2 * files
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(15*time.Second))
	defer cancel()
	sum, err := w.client(damagedTails(2*files)).Push(ctx, []string{src}, s.ep, "copy", o)
	if err != nil {
		t.Fatal(err)
	}
	if sum.Files != files || !sum.Verified {
		t.Errorf("summary: %+v", sum)
	}
	sameTree(t, src, filepath.Join(s.root, "copy"))
	if end := s.lastEnd(t, 1); end.Summary.Repairs <= files {
		t.Errorf("%d pieces were sent again: none for want of a file to go to", end.Summary.Repairs)
	}
}
