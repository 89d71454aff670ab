package dest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// TestTornJournals: a journal may end anywhere, and any of its bytes may be another: the
// file is right in the end.
func TestTornJournals(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 6)
	s := sinkInto(t, dir, Options{NoFsync: true})
	defer s.Close()
	rng := rand.New(rand.NewPCG(3, 4))
	f.cutOff(t, s, 0, 5)
	whole, err := os.ReadFile(theJournal(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(thePartial(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	most := uint64(0)
	for n := range 2 * len(whole) {
		journal := bytes.Clone(whole)
		if n < len(whole) {
			journal = journal[:n]
		} else {
			journal[n-len(whole)] ^= 1 << rng.IntN(8)
		}
		if n > 0 {
			f.cutOff(t, s, 0, 5)
			// The journal of now, as torn as the first one would be.
			now, err := os.ReadFile(theJournal(t, dir))
			if err != nil {
				t.Fatal(err)
			}
			if n < len(whole) {
				journal = now[:n]
			} else {
				journal = now
				journal[n-len(whole)] ^= 1 << rng.IntN(8)
			}
		}
		if err := os.WriteFile(theJournal(t, dir), journal, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(thePartial(t, dir), data, 0o600); err != nil {
			t.Fatal(err)
		}
		got := f.goOn(t, s, &f.partial)
		most = max(most, got)
		sweepDir(s.hosts.in(s.base.FD), time.Now()) // a torn journal does not say which file was its own
		f.wantPublished(t, dir)
		if t.Failed() {
			t.Fatalf("at %d of %d", n, len(whole))
		}
		if err := os.Remove(filepath.Join(dir, "f")); err != nil {
			t.Fatal(err)
		}
	}
	if most < 4 {
		t.Errorf("at most %d pieces counted", most)
	}
}

// TestGapsOfAllFilesAreBounded: a peer that leaves gaps in many files does not fill the
// memory with what comes behind them. The journal that would have too much ends; those
// without a gap go on.
func TestGapsOfAllFilesAreBounded(t *testing.T) {
	treetest.NoLeaks(t)
	s := sinkInto(t, t.TempDir(), Options{NoFsync: true})
	defer s.Close()
	temps := make(map[string]*Temp)
	for _, name := range []string{"a", "b", "late", "inorder"} {
		e := fileEntry(name, "")
		e.Size = 1 << 40
		temp, err := s.CreatePartial(e, nil, &Partial{Source: [16]byte{1}, Hash: manifest.XXH3, PieceBytes: partialPiece})
		if err != nil || temp.journal == nil {
			t.Fatal(err, "no journal")
		}
		temps[name] = temp
	}
	want := func(when string, ahead int64, broken ...string) {
		t.Helper()
		if got := s.ahead.Load(); got != ahead {
			t.Errorf("%s: %d runs are ahead, %d should be", when, got, ahead)
		}
		for name, temp := range temps {
			if is := temp.journal.broken; is != slices.Contains(broken, name) {
				t.Errorf("%s: journal of %s ended: %v", when, name, is)
			}
		}
	}
	// Holes of a piece each, behind the first piece, which does not come.
	leaveGap := func(name string, runs int64) {
		for i := range uint64(runs) {
			temps[name].Verified(i+1, PieceRun{Pieces: 1})
		}
	}
	leaveGap("a", maxAhead/2)
	leaveGap("b", maxAhead/2-10)
	leaveGap("b", 5) // none twice
	leaveGap("late", 10)
	want("at the bound", maxAhead)
	leaveGap("late", 11)
	temps["inorder"].Verified(0, PieceRun{Pieces: 1})
	want("beyond it", maxAhead-10, "late")

	temps["a"].Verified(0, PieceRun{Pieces: 1})
	want("a gap closed", maxAhead/2-10, "late")
	if a := temps["a"].journal; a.next != maxAhead/2+1 || a.aheadRoom > leastAheadRoom {
		t.Errorf("%d pieces have arrived without a gap, and there is room for %d runs ahead", a.next, a.aheadRoom)
	}
	temps["b"].journal.fail()
	want("an end", 0, "late", "b")
	for _, name := range []string{"a", "inorder"} {
		temps[name].Verified(maxAhead, PieceRun{Pieces: 1})
	}
	want("other gaps", 2, "late", "b")
	if err := errors.Join(temps["a"].Keep(), temps["inorder"].Discard()); err != nil {
		t.Error(err)
	}
	want("files that have ended", 0, "late", "b", "a", "inorder")
	if err := errors.Join(temps["b"].Discard(), temps["late"].Discard()); err != nil {
		t.Error(err)
	}
}

// TestJournalOfManyHoles: what a journal takes follows from the data of a file, not from its
// holes, and each piece counts.
func TestJournalOfManyHoles(t *testing.T) {
	const size, piece, record = 10 << 40, 64 << 20, recordHeader + runBytes + journalSumBytes
	zeros := manifest.XXH3.ZeroPiece(piece, 0, piece, false)
	data := manifest.XXH3.Piece([]byte("data"), 0, piece, false)
	for name, c := range map[string]struct {
		everyData uint64 // each so many pieces one is of data
		backwards uint64 // so many arrive in reverse
		most      int64
	}{
		"all holes":                 {size, 1, 4 * record},
		"all holes, out of order":   {size, 64, 4 * record},
		"data here and there":       {1000, 1, size/piece/1000*(record+runBytes) + 4*record},
		"data between single holes": {2, 1, size/piece/2*(record+runBytes) + 4*record},
		"out of order":              {2, 64, size/piece/2*(record+runBytes) + 4*record},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := sinkInto(t, dir, Options{NoFsync: true})
			defer s.Close()
			e := fileEntry("f", "")
			e.Size = size
			temp, err := s.CreatePartial(e, nil, &Partial{Source: [16]byte{1}, Hash: manifest.XXH3, PieceBytes: piece})
			if err != nil {
				t.Fatal(err)
			}
			for from := uint64(0); from < size/piece; from += c.backwards {
				for i := from + c.backwards; i > from; i-- {
					run := PieceRun{Digest: zeros, Pieces: 1, Hole: true}
					if i%c.everyData == 0 {
						run = PieceRun{Digest: data, Pieces: 1}
					}
					temp.Verified(i-1, run)
				}
			}
			if err := temp.Keep(); err != nil {
				t.Fatal(err)
			}
			fd, head, seed, err := openJournalFile(unix.AT_FDCWD, theJournal(t, dir), unix.O_RDONLY, true)
			if err != nil {
				t.Fatal(err)
			}
			defer fsys.CloseQuietly(fd)
			r := resumption{temp: &Temp{size: size, made: unix.Stat_t{Size: size, Dev: head.inode.Dev}, sink: s}, partial: &head.partial, journalFD: fd, seed: seed, inode: head.inode}
			if err := r.survey(); err != nil || r.claimed != size/piece {
				t.Errorf("%d of %d pieces count: %v", r.claimed, size/piece, err)
			}
			var st unix.Stat_t
			if err := fsys.Fstat(fd, &st); err != nil || st.Size-journalHeader > c.most {
				t.Errorf("%d bytes in the journal, at most %d should be: %v", st.Size, c.most, err)
			}
		})
	}
}

// TestJournalThatCannotBeWritten: it keeps nothing of what arrives.
func TestJournalThatCannotBeWritten(t *testing.T) {
	s := sinkInto(t, t.TempDir(), Options{NoFsync: true})
	j := s.openJournal(-1, 0, 0, 0)
	j.add(2, PieceRun{Pieces: 1})
	j.add(3, PieceRun{Pieces: 1})
	j.add(0, PieceRun{Pieces: 1})
	j.add(5, PieceRun{Pieces: 1})
	if n := s.ahead.Load(); n != 0 || !j.broken {
		t.Errorf("%d runs are ahead", n)
	}
}

// FuzzJournal: whatever a journal says, no more pieces count than the file has.
func FuzzJournal(f *testing.F) {
	f.Add([]byte{}, byte(recordPieces), uint64(0), uint64(3))
	f.Add([]byte(journalMagic), byte(recordMark), uint64(1<<63), uint64(1<<63))
	f.Fuzz(func(t *testing.T, more []byte, kind byte, first, pieces uint64) {
		head := journalHead{temp: fileset.TempName(), partial: Partial{Hash: manifest.XXH3, PieceBytes: partialPiece}, size: 1 << 20}
		b := head.encode()
		if len(more) > len(b) {
			b = bytes.Clone(more)
		}
		head, seed, err := decodeJournalHead(b[:journalHeader])
		if err != nil {
			return
		}
		if !fileset.IsTemp([]byte(head.temp)) {
			t.Fatalf("a journal of %q", head.temp)
		}
		b = (&record{kind: recordPieces, runs: []PieceRun{{Pieces: 2}}}).append(b, seed)
		b = (&record{kind: kind, first: first, runs: []PieceRun{{Pieces: pieces}, {Pieces: first}}}).append(b, seed)
		b = append(b, more...)
		path := filepath.Join(t.TempDir(), "j")
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		fd, head, seed, err := openJournalFile(unix.AT_FDCWD, path, unix.O_RDONLY, true)
		if err != nil {
			t.Fatal(err)
		}
		defer fsys.CloseQuietly(fd)
		r := resumption{temp: &Temp{size: head.size, made: unix.Stat_t{Size: head.size}, sink: &Sink{hosts: &otherHosts{boot: [bootIDBytes]byte{1}}}}, partial: &head.partial, journalFD: fd, seed: seed}
		if r.survey() == nil && r.claimed > manifest.PieceCount(head.size, head.partial.PieceBytes) {
			t.Fatalf("%d pieces of %d count", r.claimed, manifest.PieceCount(head.size, head.partial.PieceBytes))
		}
	})
}

// TestJournalHoldsBackWhileItIsSynced: pieces that arrive then do not wait for the disk, and
// are in the journal in their order afterwards.
func TestJournalHoldsBackWhileItIsSynced(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "journal"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.Write(make([]byte, journalHeader)); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, t.TempDir(), Options{})
	j := s.openJournal(int(f.Fd()), 7, 0, 0)
	size := func() int64 {
		st, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		return st.Size()
	}
	j.sync = func(int) error {
		before := size()
		j.add(2, PieceRun{Digest: manifest.Digest{1}, Pieces: 1})
		j.add(1, PieceRun{Pieces: 1})
		if now := size(); now != before {
			t.Errorf("%d bytes were written meanwhile", now-before)
		}
		return nil
	}
	j.add(0, PieceRun{Pieces: 1})
	j.mark(1, 1<<20, markState{})
	j.add(3, PieceRun{Pieces: 1})
	r := &journalReader{from: bufio.NewReader(fsys.FDReader(int(f.Fd())).From(journalHeader)), seed: 7, at: journalHeader}
	var got []string
	for {
		rec, err := r.next()
		if err != nil {
			break
		}
		got = append(got, fmt.Sprint(rec.kind, rec.first, len(rec.runs)))
	}
	if want := []string{"1 0 1", "2 1 1", "1 1 2", "1 3 1"}; !slices.Equal(got, want) {
		t.Errorf("records %q, want %q", got, want)
	}
}
