package xfer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// Two copies in place to one file exclude each other: what was compared before this one had
// the file's lock must not count as what the file holds once it has.
func TestInPlaceComparesUnderItsLock(t *testing.T) {
	const piece = 64 << 10
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	want := append(bytes.Repeat([]byte("a"), piece), bytes.Repeat([]byte("b"), piece)...)
	stands := append(bytes.Repeat([]byte("a"), piece), bytes.Repeat([]byte("x"), piece)...)
	if err := os.WriteFile(path, stands, 0o644); err != nil {
		t.Fatal(err)
	}
	// Another copy is writing the file in place.
	other, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(other.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	store, err := chunker.OpenSink(chunker.SinkOptions{Dest: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if err := store.Place(&manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}, "."); err != nil {
		t.Fatal(err)
	}
	terms := wire.Terms{Flags: wire.FlagChecksum | wire.FlagInPlace, PieceBytes: piece, ChunkBytes: 1 << 20, Hash: manifest.XXH3, Slots: 4}
	k := &sink{
		session: &session{terms: terms, tally: &Tally{}, workers: 1}, store: store, tally: &Tally{},
		results:  &copyResults{},
		finished: make(chan *sinkEntry, maxOpenFiles), openFiles: newFileTokens(8), progress: make(chan struct{}, 1), mark: make(chan struct{}, 1),
	}
	e := &sinkEntry{}
	e.Entry = manifest.Entry{Type: manifest.File, Path: "f", Size: 2 * piece, Mode: 0o644}
	e.AllocBytes = e.Size
	e.compareWith(k.basisPieces(e), &terms)
	w := &lander{sink: k, writers: 1}
	extent := func(i int64, flags uint16) wire.Extent {
		x := wire.Extent{Off: i * piece, Length: piece, Flags: flags}
		x.Digest = terms.DigestOf(&x, e.Size, want[i*piece:(i+1)*piece])
		return x
	}
	for i := range int64(2) {
		x := extent(i, wire.ExtDigest)
		e.addExtent(&x, nil, &terms, false)
	}
	e.last, e.booked, e.Root = true, e.Size, e.rootOf(manifest.Digest{})
	for i := range int64(2) {
		h := &wire.ChunkHeader{Extents: []wire.Extent{extent(i, wire.ExtDigest)}}
		good, err := w.landExtent(h, e, 0, nil)
		if err != nil || good != (i == 0) {
			t.Fatalf("piece %d: %v, %v", i, good, err)
		}
	}
	// The other copy writes on, and ends.
	if _, err := other.WriteAt(bytes.Repeat([]byte("z"), piece), 0); err != nil {
		t.Fatal(err)
	}
	other.Close()
	// The source sends what differs.
	h := &wire.ChunkHeader{Repair: true, Extents: []wire.Extent{extent(1, 0)}}
	if _, err := w.landExtent(h, e, 0, func(*sinkEntry, int) ([]byte, bool) { return want[piece:], true }); err != nil {
		t.Fatal(err)
	}
	select {
	case <-k.finished:
	default:
		if e.problem == nil {
			t.Fatal("neither complete nor failed")
		}
		return // an entry that fails is told
	}
	if err := store.Publish([]*chunker.Temp{e.temp})[0]; err != nil {
		return // likewise
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file counts as copied and verified, and begins with %q, want %q (%v)", got[:1], want[:1], err)
	}
}
