package cli

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"time"
)

const (
	// logQueueBytes bounds the lines of a log that wait for their reader.
	logQueueBytes = 1 << 20
	// logPatience is how long a line may hold up who writes it. A reader that pauses for less
	// loses no line, however slow it is.
	logPatience = time.Second
)

// logQueue is a server's log, written from one goroutine: a terminal that is stopped, or a
// pipe that nobody reads, holds up no session. Once a line has waited for logPatience,
// others do not wait until all are written. What comes while logQueueBytes wait is counted
// instead, and the log tells how much that was.
type logQueue struct {
	to    io.Writer
	ended chan struct{}

	mu      sync.Mutex
	come    sync.Cond
	lines   []queuedLine
	bytes   int   // of lines, and of those that are being written
	dropped int64 // behind lines
	stalled bool  // nobody waits for lines to be written
	closed  bool
}

// queuedLine is a line, and what is closed when it was written.
type queuedLine struct {
	text    []byte
	written chan struct{}
}

// newLogQueue returns a log that goes to a writer. close ends its goroutine.
func newLogQueue(to io.Writer) *logQueue {
	q := &logQueue{to: to, ended: make(chan struct{})}
	q.come.L = &q.mu
	go q.drain()
	return q
}

// Write takes a line. It blocks for logPatience at most, and does not fail.
func (q *logQueue) Write(text []byte) (int, error) {
	line, waits := q.put(text)
	if !waits {
		return len(text), nil
	}
	select {
	case <-line.written:
	case <-time.After(logPatience):
		q.mu.Lock()
		q.stalled = true
		q.mu.Unlock()
	}
	return len(text), nil
}

// put takes a line, if there is room for it, and reports whether to wait for it.
func (q *logQueue) put(text []byte) (line queuedLine, waits bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.come.Signal()
	if q.dropped > 0 || q.bytes+len(text) > logQueueBytes {
		q.dropped++
		return queuedLine{}, false
	}
	line = queuedLine{bytes.Clone(text), make(chan struct{})}
	q.lines = append(q.lines, line)
	q.bytes += len(text)
	return line, !q.stalled
}

// close writes what is left, for as long as the writer takes it. Nothing may be written
// afterwards.
func (q *logQueue) close() {
	q.mu.Lock()
	q.closed = true
	q.come.Signal()
	q.mu.Unlock()
	<-q.ended
}

// drain writes lines as they come, until the queue is closed and empty.
func (q *logQueue) drain() {
	defer close(q.ended)
	for {
		lines, dropped := q.take()
		if len(lines) == 0 && dropped == 0 {
			return
		}
		for _, line := range lines {
			_, _ = q.to.Write(line.text) // the output keeps the error
			close(line.written)
			q.mu.Lock()
			q.bytes -= len(line.text)
			q.mu.Unlock()
		}
		if dropped > 0 {
			fmt.Fprintf(q.to, "gdrcp: the log lacks %s here, because nobody read it\n", count(dropped, "line", "lines"))
		}
	}
}

// take waits for lines. It returns none once the queue is closed and empty.
func (q *logQueue) take() (lines []queuedLine, dropped int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.lines) == 0 && q.dropped == 0 && !q.closed {
		q.stalled = false
		q.come.Wait()
	}
	lines, dropped = q.lines, q.dropped
	q.lines, q.dropped = nil, 0
	return lines, dropped
}
