package manifest

import (
	"errors"
	"io"
	"strings"
	"testing"
)

func TestNewWriterRefusesHeader(t *testing.T) {
	for _, h := range []Header{{}, {0, 1 << 20}, {9, 1 << 20}, {XXH3, 0}, {XXH3, 1<<20 + 1}, {BLAKE3, 1 << 31}} {
		if _, err := NewWriter(io.Discard, h); !errors.Is(err, ErrFormat) {
			t.Errorf("%v: %v, want ErrFormat", h, err)
		}
	}
}

// refuse fails the test unless err, the error of the described call, is want.
func refuse(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// A refused call changes nothing: the text is the same as without it.
func TestWriterRefusesMisuse(t *testing.T) {
	var text strings.Builder
	w, err := NewWriter(&text, goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	file := func(path string, size int64) *Entry { return &Entry{Type: File, Path: path, Size: size} }
	refuse(t, "piece outside", w.PieceRun(Digest{}, 1), ErrEntry)
	refuse(t, "end outside", w.EndFile(Digest{}), ErrEntry)
	refuse(t, "void outside", w.VoidFile(), ErrEntry)
	refuse(t, "several pieces in one", w.WriteEntry(file("a", 65537)), ErrEntry)
	refuse(t, "pieces of a directory", w.BeginFile(&Entry{Type: Dir, Path: "a"}), ErrEntry)
	refuse(t, "bad path", w.BeginFile(file("a/..", 1)), ErrPath)
	refuse(t, "empty with a digest", w.WriteEntry(&Entry{Type: File, Path: "a", Root: Digest{1}}), ErrRoot)
	items := goldenItems()
	for i := range items[:3] {
		if err := w.WriteEntry(&items[i].Entry); err != nil {
			t.Fatal(err)
		}
	}
	refuse(t, "order", w.WriteEntry(file("a", 1)), ErrOrder)
	misuseOpenFile(t, w, items[3])
	writeItems(t, w, items[4:])
	if text.String() != golden {
		t.Errorf("wrote\n%s\nwant\n%s", text.String(), golden)
	}
	refuse(t, "entry after the end", w.WriteEntry(file("z", 1)), ErrEntry)
	refuse(t, "file after the end", w.BeginFile(file("z", 1)), ErrEntry)
	first, _ := w.Close()
	if again, err := w.Close(); again != first || err != nil || text.String() != golden {
		t.Errorf("second close: %+v, %v", again, err)
	}
}

// misuseOpenFile writes it, and in between makes every call that an open file refuses.
func misuseOpenFile(t *testing.T, w *Writer, it item) {
	t.Helper()
	if err := w.BeginFile(&it.Entry); err != nil {
		t.Fatal(err)
	}
	refuse(t, "entry inside", w.WriteEntry(&Entry{Type: Dir, Path: "e"}), ErrEntry)
	refuse(t, "file inside", w.BeginFile(&Entry{Type: File, Path: "e"}), ErrEntry)
	refuse(t, "too many pieces", w.PieceRun(Digest{}, 4), ErrEntry)
	refuse(t, "too few pieces", w.EndFile(it.Root), ErrEntry)
	_, err := w.Close()
	refuse(t, "close inside", err, ErrEntry)
	for _, p := range it.pieces {
		if err := w.PieceRun(p.d, p.count); err != nil {
			t.Fatal(err)
		}
	}
	refuse(t, "another root", w.EndFile(Digest{1}), ErrRoot)
	if err := errors.Join(w.PieceRun(Digest{}, 0), w.EndFile(it.Root)); err != nil {
		t.Fatal(err)
	}
}

// A void file of one piece leaves no trace.
func TestWriterVoidSmallFile(t *testing.T) {
	var text strings.Builder
	w, err := NewWriter(&text, goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(w.BeginFile(&Entry{Type: File, Path: "a", Size: 1}), w.VoidFile()); err != nil {
		t.Fatal(err)
	}
	s, err := w.Close()
	if err != nil || s.Entries != 0 {
		t.Errorf("%+v, %v", s, err)
	}
	if items, err := readAll(strings.NewReader(text.String())); err != nil || len(items) != 0 {
		t.Errorf("read %v, %v from\n%s", items, err, text.String())
	}
}

// fullDisk accepts left bytes and then fails.
type fullDisk struct{ left int }

var errFull = errors.New("disk full")

func (d *fullDisk) Write(p []byte) (int, error) {
	if len(p) > d.left {
		return d.left, errFull
	}
	d.left -= len(p)
	return len(p), nil
}

func TestWriterDiskFull(t *testing.T) {
	for _, left := range []int{0, 100_000, 200_000} {
		w, err := NewWriter(&fullDisk{left}, Header{XXH3, DefaultPieceBytes})
		entries := manyFiles(2000)
		for i := 0; err == nil && i < len(entries); i++ {
			err = w.WriteEntry(&entries[i])
		}
		_, closeErr := w.Close()
		if !errors.Is(closeErr, errFull) {
			t.Errorf("room for %d bytes: close returns %v", left, closeErr)
		}
		if left == 100_000 && !errors.Is(err, errFull) {
			t.Errorf("room for %d bytes: write returns %v", left, err)
		}
	}
}

func TestWriterDoesNotAllocate(t *testing.T) {
	w, err := NewWriter(io.Discard, Header{XXH3, DefaultPieceBytes})
	if err != nil {
		t.Fatal(err)
	}
	entries := manyFiles(1200)
	next := 0
	if got := testing.AllocsPerRun(1000, func() {
		if err := w.WriteEntry(&entries[next]); err != nil {
			t.Fatal(err)
		}
		next++
	}); got != 0 {
		t.Errorf("%v allocations an entry", got)
	}
	if err := w.BeginFile(&Entry{Type: File, Path: "e", Size: 1 << 50}); err != nil {
		t.Fatal(err)
	}
	d := Digest{}
	if got := testing.AllocsPerRun(1000, func() {
		d[0]++
		if err := w.PieceRun(d, 1); err != nil {
			t.Fatal(err)
		}
	}); got != 0 {
		t.Errorf("%v allocations a piece", got)
	}
}

func BenchmarkWriter(b *testing.B) {
	b.Run("files", func(b *testing.B) {
		entries := manyFiles(1 << 16)
		b.ReportAllocs()
		var w *Writer
		for i := 0; b.Loop(); i++ {
			if i%len(entries) == 0 {
				w, _ = NewWriter(io.Discard, Header{XXH3, DefaultPieceBytes})
			}
			if err := w.WriteEntry(&entries[i%len(entries)]); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pieces", func(b *testing.B) {
		w, _ := NewWriter(io.Discard, Header{XXH3, DefaultPieceBytes})
		if err := w.BeginFile(&Entry{Type: File, Path: "big", Size: 1 << 62}); err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := w.PieceRun(Digest{byte(i), byte(i >> 8)}, 1); err != nil {
				b.Fatal(err)
			}
		}
	})
}
