package xfer

import (
	"errors"
	"testing"

	"gdrcp/chunker"
)

// Bytes that are being written are needed no more: the disk may have them already, so that
// its free space no longer has room for them.
func TestRoomForWhatIsBeingWritten(t *testing.T) {
	store, err := chunker.OpenSink(chunker.SinkOptions{Dest: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	fs, r := store.FileSystemOf("x"), &room{}
	free, err := fs.FreeBytes()
	if err != nil {
		t.Fatal(err)
	}
	all := rooms{fs: r}
	const piece = 1 << 40 // more than others write meanwhile
	r.add(free + piece)
	if err := all.check(); !errors.Is(err, chunker.ErrNoSpace) {
		t.Errorf("more than there is: %v", err)
	}
	r.write(2 * piece)
	if err := all.check(); err != nil {
		t.Errorf("while it is being written: %v", err)
	}
	r.write(-2 * piece)
	if err := all.check(); !errors.Is(err, chunker.ErrNoSpace) {
		t.Errorf("after it was: %v", err)
	}
}
