package xfer

import (
	"errors"
	"testing"

	"gdrcp/chunker"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// A further name of a file that has grown since its first name was announced is
// announced like that one, where files may grow.
func TestNamesOfAGrowingFile(t *testing.T) {
	OnHost(t)
	was := chunker.Stamp{Size: 5, MtimeNs: 1, Ino: 7}
	for _, c := range []struct {
		now     chunker.Stamp
		mayGrow bool
		joins   bool
	}{
		{was, false, true},
		{chunker.Stamp{Size: 9, MtimeNs: 2, Ino: 7}, true, true},
		{chunker.Stamp{Size: 9, MtimeNs: 2, Ino: 7}, false, false},
		{chunker.Stamp{Size: 5, MtimeNs: 2, Ino: 7}, true, false},
		{chunker.Stamp{Size: 4, MtimeNs: 2, Ino: 7}, true, false},
	} {
		var table linkTable
		join := func(id uint64, s chunker.Stamp) (*srcEntry, error) {
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
