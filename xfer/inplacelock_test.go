package xfer

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/dest"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// sinkOf returns a sink that writes to dir under those terms, with a store of its own.
func sinkOf(t *testing.T, dir string, terms wire.Terms) *sink {
	t.Helper()
	store, err := dest.Open(dest.Options{Dest: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Place(&manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}, "."); err != nil {
		t.Fatal(err)
	}
	return &sink{
		Session: &flow.Session{Session: &link.Session{}, Terms: terms, Tally: &Tally{}, Processors: 1}, store: store, tally: &Tally{}, results: &copyResults{},
		finished: make(chan *sinkEntry, maxOpenFiles), openFiles: newFileTokens(8), progress: make(chan struct{}, 1), mark: make(chan struct{}, 1),
	}
}

// comparedEntry returns an announced file of that size, which is compared with the sink's.
func comparedEntry(k *sink, path string, size int64) *sinkEntry {
	e := &sinkEntry{}
	e.Entry = manifest.Entry{Type: manifest.File, Path: path, Size: size, Mode: 0o644}
	e.AllocBytes = size
	e.compareWith(k.basisPieces(e), &k.Session.Terms)
	return e
}

// Two copies in place to one file exclude each other: a comparison from before this copy had the
// file's lock must not count afterwards.
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
	terms := wire.Terms{Flags: wire.FlagChecksum | wire.FlagInPlace, PieceBytes: piece, ChunkBytes: 1 << 20, Hash: manifest.XXH3, Slots: 4}
	k := sinkOf(t, dir, terms)
	e := comparedEntry(k, "f", 2*piece)
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
	// The other copy writes more, and ends.
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
		return // the failure of an entry is reported
	}
	if err := k.store.Publish([]*dest.Temp{e.temp})[0]; err != nil {
		return // likewise
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the file counts as copied and verified, and begins with %q, want %q (%v)", got[:1], want[:1], err)
	}
}

// Pieces of a file that grows in place are written in any order. While some are missing the file is
// shorter than the source's. Otherwise the same command would take it for complete.
func TestInPlaceIsShorterUntilItIsWhole(t *testing.T) {
	const piece = 64 << 10
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	want := make([]byte, 3*piece)
	for i := range want {
		want[i] = byte(i/piece + 1)
	}
	if err := os.WriteFile(path, want[:piece], 0o644); err != nil {
		t.Fatal(err)
	}
	terms := wire.Terms{Flags: wire.FlagAppend | wire.FlagInPlace, PieceBytes: piece, ChunkBytes: 1 << 20, Hash: manifest.XXH3, Slots: 4}
	k := sinkOf(t, dir, terms)
	e := comparedEntry(k, "log", 3*piece)
	w := &lander{sink: k, writers: 1}
	var pieces []wire.Extent
	for i := range int64(3) {
		x := wire.Extent{Off: i * piece, Length: piece}
		if i == 0 {
			x.Flags = wire.ExtDigest
		}
		x.Digest = terms.DigestOf(&x, e.Size, want[x.Off:][:piece])
		e.addExtent(&x, nil, &terms, false)
		pieces = append(pieces, x)
	}
	e.last, e.booked, e.Root = true, e.Size, e.rootOf(manifest.Digest{})
	for _, i := range []int{2, 0, 1} {
		if st, err := os.Stat(path); err != nil || st.Size() >= e.Size {
			t.Errorf("%d bytes before piece %d came: %v", st.Size(), i, err)
		}
		x := pieces[i]
		bytesOf := func(*sinkEntry, int) ([]byte, bool) { return want[x.Off:][:piece], true }
		if good, err := w.landExtent(&wire.ChunkHeader{Extents: []wire.Extent{x}}, e, 0, bytesOf); err != nil || !good {
			t.Fatalf("piece %d: %v, %v", i, good, err)
		}
	}
	if err := k.store.Publish([]*dest.Temp{e.temp})[0]; err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, or others than the source's: %v", len(got), err)
	}
}

// TestInPlaceWithAHoleAtTheEnd: a hole also leaves the last byte for later.
func TestInPlaceWithAHoleAtTheEnd(t *testing.T) {
	const piece = 64 << 10
	dir := t.TempDir()
	path := filepath.Join(dir, "log")
	if err := os.WriteFile(path, []byte("log"), 0o644); err != nil {
		t.Fatal(err)
	}
	k := sinkOf(t, dir, wire.Terms{Flags: wire.FlagAppend | wire.FlagInPlace, PieceBytes: piece, Hash: manifest.XXH3})
	e := &sinkEntry{}
	e.Entry = manifest.Entry{Type: manifest.File, Path: "log", Size: piece + 1, Mode: 0o644}
	temp, err := k.store.OpenInPlace(&e.Entry, nil)
	if err != nil || temp == nil {
		t.Fatal(temp, err)
	}
	for _, x := range []wire.Extent{{Off: piece, Length: 1}, {Length: piece + 1}} {
		if _, err := k.holeMaker(e, temp, &x)(nil, x.Off); err != nil {
			t.Error(err)
		}
		if st, err := os.Stat(path); err != nil || st.Size() >= e.Size {
			t.Errorf("%v: %v", st, err)
		}
	}
	if err := temp.Finish(); err != nil {
		t.Error(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != e.Size {
		t.Errorf("%v: %v", st, err)
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
}

// TestInPlaceOfAnEmptyFile: the file that it is written into may have appeared since the sink
// looked. It becomes empty, too.
func TestInPlaceOfAnEmptyFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := os.WriteFile(path, []byte("hello"), 0o644); err != nil {
		t.Fatal(err)
	}
	k := sinkOf(t, dir, wire.Terms{Flags: wire.FlagAppend | wire.FlagInPlace, PieceBytes: 64 << 10, ChunkBytes: 1 << 20, Hash: manifest.XXH3, Slots: 4})
	e := &sinkEntry{}
	e.Entry = manifest.Entry{Type: manifest.File, Path: "f", Mode: 0o644}
	e.last = true
	w := &lander{sink: k, writers: 1}
	x := wire.Extent{Flags: wire.ExtLast}
	x.Digest = k.Session.Terms.DigestOf(&x, 0, nil)
	good, err := w.landExtent(&wire.ChunkHeader{Extents: []wire.Extent{x}}, e, 0, func(*sinkEntry, int) ([]byte, bool) { return nil, true })
	if err != nil || !good || e.temp == nil || !e.temp.InPlace() {
		t.Fatalf("%v, %v, %+v", good, err, e.problem)
	}
	if err := k.store.Publish([]*dest.Temp{e.temp})[0]; err != nil {
		t.Fatal(err)
	}
	if st, err := os.Stat(path); err != nil || st.Size() != 0 {
		t.Errorf("%v: %v", st, err)
	}
}
