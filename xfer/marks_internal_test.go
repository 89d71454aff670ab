package xfer

import (
	"errors"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// TestRestBetweenMarks: a disk that takes long for a mark gets a rest, but not while a lot of data
// arrives.
func TestRestBetweenMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			arrived int64
			want    time.Duration
		}{{markBytes, longestRest}, {restBytes, 0}} {
			k := &sink{mark: make(chan struct{}, 1), drained: make(chan struct{})}
			k.unmarked.Store(c.arrived)
			k.mark <- struct{}{}
			from := time.Now()
			k.restFromMarks(t.Context(), longestRest)
			if got := time.Since(from); got != c.want {
				t.Errorf("after %d bytes it rests for %v, want %v", c.arrived, got, c.want)
			}
		}
	})
}

// TestMarkOnAFullDisk: a disk that reports only at a sync that it is full, like a server's, ends
// the copy, like one that reports it immediately. Another error ends the file.
func TestMarkOnAFullDisk(t *testing.T) {
	for errno, ends := range map[syscall.Errno]bool{syscall.ENOSPC: true, syscall.EDQUOT: true, syscall.EIO: false} {
		t.Run(errno.Error(), func(t *testing.T) {
			var told atomic.Int32
			dir := fusetest.MountUnsynced(t, t.TempDir(), func(name string) syscall.Errno {
				if strings.Contains(name, "journal") {
					return 0
				}
				return syscall.Errno(told.Load())
			})
			store, err := dest.Open(dest.Options{Dest: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			e := &sinkEntry{}
			e.Entry = manifest.Entry{Type: manifest.File, Path: "f", Size: 4 << 20, Mode: 0o600}
			e.Source = wire.SourceMark{1}
			if err := store.Place(&e.Entry, e.Path); err != nil {
				t.Fatal(err)
			}
			if e.temp, err = store.CreatePartial(&e.Entry, nil, &dest.Partial{Source: e.Source, Hash: manifest.XXH3, PieceBytes: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			temp := e.temp
			if _, err := temp.WriteAt(make([]byte, 1<<20), 0); err != nil {
				t.Fatal(err)
			}
			temp.Verified(0, dest.PieceRun{Pieces: 1})
			told.Store(int32(errno))
			k := &sink{mark: make(chan struct{}, 1), drained: make(chan struct{})}
			k.window.table[0] = e
			k.mark <- struct{}{}
			time.AfterFunc(300*time.Millisecond, func() { close(k.drained) })
			if err := k.markPartials(t.Context()); errors.Is(err, fileset.ErrNoSpace) != ends || !ends && err != nil {
				t.Errorf("the copy ends with %v", err)
			}
			if over, _ := e.hasEnded(); over == ends {
				t.Errorf("the file has ended: %t", over)
			}
			if err := temp.Discard(); err != nil {
				t.Error(err)
			}
		})
	}
}
