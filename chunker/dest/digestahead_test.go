package dest

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// digested is a file with a hole in the middle, to be read by pieces, and what it holds.
func digested(t *testing.T) (pieceFile, []byte) {
	t.Helper()
	const pieces, holeFrom, holeTo = 40, 10, 20
	data := treetest.RandomBytes(pieces*partialPiece - 7)
	clear(data[holeFrom*partialPiece : holeTo*partialPiece])
	f, err := os.Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	for _, part := range [][2]int{{0, holeFrom * partialPiece}, {holeTo * partialPiece, len(data)}} {
		if _, err := f.WriteAt(data[part[0]:part[1]], int64(part[0])); err != nil {
			t.Fatal(err)
		}
	}
	r, err := newDiskReader(int(f.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	return pieceFile{r, manifest.XXH3, partialPiece, int64(len(data))}, data
}

// TestDigestsComeInOrder: whatever is read at once, digests come as they were asked for.
func TestDigestsComeInOrder(t *testing.T) {
	treetest.NoLeaks(t)
	file, data := digested(t)
	want := func(i uint64) manifest.Digest {
		return file.hash.Piece(data[i*partialPiece:min((i+1)*partialPiece, uint64(len(data)))], i, partialPiece, false)
	}
	a := startDigests(file, newReadPlaces(2), func(add func(first, pieces uint64, hole bool) bool) {
		for i := uint64(0); i < 40; i++ {
			if i == 10 {
				add(i, 10, true)
				i = 19
				continue
			}
			add(i, 1, false)
		}
	})
	defer a.close()
	at := uint64(0)
	for p := a.next(); p != nil; p = a.next() {
		if p.err != nil || p.first != at || p.digest != want(at) || p.hole != (at == 10) {
			t.Fatalf("at piece %d came %+v", at, p)
		}
		at += p.pieces
	}
	if at != 40 {
		t.Errorf("%d pieces came", at)
	}
}

// TestDigestsEndEarly: who wants no more ends what is under way.
func TestDigestsEndEarly(t *testing.T) {
	treetest.NoLeaks(t)
	file, _ := digested(t)
	asked := uint64(0)
	a := startDigests(file, newReadPlaces(2), func(add func(first, pieces uint64, hole bool) bool) {
		for add(asked%40, 1, false) {
			asked++
		}
	})
	for range 3 {
		if p := a.next(); p == nil || p.err != nil {
			t.Fatalf("%+v", p)
		}
	}
	a.close()
	if asked > 100 {
		t.Errorf("%d pieces were read for 3", asked)
	}
}

// TestDigestsOfAFileThatCannotBeRead: the error is that of its piece.
func TestDigestsOfAFileThatCannotBeRead(t *testing.T) {
	treetest.NoLeaks(t)
	file, _ := digested(t)
	file.from = &diskReader{fd: -1, direct: -1}
	a := startDigests(file, newReadPlaces(2), func(add func(first, pieces uint64, hole bool) bool) { add(0, 1, false) })
	defer a.close()
	if p := a.next(); p == nil || p.err == nil {
		t.Errorf("%+v", p)
	}
	if p := a.next(); p != nil {
		t.Errorf("then came %+v", p)
	}
}

// TestFilesThatShareAPlace: several files that are read at once, by more goroutines than there
// are places, all come to their end, and leave no memory behind.
func TestFilesThatShareAPlace(t *testing.T) {
	treetest.NoLeaks(t)
	places := newReadPlaces(1)
	var running sync.WaitGroup
	for range 4 {
		file, data := digested(t)
		running.Go(func() {
			a := startDigests(file, places, func(add func(first, pieces uint64, hole bool) bool) {
				for i := range uint64(40) {
					add(i, 1, false)
				}
			})
			defer a.close()
			for i := range uint64(40) {
				want := file.hash.Piece(data[i*partialPiece:min((i+1)*partialPiece, uint64(len(data)))], i, partialPiece, false)
				if p := a.next(); p == nil || p.err != nil || p.digest != want {
					t.Errorf("piece %d: %+v", i, p)
					return
				}
			}
		})
	}
	running.Wait()
	if len(places.mems) > 0 || len(places.taken) > 0 || places.files != 0 {
		t.Errorf("%d places are taken, %d have memory, %d files", len(places.taken), len(places.mems), places.files)
	}
}

// TestPlaceThatIsLargerThanAPiece: no more than a piece is read to it. A file that was copied in
// larger parts may have left it.
func TestPlaceThatIsLargerThanAPiece(t *testing.T) {
	treetest.NoLeaks(t)
	file, _ := digested(t)
	if file.from.direct < 0 {
		t.Skip("a file system that cannot be read past the page cache")
	}
	places := newReadPlaces(1)
	places.begin()
	defer places.end()
	mem, err := places.take(nil, partBytes)
	if err != nil {
		t.Fatal(err)
	}
	places.give(mem)
	a := startDigests(file, places, func(add func(first, pieces uint64, hole bool) bool) { add(0, 1, false) })
	if p := a.next(); p == nil || p.err != nil {
		t.Errorf("%+v", p)
	}
	a.close()
	if !isZero(mem[partialPiece:]) {
		t.Errorf("more than a piece of %d bytes was read", partialPiece)
	}
}
