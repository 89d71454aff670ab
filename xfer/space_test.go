package xfer

import (
	"errors"
	"os"
	"strings"
	"testing"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// roomSink returns a client's sink that will receive files, and the warnings to its user.
func roomSink(t *testing.T, dir string) (k *sink, warned *[]string) {
	t.Helper()
	store, err := dest.Open(dest.Options{Dest: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	if err := store.Place(nil, ""); err != nil {
		t.Fatal(err)
	}
	warned = new([]string)
	return &sink{store: store, Session: &flow.Session{Session: &link.Session{Client: true, Report: func(e Event) { *warned = append(*warned, e.Text) }}}}, warned
}

// announce makes the sink expect a file of that size.
func (k *sink) announce(t *testing.T, path string, size int64, sparse bool) *sinkEntry {
	t.Helper()
	e := &sinkEntry{}
	e.Entry, e.AllocBytes, e.Sparse = manifest.Entry{Type: manifest.File, Path: path, Size: size}, size, sparse
	e.id = k.window.announced
	if err := k.expect(e); err != nil {
		t.Fatal(err)
	}
	k.window.table[e.id%entryWindow] = e
	k.window.announced++
	return e
}

// Bytes that are being written no longer count as needed: the disk may have them already, so its
// free space no longer has room for them.
func TestRoomForWhatIsBeingWritten(t *testing.T) {
	k, _ := roomSink(t, t.TempDir())
	_, free := k.store.FileSystemOf("x").FreeBytes()
	if free > 1<<50 {
		t.Skip("needs TMPDIR on a file system of a known size, such as ext4")
	}
	const piece = 1 << 40 // more than others write meanwhile
	r := k.announce(t, "x", free+piece, false).room
	if err := k.checkRoom(t.Context()); !errors.Is(err, fileset.ErrNoSpace) {
		t.Errorf("more than there is: %v", err)
	}
	r.write(2 * piece)
	if err := k.checkRoom(t.Context()); err != nil {
		t.Errorf("while it is being written: %v", err)
	}
	r.write(-2 * piece)
	if err := k.checkRoom(t.Context()); !errors.Is(err, fileset.ErrNoSpace) {
		t.Errorf("after it was: %v", err)
	}
	k.Session.Terms.Flags |= wire.FlagNoSpaceCheck
	if err := k.checkRoom(t.Context()); err != nil {
		t.Errorf("without the check: %v", err)
	}
}

// A shortage is an error only if the files cannot fit: those that replace others make room one by
// one, and sparse ones may need less. Otherwise there is one warning.
func TestShortage(t *testing.T) {
	const mib = 1 << 20
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skipf("no small file system of its own, run as root: mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	for _, name := range []string{"old1", "old2"} {
		if err := os.WriteFile(dir+"/"+name, make([]byte, 3*mib), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name    string
		files   map[string]int64 // those named sparse* are sparse
		refused bool
		warned  bool
	}{
		{"fits", map[string]int64{"new": mib}, false, false},
		{"too large", map[string]int64{"new": 5 * mib}, true, false},
		{"together too large", map[string]int64{"a": 3 * mib / 2, "b": 3 * mib / 2}, true, false},
		{"each replaces one", map[string]int64{"old1": 3 * mib / 2, "old2": 3 * mib / 2}, false, true},
		{"one of them does not fit beside", map[string]int64{"old1": 3 * mib}, true, false},
		{"with holes", map[string]int64{"sparse": 5 * mib}, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			k, warned := roomSink(t, dir)
			for name, size := range c.files {
				k.announce(t, name, size, strings.HasPrefix(name, "sparse"))
			}
			for range 2 {
				if err := k.checkRoom(t.Context()); errors.Is(err, fileset.ErrNoSpace) != c.refused || !c.refused && err != nil {
					t.Errorf("refused: %v", err)
				}
			}
			if len(*warned) > 1 || (len(*warned) == 1) != c.warned {
				t.Errorf("warned %q", *warned)
			}
		})
	}
}
