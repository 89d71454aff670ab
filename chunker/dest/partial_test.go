package dest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

const partialPiece = manifest.MinPieceBytes

// partialFile is a file of several pieces, the last shorter, and what stands for it.
type partialFile struct {
	data    []byte
	entry   *manifest.Entry
	partial Partial
}

func newPartialFile(name string, pieces int) *partialFile {
	data := make([]byte, (pieces-1)*partialPiece+100)
	rng := rand.New(rand.NewPCG(1, uint64(pieces)))
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	clear(data[partialPiece : 2*partialPiece]) // a hole, or zeros
	return &partialFile{
		data: data, entry: &manifest.Entry{Type: manifest.File, Path: name, Size: int64(len(data)), Mode: 0o644},
		partial: Partial{Source: [16]byte{1, 2, 3}, Hash: manifest.XXH3, PieceBytes: partialPiece},
	}
}

func (f *partialFile) piece(i int) []byte {
	return f.data[i*partialPiece : min((i+1)*partialPiece, len(f.data))]
}

func (f *partialFile) digest(i int) manifest.Digest {
	return f.partial.Hash.Piece(f.piece(i), uint64(i), partialPiece, false)
}

func (f *partialFile) pieces() int {
	return int(manifest.PieceCount(f.entry.Size, f.partial.PieceBytes))
}

// write writes some pieces and notes them in the journal.
func (f *partialFile) write(t *testing.T, temp *Temp, pieces ...int) {
	t.Helper()
	for _, i := range pieces {
		if _, err := temp.WriteAt(f.piece(i), int64(i)*partialPiece); err != nil {
			t.Fatal(err)
		}
		temp.Verified(uint64(i), PieceRun{Digest: f.digest(i), Pieces: 1})
	}
}

// root is the root over the first pieces.
func (f *partialFile) root(pieces uint64) manifest.Digest {
	tree := manifest.NewTree(f.partial.Hash)
	for i := range int(pieces) {
		tree.Push(f.digest(i))
	}
	return tree.Root()
}

