package dest

import (
	"bytes"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// contentOf is what a file of these bytes must hold.
func contentOf(data []byte) Content {
	c := Content{Hash: manifest.XXH3, PieceBytes: partialPiece}
	tree := manifest.NewTree(c.Hash)
	for i := 0; i*partialPiece < len(data) || i == 0; i++ {
		tree.Push(c.Hash.Piece(data[i*partialPiece:min((i+1)*partialPiece, len(data))], uint64(i), partialPiece, len(data) <= partialPiece))
	}
	c.Root = tree.Root()
	return c
}

// finishedToReadBack writes a file f that is read back before it is published.
func finishedToReadBack(t *testing.T, s *Sink, data []byte) *Temp {
	t.Helper()
	temp, err := s.Create(fileEntry("f", string(data)), nil)
	if err != nil {
		t.Fatal(err)
	}
	temp.ReadBack(contentOf(data))
	if _, err := temp.WriteAt(data, 0); err != nil {
		t.Fatal(err)
	}
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	return temp
}

// TestFilesThatAreReadBack: a file gets its name if the disk has what was written, and
// not if any byte of it is another.
func TestFilesThatAreReadBack(t *testing.T) {
	treetest.NoLeaks(t)
	for _, size := range []int{0, 1, 4095, partialPiece, partialPiece + 1, 3*partialPiece + 5} {
		for damaged := -1; damaged < size; damaged += max(1, size/5) {
			dir := t.TempDir()
			s := sinkInto(t, dir, Options{})
			data := bytes.Repeat([]byte("content"), size/7+1)[:size]
			temp := finishedToReadBack(t, s, data)
			if damaged >= 0 {
				flip(t, thePartial(t, dir), int64(damaged), 0x40)
			}
			err := s.Publish([]*Temp{temp})[0]
			if damaged < 0 {
				got, readErr := os.ReadFile(filepath.Join(dir, "f"))
				if err != nil || readErr != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes: %v, %v", size, err, readErr)
				}
			} else if names := namesIn(t, dir); !errors.Is(err, ErrLost) || len(names) != 0 {
				t.Errorf("%d bytes, number %d another: %v, and there are %q", size, damaged, err, names)
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestEveryFlippedBitIsReadBack turns over one bit of each written file before the files
// are published: none gets its name. GDRCP_TEST_FULL=1 turns over 1000.
func TestEveryFlippedBitIsReadBack(t *testing.T) {
	treetest.NoLeaks(t)
	rng := rand.New(rand.NewPCG(uint64(crc32.ChecksumIEEE([]byte(os.Getenv("GDRCP_TEST_SEED")))), 1))
	flips, found := 100, 0
	if os.Getenv("GDRCP_TEST_FULL") == "1" {
		flips = 1000
	}
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	for range flips {
		data := make([]byte, 1+rng.IntN(3*partialPiece))
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		temp := finishedToReadBack(t, s, data)
		flip(t, thePartial(t, dir), int64(rng.IntN(len(data))), 1<<rng.IntN(8))
		if err := s.Publish([]*Temp{temp})[0]; errors.Is(err, ErrLost) && len(namesIn(t, dir)) == 0 {
			found++
		}
	}
	if found != flips {
		t.Errorf("%d bits were turned over, and %d found", flips, found)
	}
}
