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
		{InOrder: syscall.EIO, Rename: syscall.ENOSYS},
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
