package xfer

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// A further name of a file that has grown since its first name was announced is announced like the
// first name, if files may grow.
func TestNamesOfAGrowingFile(t *testing.T) {
	OnHost(t)
	was := fileset.Stamp{Size: 5, MtimeNs: 1, Ino: 7}
	for _, c := range []struct {
		now     fileset.Stamp
		mayGrow bool
		joins   bool
	}{
		{was, false, true},
		{fileset.Stamp{Size: 9, MtimeNs: 2, Ino: 7}, true, true},
		{fileset.Stamp{Size: 9, MtimeNs: 2, Ino: 7}, false, false},
		{fileset.Stamp{Size: 5, MtimeNs: 2, Ino: 7}, true, false},
		{fileset.Stamp{Size: 4, MtimeNs: 2, Ino: 7}, true, false},
	} {
		table := linkTable{tree: stableNumbers{}}
		join := func(id uint64, s fileset.Stamp) (*srcEntry, error) {
			e := &srcEntry{stamp: s, mayGrow: c.mayGrow}
			e.id, e.Entry = id, manifest.Entry{Type: manifest.File, Size: s.Size, MtimeNs: s.MtimeNs}
			return e, table.join(e, &chunker.Found{Entry: e.Entry, Stamp: s, Links: 2})
		}
		first, err := join(0, was)
		if err != nil {
			t.Fatal(err)
		}
		e, err := join(1, c.now)
		if (err == nil) != c.joins || err != nil && !errors.Is(err, errChangedFile) {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil && (!e.isLink() || e.Size != first.Size || e.MtimeNs != first.MtimeNs) {
			t.Errorf("%+v: announced as %+v", c, e.AnnouncedEntry)
		}
	}
}

func TestGrownOnlyWhereAgreed(t *testing.T) {
	OnHost(t)
	agreed, not := &wire.Terms{Flags: wire.FlagGrowing}, &wire.Terms{}
	for _, c := range []struct {
		flags uint16
		p     *wire.Terms
		good  bool
	}{{wire.ExtLast, not, true}, {wire.ExtLast | wire.ExtGrown, agreed, true}, {wire.ExtLast | wire.ExtGrown, not, false}, {wire.ExtGrown, agreed, false}} {
		if err := (&wire.Extent{Flags: c.flags}).CheckGrown(c.p); errors.Is(err, ErrProtocol) == c.good {
			t.Errorf("flags %#x: %v", c.flags, err)
		}
	}
}

// What was read of a file that has grown is compared with the file's present content, including
// holes.
func TestReadTwice(t *testing.T) {
	OnHost(t)
	const piece = 64 << 10
	for _, hash := range []manifest.Algorithm{manifest.XXH3, manifest.BLAKE3} {
		for _, size := range []int64{10, 3*piece + 1, 5 * piece} {
			for _, c := range []struct {
				off  int64
				same bool
			}{{size, true}, {0, false}, {size - 1, false}, {size / 2, false}} {
				e := &srcEntry{entryState: entryState{AnnouncedEntry: fileAt("f", int(size))}}
				src := &source{Session: &flow.Session{Session: &link.Session{}, Terms: wire.Terms{Hash: hash, PieceBytes: piece}}, tally: &Tally{}}
				was := make([]byte, size)
				copy(was, "data, and then a hole")
				f := openHoled(t, was, c.off)
				if size <= piece {
					err := e.checkSame(f, &wire.Extent{Length: size}, was, &src.Session.Terms)
					if errors.Is(err, errChangedFile) == c.same || err != nil && c.same {
						t.Errorf("%d bytes, written to at %d: %v", size, c.off, err)
					}
					continue
				}
				tree := manifest.NewTree(hash)
				for x := (wire.Extent{}); x.Off < size; x.Off += piece {
					tree.Push(src.Session.Terms.DigestOf(&x, size, was[x.Off:min(x.Off+piece, size)]))
				}
				if root, err := src.rootNow(f, e); err != nil || (root == tree.Root()) != c.same {
					t.Errorf("%v, %d bytes, written to at %d: %v, %v", hash, size, c.off, root, err)
				}
			}
		}
	}
}

// openHoled makes and opens a file that begins with data and continues with a hole. A byte is
// written at off.
func openHoled(t *testing.T, data []byte, off int64) *chunker.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(bytes.TrimRight(data, "\x00"))
	_, writeErr := f.WriteAt([]byte("x"), off)
	if err := errors.Join(err, f.Truncate(max(int64(len(data)), off+1)), writeErr, f.Close()); err != nil {
		t.Fatal(err)
	}
	tree, err := chunker.OpenLocal([]chunker.Source{{Path: path, Name: "f"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	file, err := tree.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}
