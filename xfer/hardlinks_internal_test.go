package xfer

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// linkSink is a sink as far as announcing names needs one.
func linkSink(flags uint64) *sink {
	return &sink{Session: &flow.Session{Session: &link.Session{}, Terms: wire.Terms{Flags: flags}}}
}

func linkEntry(id uint64, path string, n wire.FileNames) *sinkEntry {
	e := &sinkEntry{}
	e.id, e.Entry, e.Names = id, manifest.Entry{Type: manifest.File, Path: path, Size: 5, Mode: 0o644, MtimeNs: 7}, n
	return e
}

// A hostile source can link only to a file that it announced with further names, and only as that
// file.
func TestNamesThatAreNone(t *testing.T) {
	for name, tc := range map[string]struct {
		flags  uint64
		change func(*sinkEntry)
		first  *wire.FileNames
	}{
		"not asked for":        {},
		"never announced":      {flags: wire.FlagHardLinks, change: func(e *sinkEntry) { e.Names.First = 3 }},
		"the last one again":   {flags: wire.FlagHardLinks, change: func(e *sinkEntry) { e.Names.Left = 2 }},
		"more than there were": {flags: wire.FlagHardLinks, change: func(e *sinkEntry) { e.Names.Left = 1 << 60 }},
		"another size":         {flags: wire.FlagHardLinks, change: func(e *sinkEntry) { e.Size++ }},
		"another mode":         {flags: wire.FlagHardLinks, change: func(e *sinkEntry) { e.Mode = 0o600 }},
		"another time":         {flags: wire.FlagHardLinks, change: func(e *sinkEntry) { e.MtimeNs++ }},
		"to a file of one":     {flags: wire.FlagHardLinks, first: &wire.FileNames{}},
		"first and last":       {flags: wire.FlagHardLinks, first: &wire.FileNames{Several: true, First: 5}},
	} {
		k := linkSink(tc.flags)
		first := wire.FileNames{Several: true, First: 5, Left: 2}
		if tc.first != nil {
			first = *tc.first
		}
		err := k.joinLinks(linkEntry(5, "a", first))
		second := linkEntry(6, "b", wire.FileNames{Several: true, First: 5, Left: 1})
		if tc.change != nil {
			tc.change(second)
		}
		if err == nil {
			err = k.joinLinks(second)
		}
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A sink drops a file after its last name, and a source that never ends one is cut off before the
// table is too large.
func TestNamesAreBounded(t *testing.T) {
	k := linkSink(wire.FlagHardLinks)
	for id := range uint64(3) {
		e := linkEntry(id, "a", wire.FileNames{Several: true, First: 0, Left: 2 - id})
		if err := k.joinLinks(e); err != nil {
			t.Fatal(err)
		}
		if id > 0 && (!e.isLink() || !e.last || e.AllocBytes != 0) {
			t.Errorf("name %d may have data: %+v", id, e)
		}
	}
	if len(k.intake.links) != 0 || k.intake.linkBytes != 0 {
		t.Errorf("%d files of %d bytes are remembered", len(k.intake.links), k.intake.linkBytes)
	}
	var err error
	path, id := strings.Repeat("p/", 2000)+"f", uint64(0)
	for ; err == nil && id < 1<<20; id++ {
		err = k.joinLinks(linkEntry(id, path, wire.FileNames{Several: true, First: id, Left: 1}))
	}
	if !errors.Is(err, ErrProtocol) || id != maxLinkTableBytes/uint64(linkCost(path))+1 {
		t.Errorf("%d files without an end: %v", id, err)
	}
}

// stableNumbers is a tree whose files keep their inode numbers.
type stableNumbers struct{}

func (stableNumbers) AreOneFile(_, _ string, _ uint64) bool    { return true }
func (stableNumbers) NumbersMayChange(_ string, _ uint64) bool { return false }

// A source announces names as the sink expects them, and copies again a file for which the table
// has no room, or that is no longer the same file.
func TestJoinNames(t *testing.T) {
	table := linkTable{tree: stableNumbers{}}
	k := linkSink(wire.FlagHardLinks)
	found := func(ino uint64, links uint64) *chunker.Found {
		return &chunker.Found{Stamp: fileset.Stamp{Ino: ino, Size: 5}, Links: links}
	}
	join := func(id uint64, path string, f *chunker.Found) (*srcEntry, error) {
		e := &srcEntry{}
		e.id, e.AnnouncedEntry = id, linkEntry(id, path, wire.FileNames{}).AnnouncedEntry
		err := table.join(e, f)
		if err == nil {
			theirs := linkEntry(id, path, e.Names)
			if err := k.joinLinks(theirs); err != nil {
				t.Errorf("the sink refuses %s: %v", path, err)
			}
		}
		return e, err
	}
	var links []bool
	for i, f := range []*chunker.Found{found(1, 3), found(2, 2), found(1, 3), found(3, 1), found(1, 3), found(2, 2), found(1, 2)} {
		e, err := join(uint64(i), string(rune('a'+i)), f)
		if err != nil {
			t.Fatal(err)
		}
		links = append(links, e.isLink())
	}
	if want := []bool{false, false, true, false, true, true, false}; !slices.Equal(links, want) {
		t.Errorf("links: %v, want %v", links, want)
	}
	changed := found(1, 2)
	changed.Stamp.CtimeNs++
	if _, err := join(20, "x", changed); !errors.Is(err, errChangedFile) {
		t.Errorf("a file that changed between its names: %v", err)
	}
	// The last file's other name never came, at either end.
	if len(table.groups) != 1 || len(k.intake.links) != 1 || table.bytes != k.intake.linkBytes {
		t.Errorf("%d files of %d bytes are remembered, %d of %d at the sink", len(table.groups), table.bytes, len(k.intake.links), k.intake.linkBytes)
	}
	table.bytes = maxLinkTableBytes
	if e, err := join(21, "y", found(9, 2)); err != nil || e.Names.Several {
		t.Errorf("without room: %+v, %v", e.Names, err)
	}
}

// Digests come back as they were stored, whatever lies between.
func TestPieceSpill(t *testing.T) {
	var s pieceSpill
	defer s.close()
	files := make([]spilledPieces, 3)
	want := make([][]pieceRun, len(files))
	for i := range files {
		for n := range i * 3 * spillBufferRuns / 2 {
			want[i] = append(want[i], pieceRun{manifest.Digest{byte(i), byte(n), byte(n >> 8)}, uint64(n)})
		}
		half := len(want[i]) / 2
		for _, part := range [][]pieceRun{want[i][:half], want[i][half:]} {
			if err := s.add(&files[i], part); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i := range files {
		var got []pieceRun
		if err := s.each(&files[i], func(r pieceRun) error { got = append(got, r); return nil }); err != nil || !slices.Equal(got, want[i]) {
			t.Errorf("file %d: %d runs of %d, %v", i, len(got), len(want[i]), err)
		}
	}
}