// cutOff writes the first pieces of the file, marks some of them, and leaves the file.
func (f *partialFile) cutOff(t *testing.T, s *Sink, marked, pieces int) {
	t.Helper()
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pieces {
		f.write(t, temp, i)
		if i+1 == marked {
			if err := temp.Mark(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := temp.Keep(); err != nil {
		t.Fatal(err)
	}
}

// goOn goes on with a file that was cut off, to its end, and checks all of it. It
// returns how many pieces had arrived, or 0 where the file was begun anew.
func (f *partialFile) goOn(t *testing.T, s *Sink, p *Partial) uint64 {
	t.Helper()
	temp, arrived, _ := s.Resume(f.entry, nil, p)
	if temp == nil {
		arrived = &Arrived{}
		var err error
		if temp, err = s.CreatePartial(f.entry, nil, p); err != nil {
			t.Fatal(err)
		}
	} else if got := arrived.Tree.Root(); got != f.root(arrived.Pieces) || arrived.Tree.Pieces() != arrived.Pieces {
		t.Errorf("the root of the %d pieces that arrived is %x", arrived.Pieces, got)
	}
	for i := int(arrived.Pieces); i < f.pieces(); i++ {
		f.write(t, temp, i)
	}
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish([]*Temp{temp})[0]; err != nil {
		t.Fatal(err)
	}
	return arrived.Pieces
}

// wantPublished checks that the file has its name and its content, and that nothing else
// is beside it.
func (f *partialFile) wantPublished(t *testing.T, dir string) {
	t.Helper()
	got, err := os.ReadFile(filepath.Join(dir, f.entry.Path))
	if err != nil || !bytes.Equal(got, f.data) {
		t.Errorf("%d bytes were published, which are not the file's: %v", len(got), err)
	}
	if names := namesIn(t, dir); len(names) != 1 {
		t.Errorf("beside the file there is %q", names)
	}
	st, err := os.Stat(filepath.Join(dir, f.entry.Path))
	if err != nil || st.Mode().Perm() != f.want() {
		t.Errorf("mode %v: %v", st.Mode(), err)
	}
}

// want is the mode that the umask leaves of the entry's.
func (f *partialFile) want() os.FileMode {
	mask := unix.Umask(0)
	unix.Umask(mask)
	return os.FileMode(f.entry.Mode) &^ os.FileMode(mask)
}

func namesIn(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// theJournal and thePartial are the paths of the two files that a copy left in dir.
func theJournal(t *testing.T, dir string) string { return only(t, dir, fileset.IsJournal) }
func thePartial(t *testing.T, dir string) string { return only(t, dir, fileset.IsTemp) }

func only(t *testing.T, dir string, is func([]byte) bool) string {
	t.Helper()
	found := ""
	for _, name := range namesIn(t, dir) {
		if is([]byte(name)) {
			if found != "" {
				t.Fatalf("there are %q", namesIn(t, dir))
			}
			found = filepath.Join(dir, name)
		}
	}
	if found == "" {
		t.Fatalf("there are only %q", namesIn(t, dir))
	}
	return found
}

func TestPartialFilesAreGoneOnWith(t *testing.T) {
	treetest.NoLeaks(t)
	for _, c := range []struct {
		name           string
		marked, pieces int
		reboot         bool
		recheck        bool
		want           uint64
	}{
		{"nothing arrived", 0, 0, false, false, 0},
		{"no mark", 0, 5, false, false, 5},
		{"marked", 3, 5, false, false, 5},
		{"marked, rechecked", 3, 5, false, true, 5},
		{"all of it", 0, 8, false, false, 8},
		{"another boot", 3, 5, true, false, 3},
		{"another boot, rechecked", 3, 5, true, true, 3},
		{"another boot, no mark", 0, 5, true, false, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f := newPartialFile("f", 8)
			s := sinkInto(t, dir, Options{})
			f.cutOff(t, s, c.marked, c.pieces)
			s.Close()
			s = sinkInto(t, dir, Options{})
			defer s.Close()
			if c.reboot {
				s.hosts.boot[0]++
			}
			p := f.partial
			p.Recheck = c.recheck
			if got := f.goOn(t, s, &p); got != c.want {
				t.Errorf("%d pieces had arrived, not %d", got, c.want)
			}
			f.wantPublished(t, dir)
		})
	}
}

// TestPiecesThatArriveInAnyOrder: what arrived behind a gap does not count.
func TestPiecesThatArriveInAnyOrder(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, temp, 2, 0, 5, 1, 7)
	if err := temp.Keep(); err != nil {
		t.Fatal(err)
	}
	if got := f.goOn(t, s, &f.partial); got != 3 {
		t.Errorf("%d pieces had arrived", got)
	}
	f.wantPublished(t, dir)
}

// flip turns over bits of one byte of a file.
func flip(t *testing.T, path string, off int64, bits byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	b[off] ^= bits
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteAt(b[off:off+1], off)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestPartialFilesOfAnother: nothing counts that was left of another file, by other
// means, by somebody else, or that a copy is using.
func TestPartialFilesOfAnother(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, dir string, f *partialFile){
		"another source": func(t *testing.T, dir string, f *partialFile) { f.partial.Source[5]++ },
		"another hash":   func(t *testing.T, dir string, f *partialFile) { f.partial.Hash = manifest.SHA256 },
		"other pieces":   func(t *testing.T, dir string, f *partialFile) { f.partial.PieceBytes *= 2 },
		"another size": func(t *testing.T, dir string, f *partialFile) {
			f.data = f.data[:len(f.data)-1]
			f.entry.Size--
		},
		"another file of the name": func(t *testing.T, dir string, f *partialFile) {
			if err := os.Rename(thePartial(t, dir), filepath.Join(dir, ".gdrcp-"+strings.Repeat("a", 32))); err != nil {
				t.Fatal(err)
			}
		},
		"a second name": func(t *testing.T, dir string, f *partialFile) {
			if err := os.Link(thePartial(t, dir), filepath.Join(filepath.Dir(dir), "second-"+filepath.Base(dir))); err != nil {
				t.Fatal(err)
			}
		},
		"the journal is a link": func(t *testing.T, dir string, f *partialFile) {
			name := theJournal(t, dir)
			if err := errors.Join(os.Rename(name, filepath.Join(filepath.Dir(dir), "moved-"+filepath.Base(dir))), os.Symlink(filepath.Join(filepath.Dir(dir), "moved-"+filepath.Base(dir)), name)); err != nil {
				t.Fatal(err)
			}
		},
		"others may write the journal": func(t *testing.T, dir string, f *partialFile) {
			if err := os.Chmod(theJournal(t, dir), 0o622); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			treetest.NoLeaks(t)
			dir := filepath.Join(t.TempDir(), "dest")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			f := newPartialFile("f", 8)
			s := sinkInto(t, dir, Options{})
			defer s.Close()
			f.cutOff(t, s, 3, 6)
			change(t, dir, f)
			if temp, arrived, _ := s.Resume(f.entry, nil, &f.partial); temp != nil {
				t.Errorf("%d pieces count", arrived.Pieces)
				_ = temp.Keep()
			}
		})
	}
}

// TestPartialFileInUse: a second copy of the same file at the same time makes a file of
// its own, and does not disturb the first.
func TestPartialFileInUse(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s, other := sinkInto(t, dir, Options{}), sinkInto(t, dir, Options{})
	defer s.Close()
	defer other.Close()
	other.lockWait = 50 * time.Millisecond
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, temp, 0, 1, 2)
	if got := f.goOn(t, other, &f.partial); got != 0 {
		t.Errorf("%d pieces of the other copy count", got)
	}
	f.write(t, temp, 3)
	if err := temp.Keep(); err != nil {
		t.Error(err)
	}
	if got := f.goOn(t, s, &f.partial); got != 4 {
		t.Errorf("%d pieces count", got)
	}
	f.wantPublished(t, dir)
}

