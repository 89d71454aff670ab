package chunker

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// TestTornJournals: a journal may end anywhere, and any of its bytes may be another: the
// file is right in the end.
func TestTornJournals(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 6)
	s := sinkInto(t, dir, SinkOptions{NoFsync: true})
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
		sweepDir(s.hosts.in(s.base.fd), time.Now()) // a torn journal does not say which file was its own
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

// FuzzJournal: whatever a journal says, no more pieces count than the file has.
func FuzzJournal(f *testing.F) {
	f.Add([]byte{}, byte(recordPieces), uint64(0), uint64(3))
	f.Add([]byte(journalMagic), byte(recordMark), uint64(1<<63), uint64(1<<63))
	f.Fuzz(func(t *testing.T, more []byte, kind byte, first, pieces uint64) {
		head := journalHead{temp: tempName(), partial: Partial{Hash: manifest.XXH3, PieceBytes: partialPiece}, size: 1 << 20}
		b := head.encode()
		if len(more) > len(b) {
			b = bytes.Clone(more)
		}
		head, seed, err := decodeJournalHead(b[:journalHeader])
		if err != nil {
			return
		}
		if !isTempName([]byte(head.temp)) {
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
		defer closeQuietly(fd)
		r := resumption{temp: &Temp{size: head.size, sink: &Sink{hosts: &otherHosts{boot: [bootIDBytes]byte{1}}}}, partial: &head.partial, journalFD: fd, seed: seed}
		if r.survey() == nil && r.claimed > manifest.PieceCount(head.size, head.partial.PieceBytes) {
			t.Fatalf("%d pieces of %d count", r.claimed, manifest.PieceCount(head.size, head.partial.PieceBytes))
		}
	})
}
