//go:build linux && cgo

package gpu

import (
	"errors"
	"testing"
)

func newWordMark(t *testing.T, c *Context) *Mark {
	t.Helper()
	m, err := c.NewWordMark()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closes(t, "mark", m) })
	return m
}

// TestWordMark waits for work in each possible case: the word is written, words
// are not supported, the driver accepts the write and drops it, and there is no
// host memory for words.
func TestWordMark(t *testing.T) {
	for _, c := range []struct {
		mode    string
		written bool // the word shows that the work is done
	}{
		{"late=20", true},
		{"novalue", false},
		{"lostvalue", false},
		{"nomap", false},
		{"old=cuStreamWriteValue32", false},
		{"old=cuMemHostGetDevicePointer", false},
	} {
		t.Run(c.mode, func(t *testing.T) {
			u := useFake(t, c.mode, "strict")
			s, m, mark := newStream(t, u), alloc(t, u, 4096), newWordMark(t, u)
			if err := mark.Wait(); err != nil {
				t.Errorf("wait for what was not recorded: %v", err)
			}
			host, out := pinned(t, u, 4096), pinned(t, u, 4096)
			for i := byte(1); i < 5; i++ {
				err := errors.Join(
					s.ToDevice(m, 0, fill(host, i)), s.ToHost(out, m, 0), s.Record(mark), mark.Wait())
				if err != nil {
					t.Fatal(err)
				}
				if out[0] != i || out[4095] != i {
					t.Fatalf("round %d: the mark was there before the work before it", i)
				}
			}
			if got := mark.word != nil && mark.word.written(); got != c.written {
				t.Errorf("a word has told of the work: %v, want %v", got, c.written)
			}
		})
	}
}

// TestWordsAreUsedAgain creates more marks, one after another, than there are
// words; words that may still be written are not reused.
func TestWordsAreUsedAgain(t *testing.T) {
	c := useFake(t)
	s := newStream(t, c)
	for range wordsBytes/wordStride + 1 {
		m, err := c.NewWordMark()
		if err != nil {
			t.Fatal(err)
		}
		if m.word == nil {
			t.Fatal("a mark without a word, while no other mark is open")
		}
		if err := errors.Join(s.Record(m), m.Wait(), m.Close()); err != nil {
			t.Fatal(err)
		}
	}
	left := len(c.words.free)
	late := newWordMark(t, c)
	late.word.queued.Add(1)
	if err := late.Close(); err != nil {
		t.Fatal(err)
	}
	if len(c.words.free) != left-1 {
		t.Error("a word that the GPU may still write was given back")
	}
}

// TestRefusedWordsComeBack: memory of words that the driver refused to write is freed with
// the context, and does not accumulate in a server whose clients come and go.
func TestRefusedWordsComeBack(t *testing.T) {
	for _, mode := range []string{"novalue", "old=cuStreamWriteValue32"} {
		t.Run(mode, func(t *testing.T) {
			c := useFake(t, mode)
			s := newStream(t, c)
			for range 2 {
				m, err := c.NewWordMark()
				if err != nil {
					t.Fatal(err)
				}
				if err := errors.Join(s.Record(m), m.Wait(), m.Close()); err != nil {
					t.Fatal(err)
				}
			}
			if w := c.words; len(w.free) != w.made {
				t.Errorf("%d of %d words came back", len(w.free), w.made)
			}
		})
	}
}

// TestMoreMarksThanWords: the marks beyond the number of words are ordinary ones.
func TestMoreMarksThanWords(t *testing.T) {
	c := useFake(t)
	s := newStream(t, c)
	var last *Mark
	for range wordsBytes/wordStride + 1 {
		last = newWordMark(t, c)
	}
	if last.word != nil {
		t.Error("there are more words than bytes for them")
	}
	if err := errors.Join(s.Record(last), last.Wait()); err != nil {
		t.Error(err)
	}
}

// TestWordMarkOfAFailedKernel: the word is not written, and the wait ends with the error.
func TestWordMarkOfAFailedKernel(t *testing.T) {
	c := useFake(t, "badkernel")
	h, err := c.NewHasher(1, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	s, m := newStream(t, c), alloc(t, c, 4096)
	mark := newWordMark(t, c)
	err = h.Begin(s, []HashJob{{Memory: m, Len: 4096, Root: true}})
	if err == nil {
		err = s.Record(mark)
	}
	if err == nil {
		err = mark.Wait()
	}
	if e := new(Error); !errors.As(err, &e) {
		t.Errorf("wait for a kernel that failed: %v", err)
	}
	closes(t, "hasher", h)
}

// TestDigestsWithoutMappedMemory digests on a GPU whose kernels cannot access host memory.
func TestDigestsWithoutMappedMemory(t *testing.T) {
	for _, mode := range []string{"nomap", "old=cuMemHostGetDevicePointer"} {
		t.Run(mode, func(t *testing.T) {
			c := useFake(t, mode, "strict", "late")
			bench := newHashBench(t, c, 2, 400<<10)
			data := noise(300<<10 + 5)
			m := bench.load(data)
			bench.compare(data, []HashJob{{Memory: m, Len: 300<<10 + 5, Root: true}, {Memory: m, Offset: 64, Len: 1000}})
		})
	}
}