// TestSupersededPartialFile: where a file is begun anew, what an earlier copy left of it
// is removed at once.
func TestSupersededPartialFile(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	f.cutOff(t, s, 3, 6)
	f.partial.Source[0]++
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	if names := namesIn(t, dir); len(names) != 2 {
		t.Errorf("there are %q", names)
	}
	if err := temp.Discard(); err != nil {
		t.Fatal(err)
	}
	if names := namesIn(t, dir); len(names) != 0 {
		t.Errorf("there are still %q", names)
	}
}

// TestMarksNearTheEnd: a file of which little is left is spared a mark, once. One that then
// stands still gets its mark.
func TestMarksNearTheEnd(t *testing.T) {
	f := newPartialFile("f", 12)
	s := sinkInto(t, t.TempDir(), Options{})
	defer s.Close()
	syncs := 0
	fsync := s.calls.fsync
	s.calls.fsync = func(fd int) error {
		syncs++
		return fsync(fd)
	}
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	defer temp.Discard()
	next := 0
	for _, step := range []struct {
		upto, syncs int
		why         string
	}{
		{4, 1, "much is left"},
		{10, 1, "less than a quarter of what came is left"},
		{10, 2, "it stands still there"},
		{11, 2, "less than a quarter of what came is left"},
		{12, 3, "the last mark was left out"},
		{12, 3, "all of it has its mark"},
	} {
		for ; next < step.upto; next++ {
			f.write(t, temp, next)
		}
		if err := temp.Mark(); err != nil {
			t.Fatal(err)
		}
		if syncs != step.syncs {
			t.Errorf("with %d of 12 pieces, as %s: %d syncs, want %d", step.upto, step.why, syncs, step.syncs)
		}
	}
}

// TestErrorsThatAMarkMeets: the kernel tells an error of writing once. Where a mark
// hears of it, the file is not published.
func TestErrorsThatAMarkMeets(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 4)
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, temp, 0, 1)
	fsync := s.calls.fsync
	s.calls.fsync = func(int) error { return unix.EIO }
	if err := temp.Mark(); !errors.Is(err, unix.EIO) {
		t.Errorf("a mark met %v", err)
	}
	s.calls.fsync = fsync
	f.write(t, temp, 2)
	if err := temp.Mark(); err != nil {
		t.Error(err)
	}
	for _, name := range namesIn(t, dir) {
		if fileset.IsJournal([]byte(name)) {
			t.Error("the journal of a file that has lost something is still there")
		}
	}
	f.write(t, temp, 3)
	if err := temp.Finish(); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish([]*Temp{temp})[0]; !errors.Is(err, unix.EIO) {
		t.Errorf("published after an error of writing: %v", err)
	}
	if names := namesIn(t, dir); len(names) != 0 {
		t.Errorf("there are %q", names)
	}
}
