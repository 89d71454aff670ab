package xfer

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"gdrcp/internal/disktest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// A worker's wait for a free processor after a direct write does not count as disk time.
func TestWaitForTurnIsNoTimeOfTheDisk(t *testing.T) {
	const piece, pieces, busy = 1 << 20, 16, 400 * time.Millisecond
	terms := wire.Terms{PieceBytes: piece, ChunkBytes: piece, Hash: manifest.XXH3, Slots: 4}
	k := sinkOf(t, disktest.Mount(t, "64M", "mkfs.ext4", "-q"), terms)
	k.Session.Workers.Store(1)
	k.tally = k.Session.Tally
	e := comparedEntry(k, "f", pieces*piece)
	defer k.failEntry(e, Failed, errors.New("the test is over"))
	data := bytes.Repeat([]byte("a"), piece)
	bytesOf := func(*sinkEntry, int) ([]byte, bool) {
		time.Sleep(20 * time.Millisecond) // the other begins to wait meanwhile
		return data, true
	}
	one := make(flow.Turns, 1)
	w := &lander{sink: k, turn: &flow.Turn{Turns: one}}
	w.turn.Take()
	go func() {
		other := &flow.Turn{Turns: one}
		other.Take() // when the writer gives up its turn
		time.Sleep(busy)
		other.Leave()
	}()
	took := time.Duration(0)
	for i := int64(0); took < busy && i < pieces-1; i++ { // until the other waits for it
		from := time.Now()
		if good, err := w.landExtent(&wire.ChunkHeader{Extents: []wire.Extent{{Off: i * piece, Length: piece}}}, e, 0, bytesOf); err != nil || !good {
			t.Fatal(good, err)
		}
		took = time.Since(from)
	}
	if k.store.Wrote().Of(fileset.IODirect) == 0 {
		t.Fatal("nothing was written past the page cache")
	}
	if !w.turn.Has || took < busy {
		t.Fatalf("landed in %v, with a turn: %t", took, w.turn.Has)
	}
	if disk := k.Session.Tally.Spent()[stat.Disk]; disk > busy/2 {
		t.Errorf("of %v, %v were for the disk; %v were for a turn", took, disk, busy)
	}
}
