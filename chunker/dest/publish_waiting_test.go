package dest

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// A whole file is not given up where there is no descriptor for a moment to ask with what
// close(2) tells. All files of a batch together wait no longer than two seconds, and not
// once the copy is to stop.
func TestPublishWaitsForDescriptors(t *testing.T) {
	for _, c := range []struct {
		name      string
		lacks     unix.Errno
		calls     int // that fail
		stopped   bool
		want      error
		atMost    time.Duration
		published bool
	}{
		{name: "a moment", lacks: unix.EMFILE, calls: 5, atMost: 3 * descriptorPause, published: true},
		{name: "for good", lacks: unix.ENFILE, calls: 1 << 30, want: unix.ENFILE, atMost: 2 * time.Second},
		{name: "stopped", lacks: unix.EMFILE, calls: 1 << 30, stopped: true, want: context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				dir := t.TempDir()
				s := sinkInto(t, dir, Options{})
				s.deviceOf(s.base).tells = false // as on NFS or FUSE
				stop := make(chan struct{})
				if c.stopped {
					close(stop)
				}
				s.Watch(Watch{Stop: stop})
				var calls atomic.Int64
				s.calls.flush = func(fd int) error {
					if calls.Add(1) <= int64(c.calls) {
						return c.lacks
					}
					return fsys.Flush(fd)
				}
				temps := beginAll(t, s, "f", "g", "h")
				began := time.Now()
				for i, err := range s.Publish(temps) {
					if !errors.Is(err, c.want) {
						t.Errorf("%s: %v", temps[i].path, err)
					}
				}
				if took := time.Since(began); took > c.atMost {
					t.Errorf("it took %v", took)
				}
				if got := treetest.ListTree(t, dir); (len(got) == len(temps)) != c.published {
					t.Errorf("there is %q", got)
				}
			})
		})
	}
}

// A file that is whole, and that the end of the copy keeps from being published, is one that a
// later copy goes on with, as one that is not whole.
func TestStoppedPublishKeepsWhatArrived(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	f := newPartialFile("f", 40)
	s := sinkInto(t, dir, Options{})
	stop := make(chan struct{})
	s.Watch(Watch{Stop: stop})
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	for i := range f.pieces() {
		f.write(t, temp, i)
	}
	temp.ReadBack(Content{Hash: f.partial.Hash, PieceBytes: partialPiece, Root: f.root(uint64(f.pieces()))})
	small := beginAll(t, s, "g")[0] // without a journal
	small.ReadBack(Content{Hash: f.partial.Hash, PieceBytes: partialPiece})
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	close(stop)
	for i, err := range s.Publish([]*Temp{temp, small}) {
		if !errors.Is(err, context.Canceled) {
			t.Errorf("file %d: %v", i, err)
		}
	}
	if got := f.goOn(t, sinkInto(t, dir, Options{}), &f.partial); got != uint64(f.pieces()) {
		t.Errorf("%d pieces of %d were kept", got, f.pieces())
	}
	f.wantPublished(t, dir)
}
