package dest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
)

// On a file system that takes writes in order only, a file has what was written to it in any order,
// by several at once, with holes, whether it renames files or not.
func TestInOrder(t *testing.T) {
	const piece = 64 << 10
	for i, quirks := range []*fusetest.Quirks{
		{InOrder: syscall.EINVAL, RenameOpen: syscall.EBUSY},
		{InOrder: syscall.EOPNOTSUPP},
		{InOrder: syscall.EPERM, Rename: syscall.ENOSYS},
		{}, // one that takes all
	} {
		below := t.TempDir()
		dir := fusetest.MountQuirks(t, below, quirks)
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}})
		random := rand.New(rand.NewPCG(uint64(i), 7))
		for name, pieces := range map[string]int{"empty": 0, "small": 1, "large": 33} {
			want := make([]byte, pieces*piece-pieces/33*17)
			for off := 0; off < len(want); off += piece {
				if off/piece%5 != 3 { // else it is a hole
					fill := rand.NewChaCha8([32]byte{byte(off / piece)})
					fill.Read(want[off:min(off+piece, len(want))])
				}
			}
			e := fileEntry(name, string(want))
			temp, err := s.CreatePartial(e, nil, &Partial{PieceBytes: piece})
			if err != nil {
				t.Fatal(err)
			}
			temp.ExpectHoles()
			var wg sync.WaitGroup
			order := random.Perm(pieces)
			for worker := range 4 {
				wg.Go(func() {
					for k := worker; k < pieces; k += 4 {
						off := order[k] * piece
						p := want[off:min(off+piece, len(want))]
						var err error
						switch at := order[k]; {
						case at%5 != 3:
							_, err = temp.WriteSparse(p, int64(off))
						case at%2 == 0:
							err = temp.Hole(int64(off), int64(len(p)))
						}
						if err != nil {
							t.Errorf("case %d: %v", i, err)
						}
					}
				})
			}
			wg.Wait()
			for k := range pieces {
				if k%5 == 3 {
					temp.AllowHoles(int64(min(piece, len(want)-k*piece)))
				}
			}
			if err := temp.Mark(); err != nil {
				t.Error(err)
			}
			err = temp.Finish()
			if err == nil {
				err = s.Publish([]*Temp{temp})[0]
			}
			if err != nil {
				t.Fatalf("%s, case %d: %v", name, i, err)
			}
			if got, err := os.ReadFile(below + "/" + name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s, case %d: it has %d bytes, want %d: %v", name, i, len(got), len(want), err)
			}
		}
		names, err := os.ReadDir(below)
		if err != nil || len(names) != 3 {
			t.Errorf("case %d: there is %v, %v", i, names, err)
		}
		s.Close()
	}
}

