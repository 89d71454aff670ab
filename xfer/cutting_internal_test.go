package xfer

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

const smallBytes, someLargeBytes = 1 << 20, largeBytes + 5

// cutSource is a source with accepted files of these sizes.
func cutSource(transfers int, sizes ...int64) *source {
	terms := wire.Terms{ChunkBytes: 1 << 20, PieceBytes: 1 << 20, Slots: 4, Transfers: transfers}
	s := newSource(&flow.Session{Session: &link.Session{}, Terms: terms}, nil, nil, nil)
	for id, size := range sizes {
		s.window.table[id] = &srcEntry{entryState: entryState{id: uint64(id), AnnouncedEntry: wire.AnnouncedEntry{Entry: manifest.Entry{Type: manifest.File, Size: size}}}}
	}
	s.window.announced, s.window.accepted = uint64(len(sizes)), uint64(len(sizes))
	return s
}

// cutOne cuts a chunk and returns the files that it contains, in order.
func cutOne(t *testing.T, s *source) (files []uint64) {
	t.Helper()
	var c outChunk
	if err := s.cutChunk(&c); err != nil {
		t.Fatal(err)
	}
	s.nextTurnLocked(&c)
	for _, x := range c.Extents {
		files = append(files, x.Entry)
	}
	return files
}

// TestLargeFilesTakeTurns: several large files are in progress, and one small file. A file that
// ends makes room for the next.
func TestLargeFilesTakeTurns(t *testing.T) {
	const chunks = largeBytes>>20 + 1
	s := cutSource(2, smallBytes, smallBytes, someLargeBytes, someLargeBytes, someLargeBytes, smallBytes)
	for n, want := range [][]uint64{{0}, {1}, {2}, {3}, {2}, {3}} {
		if got := cutOne(t, s); !slices.Equal(got, want) {
			t.Fatalf("chunk %d is of files %v, want %v", n, got, want)
		}
	}
	for range (chunks - 2 - 1) * 2 {
		cutOne(t, s)
	}
	// The last chunk of a file has room for the beginning of the next one.
	var last []uint64
	for len(last) < 2*chunks+1 {
		files := cutOne(t, s)
		if len(files) == 0 {
			break
		}
		last = append(last, files...)
	}
	if !slices.Contains(last, 2) || !slices.Contains(last, 3) || !slices.Contains(last, 4) || !slices.Contains(last, 5) {
		t.Errorf("then came extents of files %v", last)
	}
	if s.nextFile() != nil || len(s.window.cutting.large) != 0 {
		t.Errorf("files are left: %v", s.window.cutting.large)
	}
}

func TestOneFileAfterTheOther(t *testing.T) {
	s := cutSource(1, someLargeBytes, smallBytes, someLargeBytes)
	var order []uint64
	for s.nextFile() != nil {
		order = append(order, cutOne(t, s)...)
	}
	if got := slices.Compact(order); !slices.Equal(got, []uint64{0, 1, 2}) {
		t.Errorf("files came in the order %v", got)
	}
}

// TestFilesThatAreGivenUpLoseTheirTurn: the sink may give up a file halfway. Then its place in the
// window is empty, or another file's.
func TestFilesThatAreGivenUpLoseTheirTurn(t *testing.T) {
	s := cutSource(3, someLargeBytes, someLargeBytes, someLargeBytes, someLargeBytes)
	cutOne(t, s)
	cutOne(t, s)
	s.window.table[0] = nil
	s.window.table[1] = &srcEntry{entryState: entryState{id: 1 + entryWindow}}
	for range 6 {
		if got := cutOne(t, s); len(got) != 1 || got[0] < 2 {
			t.Fatalf("a chunk of files %v", got)
		}
	}
}

// TestEveryPieceIsCutOnce: whatever the sizes and the number of files in parallel, each file is cut
// from its beginning to its end without a gap, and no more large files than permitted are in
// progress.
func TestEveryPieceIsCutOnce(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 1))
			sizes := make([]int64, 1+r.IntN(20))
			for i := range sizes {
				sizes[i] = 1 + r.Int64N([]int64{100, 3 << 20, 40 << 20}[r.IntN(3)])
			}
			most := 1 + r.IntN(5)
			s, at := cutSource(most, sizes...), make([]int64, len(sizes))
			for s.nextFile() != nil {
				var c outChunk
				if err := s.cutChunk(&c); err != nil {
					t.Fatal(err)
				}
				s.nextTurnLocked(&c)
				if len(c.Extents) == 0 {
					t.Fatal("an empty chunk while files are left")
				}
				for i, x := range c.Extents {
					if x.Off != at[x.Entry] || c.Of.files[i].id != x.Entry || (x.Flags&wire.ExtLast != 0) != (x.Off+x.Length == sizes[x.Entry]) {
						t.Fatalf("file %d of %d bytes, at %d: %+v", x.Entry, sizes[x.Entry], at[x.Entry], x)
					}
					at[x.Entry] += x.Length
				}
				under := 0
				for i, size := range sizes {
					if size >= largeBytes && at[i] > 0 && at[i] < size {
						under++
					}
				}
				if under > most {
					t.Fatalf("%d large files are under way, %d may be", under, most)
				}
			}
			if !slices.Equal(at, sizes) {
				t.Errorf("cut were %v of %v", at, sizes)
			}
		})
	}
}

// TestStreamGivenUpIsNotCut: the sink may give up a stream just before it is cut.
func TestStreamGivenUpIsNotCut(t *testing.T) {
	s := cutSource(1, wire.StreamBytes)
	s.stream = &streamSource{src: s, bytes: 1 << 20, read: []streamChunk{{length: 1}}, held: map[int64]int{}}
	s.window.table[0] = nil
	if files := cutOne(t, s); len(files) > 0 {
		t.Errorf("a chunk of %v", files)
	}
}
