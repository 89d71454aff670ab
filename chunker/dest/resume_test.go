package dest

import (
	"bufio"
	"bytes"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// TestPartialFilesThatAreCutOffAgain: what arrived before a copy was cut off for the
// second time counts, too, and after a reboot what the second one marked.
func TestPartialFilesThatAreCutOffAgain(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 20)
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	f.cutOff(t, s, 2, 5)
	for _, upto := range []int{9, 14} {
		temp, arrived, _ := s.Resume(f.entry, nil, &f.partial)
		if temp == nil || arrived.Bytes != int64(arrived.Pieces)*partialPiece {
			t.Fatalf("nothing to go on with: %+v", arrived)
		}
		for i := int(arrived.Pieces); i < upto; i++ {
			f.write(t, temp, i)
		}
		if err := temp.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	s.hosts.boot[3]++ // of the last copy only what it found is marked
	if got := f.goOn(t, s, &f.partial); got != 9 {
		t.Errorf("%d pieces had arrived", got)
	}
	f.wantPublished(t, dir)
}

// TestDamagedPartialFiles: what the disk lost, or another program changed, is found
// where it was not marked, and everywhere with Recheck.
func TestDamagedPartialFiles(t *testing.T) {
	for _, c := range []struct {
		name    string
		damaged int
		recheck bool
		want    uint64
	}{
		{"behind the mark", 4, false, 4},
		{"right behind the mark", 3, false, 3},
		{"before the mark, rechecked", 1, true, 1},
		{"at the beginning, rechecked", 0, true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f := newPartialFile("f", 8)
			s := sinkInto(t, dir, Options{})
			defer s.Close()
			f.cutOff(t, s, 3, 6)
			flip(t, thePartial(t, dir), int64(c.damaged)*partialPiece+17, 0x40)
			p := f.partial
			p.Recheck = c.recheck
			if got := f.goOn(t, s, &p); got != c.want {
				t.Errorf("%d pieces counted, not %d", got, c.want)
			}
			f.wantPublished(t, dir)
		})
	}
}

// TestPartialFileStillInUse: the copy that was cut off may take a moment to let go of its
// file.
func TestPartialFileStillInUse(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s, again := sinkInto(t, dir, Options{}), sinkInto(t, dir, Options{})
	defer s.Close()
	defer again.Close()
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, temp, 0, 1, 2)
	go func() {
		time.Sleep(100 * time.Millisecond)
		_ = temp.Keep()
	}()
	if got := f.goOn(t, again, &f.partial); got != 3 {
		t.Errorf("%d pieces count", got)
	}
	f.wantPublished(t, dir)
}

// TestPartialFileOfAnotherBoot: after a reboot, and on another host, a device may have
// another number.
func TestPartialFileOfAnotherBoot(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	f.cutOff(t, s, 3, 6)
	path := theJournal(t, dir)
	journal, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, seed, err := decodeJournalHead(journal[:journalHeader])
	if err != nil {
		t.Fatal(err)
	}
	head.inode.Dev++
	moved := head.encode()
	r := journalReader{from: bufio.NewReader(bytes.NewReader(journal[journalHeader:])), seed: seed}
	_, other, _ := decodeJournalHead(moved)
	for {
		rec, err := r.next()
		if err != nil {
			break
		}
		moved = rec.append(moved, other)
	}
	if err := os.WriteFile(path, moved, 0o600); err != nil {
		t.Fatal(err)
	}
	sweepDir(s.hosts.in(s.base.FD), time.Now())
	if names := namesIn(t, dir); len(names) != 2 {
		t.Errorf("a sweep left %q", names)
	}
	s.hosts.boot[0]++
	if got := f.goOn(t, s, &f.partial); got != 3 {
		t.Errorf("%d pieces count", got)
	}
	f.wantPublished(t, dir)
}

// TestPartialFileThatWasFinished: a file that was cut off right before it got its name
// has its final mode, owner and attributes. None of them stays.
func TestPartialFileThatWasFinished(t *testing.T) {
	for _, mode := range []uint32{0o444, 0o4755} {
		dir := t.TempDir()
		f := newPartialFile("f", 8)
		f.entry.Mode = mode
		var attrs *Attributes
		if os.Geteuid() == 0 {
			attrs = &Attributes{UID: 65534, GID: 65534}
		}
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}})
		defer s.Close()
		temp, err := s.CreatePartial(f.entry, attrs, &f.partial)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.pieces() {
			f.write(t, temp, i)
		}
		if err := temp.Finish(); err != nil {
			t.Fatal(err)
		}
		_ = temp.close() // as a kill does
		f.entry.Mode = 0o644
		plain := sinkInto(t, dir, Options{})
		defer plain.Close()
		if got := f.goOn(t, plain, &f.partial); got != 8 {
			t.Errorf("mode %o: %d pieces count", mode, got)
		}
		f.wantPublished(t, dir)
		st, err := os.Stat(filepath.Join(dir, "f"))
		if err != nil || st.Sys().(*syscall.Stat_t).Uid != uint32(os.Geteuid()) {
			t.Errorf("mode %o: the file is %+v, %v", mode, st.Sys(), err)
		}
	}
}

// TestPartialFilesOfOthersStay: root sweeps what any user left, but for partial files.
func TestPartialFilesOfOthersStay(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, who sweeps for all: sudo go test ./chunker/dest")
	}
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	f.cutOff(t, s, 3, 6)
	for _, path := range []string{theJournal(t, dir), thePartial(t, dir)} {
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	sweepDir(s.hosts.in(s.base.FD), time.Now())
	if names := namesIn(t, dir); len(names) != 2 {
		t.Errorf("a sweep left %q", names)
	}
	if temp, _, _ := s.Resume(f.entry, nil, &f.partial); temp != nil {
		t.Error("root goes on with another user's file")
		_ = temp.Keep()
	}
}
