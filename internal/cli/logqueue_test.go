package cli

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"
)

// gate takes nothing until it is opened.
type gate struct {
	opened chan struct{}
	buffer
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.opened
	return g.buffer.Write(b)
}

// A log that nobody reads holds nobody up, keeps as many lines as it may, and tells where
// others are missing, and how many.
func TestLogThatNobodyReads(t *testing.T) {
	g := &gate{opened: make(chan struct{})}
	q := newLogQueue(g)
	line := func(i int) string { return fmt.Sprintf("%8d %s\n", i, strings.Repeat("x", 1000)) }
	const written = 2 * logQueueBytes / 1000
	for i := range written {
		if n, err := q.Write([]byte(line(i))); n != len(line(i)) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	close(g.opened)
	q.close()
	kept := 0
	rest := []byte(g.String())
	for ; bytes.HasPrefix(rest, []byte(line(kept))); kept++ {
		rest = rest[len(line(kept)):]
	}
	if want := fmt.Sprintf("gdrcp: the log lacks %d lines here, because nobody read it\n", written-kept); string(rest) != want || kept != logQueueBytes/len(line(0)) {
		t.Errorf("%d lines were kept, and then it wrote %.200q, want %q", kept, rest, want)
	}
}

// What is read at once is written when Write returns, and so it is again when a reader has
// come back.
func TestLogThatIsRead(t *testing.T) {
	g := &gate{opened: make(chan struct{})}
	q := newLogQueue(g)
	q.Write([]byte("first\n")) // waits, and nobody comes
	q.Write([]byte("second\n"))
	close(g.opened)
	waitsAgain := func() bool {
		q.mu.Lock()
		defer q.mu.Unlock()
		return !q.stalled
	}
	for !waitsAgain() {
		time.Sleep(time.Millisecond)
	}
	q.Write([]byte("last\n"))
	if text := g.String(); text != "first\nsecond\nlast\n" {
		t.Errorf("it wrote %q", text)
	}
	q.close()
}
