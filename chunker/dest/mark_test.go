package dest

import (
	"errors"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// TestMarksOnADiskThatTellsWhenClosed: where closing tells errors that fsync(2) does not, a
// mark asks for those. Where there is no descriptor to ask with, it says nothing.
func TestMarksOnADiskThatTellsWhenClosed(t *testing.T) {
	for errno, lost := range map[unix.Errno]bool{unix.EIO: true, unix.EMFILE: false} {
		t.Run(errno.Error(), func(t *testing.T) {
			f := newPartialFile("f", 4)
			s := sinkInto(t, t.TempDir(), Options{})
			temp, err := s.CreatePartial(f.entry, nil, &f.partial)
			if err != nil {
				t.Fatal(err)
			}
			s.deviceOf(temp.dir).tells = false
			f.write(t, temp, 0, 1)
			flush := s.calls.flush
			s.calls.flush = func(int) error { return errno }
			if err := temp.Mark(); lost != errors.Is(err, errno) {
				t.Errorf("a mark met %v", err)
			}
			s.calls.flush = flush
			f.write(t, temp, 2, 3)
			err = errors.Join(temp.Mark(), temp.Finish(), s.Publish([]*Temp{temp})[0])
			if lost != errors.Is(err, errno) || !lost && err != nil {
				t.Errorf("in the end: %v", err)
			}
		})
	}
}

// A file that is being read back must not hold up the marks of the others.
func TestMarkWhileAnotherIsReadBack(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	const piece, pieces = 64 << 10, 40
	content := treetest.RandomBytes(piece * pieces)
	p := &Partial{Source: [16]byte{1}, Hash: manifest.XXH3, PieceBytes: piece}
	e := fileEntry("f", string(content))
	temp, err := s.CreatePartial(e, nil, p)
	if err != nil {
		t.Fatal(err)
	}
	tree := manifest.NewTree(p.Hash)
	for i := range pieces {
		b := content[i*piece : (i+1)*piece]
		if _, err := temp.WriteAt(b, int64(i)*piece); err != nil {
			t.Fatal(err)
		}
		d := p.Hash.Piece(b, uint64(i), piece, false)
		tree.PushRun(d, 1)
		temp.Verified(uint64(i), PieceRun{Digest: d, Pieces: 1})
	}
	temp.ReadBack(Content{Hash: p.Hash, PieceBytes: piece, Root: tree.Root()})
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	s.Watch(Watch{Step: func() {
		once.Do(func() {
			marked := make(chan error, 1)
			go func() { marked <- temp.Mark() }()
			select {
			case err := <-marked:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("the mark waits for a file that is read back")
			}
		})
	}})
	if err := s.Publish([]*Temp{temp})[0]; err != nil {
		t.Fatal(err)
	}
}