// What is there is not compared or written in place, but comes anew, and a byte that comes twice is
// an error.
func TestInOrderRefuses(t *testing.T) {
	below := t.TempDir()
	dir := fusetest.MountQuirks(t, below, &fusetest.Quirks{InOrder: syscall.EINVAL})
	treetest.MakeTree(t, dir, "old=old")
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	e := fileEntry("old", strings.Repeat("n", 2*holeBytes))
	if temp, err := s.OpenInPlace(e, nil); temp != nil || err != nil {
		t.Errorf("in place: %v, %v", temp, err)
	}
	if b, err := s.OpenBasis(e, nil, 3); !errors.Is(err, fileset.ErrChanged) {
		t.Errorf("to compare: %v, %v", b, err)
	}
	temp, err := s.Create(e, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := temp.WriteAt(make([]byte, holeBytes), 0); err != nil {
		t.Error(err)
	}
	if _, err := temp.WriteAt(make([]byte, holeBytes), 0); !errors.Is(err, unix.ESPIPE) {
		t.Errorf("a second time: %v", err)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
	treetest.WantTree(t, below, "old=old")
}

// TestInOrderByAnyMode: nothing goes around the turns that writes wait for, whatever I/O mode is asked
// for. The one past the page cache is refused, as where the file system does not have it.
func TestInOrderByAnyMode(t *testing.T) {
	for _, refusal := range []syscall.Errno{0, syscall.EINVAL} { // 0: it would take every write
		for _, mode := range []fileset.IOMode{fileset.IOAuto, fileset.IODirect, fileset.IODontCache, fileset.IOBuffered} {
			below := t.TempDir()
			s := sinkInto(t, fusetest.MountQuirks(t, below, &fusetest.Quirks{InOrder: refusal}), Options{IO: mode})
			seeks := &s.deviceOf(s.base).refuses.seeks
			seeks.is, seeks.known = true, true
			want := make([]byte, 4<<20)
			rand.NewChaCha8([32]byte{byte(mode)}).Read(want)
			temp, err := s.Create(fileEntry("f", string(want)), nil)
			if err != nil {
				t.Fatal(err)
			}
			for off := 0; err == nil && off < len(want); off += 1 << 20 {
				_, err = temp.WriteAt(want[off:off+1<<20], int64(off))
			}
			refused := errors.Is(err, fileset.ErrNoIOMode)
			if refused && mode != fileset.IOAuto && mode != fileset.IOBuffered {
				err = temp.Discard()
			} else if err == nil {
				if err = temp.Finish(); err == nil {
					err = s.Publish([]*Temp{temp})[0]
				}
				if got, err := os.ReadFile(below + "/f"); err != nil || !bytes.Equal(got, want) {
					t.Errorf("%v: it has %d other bytes: %v", mode, len(got), err)
				}
			}
			if err != nil || refused != (mode == fileset.IODirect) && mode != fileset.IODontCache {
				t.Errorf("%v: refused %v: %v", mode, refused, err)
				_ = temp.Discard()
			}
		}
	}
}

// TestInOrderMisses: a file of which a part did not come is not finished with zeros in its place.
func TestInOrderMisses(t *testing.T) {
	below := t.TempDir()
	s := sinkInto(t, fusetest.MountQuirks(t, below, &fusetest.Quirks{InOrder: syscall.EINVAL}), Options{})
	full := bytes.Repeat([]byte("d"), holeBytes)
	for name, c := range map[string]struct {
		data, holes []int64 // blocks
		allow       int64
		good        bool
	}{
		"all":                     {data: []int64{2, 0, 1, 3}, good: true},
		"nothing":                 {},
		"the first is missing":    {data: []int64{1, 2, 3}},
		"one within is missing":   {data: []int64{3, 0, 1}},
		"the last is missing":     {data: []int64{0, 1, 2}},
		"a hole":                  {data: []int64{3, 0, 1}, holes: []int64{2}, allow: 1, good: true},
		"a hole that nobody told": {data: []int64{3, 0, 1}, allow: 1, good: true},
		"a hole, and one missing": {data: []int64{3, 0}, holes: []int64{2}, allow: 1},
		"only holes":              {allow: 4, good: true},
	} {
		temp, err := s.Create(fileEntry(name, strings.Repeat("d", 4*holeBytes)), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range c.data {
			_, werr := temp.WriteAt(full, at*holeBytes)
			err = errors.Join(err, werr)
		}
		for _, at := range c.holes {
			err = errors.Join(err, temp.Hole(at*holeBytes, holeBytes))
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		temp.AllowHoles(c.allow * holeBytes)
		if err := temp.Finish(); (err == nil) != c.good {
			t.Errorf("%s: finished: %v", name, err)
		}
		if err := temp.Discard(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestInOrderIsFoundOut: what a file system refuses is not learned from a directory that takes no
// file, nor from an error that may go away.
func TestInOrderIsFoundOut(t *testing.T) {
	for refusal, want := range map[syscall.Errno]bool{
		0: false, syscall.EIO: false, syscall.ESTALE: false, syscall.ENOSPC: false, syscall.EDQUOT: false,
		syscall.EINVAL: true, syscall.EOPNOTSUPP: true, syscall.ESPIPE: true, syscall.EPERM: true, syscall.ENOSYS: true,
	} {
		below := t.TempDir()
		s := sinkInto(t, fusetest.MountQuirks(t, below, &fusetest.Quirks{InOrder: refusal}), Options{})
		mkdirs(t, s, "gone")
		gone, err := s.dir("gone")
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(below + "/gone"); err != nil {
			t.Fatal(err)
		}
		if s.writesInOrder(gone) {
			t.Errorf("%v: learned from a directory that is gone", refusal)
		}
		gone.release()
		if got := s.writesInOrder(s.base); got != want {
			t.Errorf("%v: it is taken to refuse other writes: %v", refusal, got)
		}
		if known := s.deviceOf(s.base).refuses.seeks.known; known != (want || refusal == 0) {
			t.Errorf("%v: it is known for good: %v", refusal, known)
		}
	}
}

// TestBasisInOrder: a file system that turns out to take writes in order only after a file was opened
// to be compared gets no copy of a part of it.
func TestBasisInOrder(t *testing.T) {
	below := t.TempDir()
	treetest.MakeTree(t, below, "old="+strings.Repeat("o", 2*holeBytes))
	s := sinkInto(t, fusetest.MountQuirks(t, below, &fusetest.Quirks{}), Options{})
	e := fileEntry("old", strings.Repeat("n", 2*holeBytes))
	b, err := s.OpenBasis(e, nil, holeBytes)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	s.deviceOf(s.base).refuses.seeks.is = true
	if temp, err := b.Copy(); !errors.Is(err, fileset.ErrChanged) {
		if temp != nil {
			_ = temp.Discard()
		}
		t.Fatal("copied: ", err)
	}
	if temp, err := b.Clone(&Partial{PieceBytes: 2 * holeBytes}, holeBytes); temp != nil || err != nil {
		t.Error("cloned: ", err)
	}
	if names, err := os.ReadDir(below); err != nil || len(names) != 1 {
		t.Errorf("there is %v, %v", names, err)
	}
}
