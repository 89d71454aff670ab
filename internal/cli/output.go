package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/internal/inherited"
)

// output is standard output, standard error or a log file. It keeps its first error,
// because most callers cannot return one. A goroutine does the writes: a write to a
// stopped terminal, or to a pipe that nobody reads, blocks until the process ends.
type output struct {
	name string
	w    io.Writer
	// resumes means that writing continues after an error, for a log on a disk that was full.
	// Without it nothing is written after an error, because nobody would see the gap.
	resumes bool
	// patience is how long a write waits for the reader. 0 means until the program is about to end.
	patience time.Duration
	// ending is closed when the program is about to end. If it is nil, writes wait for
	// the reader for ever.
	ending <-chan struct{}

	mu         sync.Mutex
	queue      []*queuedWrite
	last       *queuedWrite // most recent
	bytes      int          // of the queue and of the write in progress
	writing    bool         // a goroutine is writing
	stalled    bool         // a wait for the reader has timed out: writes no longer wait until all is written
	dropped    int64        // writes for which there was no room
	err        error
	whenFailed func() // called after a write error; may be nil
}

// queuedWrite is text to write, and the result once done is closed.
type queuedWrite struct {
	text []byte
	done chan struct{}
	n    int
	err  error
}

const (
	// outputBytes limits the queue for a reader that was waited for in vain.
	outputBytes = 1 << 20
	// readerPatience is how long a copy waits for the reader of its output. logPatience
	// is how long the sessions of a server wait for the reader of its log.
	readerPatience = time.Minute
	logPatience    = time.Second
	// lastWordsTime is how long a program that is about to end waits for the reader of an output.
	lastWordsTime = 2 * time.Second
)

// errUnread reports that the reader of an output did not read.
var errUnread = errors.New("nobody reads it")

// newOutput returns an output that writes to w.
func (p *program) newOutput(name string, w io.Writer, resumes bool, patience time.Duration) *output {
	return &output{name: name, w: w, resumes: resumes, patience: patience, ending: p.ending}
}

// Write implements io.Writer. If the reader does not read, it blocks for at most
// patience. Later text is queued until the reader continues. When the queue exceeds
// outputBytes, text is lost, which is an error.
func (o *output) Write(b []byte) (int, error) {
	w, err := o.put(b)
	if w == nil {
		return len(b), err
	}
	var enough <-chan time.Time
	if o.patience > 0 {
		enough = time.After(o.patience)
	}
	select {
	case <-w.done:
		return w.n, w.err
	case <-enough:
	case <-o.ending:
		select {
		case <-w.done:
			return w.n, w.err
		case <-time.After(lastWordsTime):
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.stalled = true
	return len(b), nil
}

// put queues text to write. It returns nil if there is nothing to wait for.
func (o *output) put(b []byte) (*queuedWrite, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && !o.resumes {
		return nil, o.err
	}
	if o.dropped > 0 || o.bytes > 0 && o.bytes+len(b) > outputBytes {
		o.dropped++
		return nil, o.failed(errUnread)
	}
	// A write that nobody waits for may outlast this call, after which the caller reuses b.
	o.last = &queuedWrite{text: bytes.Clone(b), done: make(chan struct{})}
	o.queue, o.bytes = append(o.queue, o.last), o.bytes+len(b)
	if !o.writing {
		o.writing = true
		go o.drain()
	}
	if o.stalled {
		return nil, nil
	}
	return o.last, nil
}

// drain writes the queue.
func (o *output) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.queue) > 0 || o.dropped > 0 {
		w := &queuedWrite{done: make(chan struct{})}
		if len(o.queue) > 0 {
			w, o.queue = o.queue[0], o.queue[1:]
		} else {
			w.text = fmt.Appendf(nil, "gdrcp: the log lacks %s here, because nobody read it\n", count(o.dropped, "line", "lines"))
			o.bytes, o.dropped = len(w.text), 0
		}
		if w.err = o.err; o.err == nil || o.resumes {
			o.mu.Unlock()
			w.n, w.err = o.w.Write(w.text)
			o.mu.Lock()
			w.err = o.failed(w.err)
		}
		o.bytes -= len(w.text)
		close(w.done)
	}
	o.writing, o.stalled = false, false
}

// failed keeps the error of a write, if any, and returns it with the output's name. The
// caller holds mu.
func (o *output) failed(err error) error {
	if err == nil {
		return nil
	}
	var path *fs.PathError
	if errors.As(err, &path) {
		err = path.Err
	}
	err = fmt.Errorf("write %s: %w", o.name, err)
	if o.err == nil {
		o.err = err
	}
	if o.whenFailed != nil {
		o.whenFailed()
	}
	return err
}

// Stat describes the file that the output writes to, if it is a file.
func (o *output) Stat() (fs.FileInfo, error) { return statOf(o.w) }

// statOf describes the file of a stream. For other streams the error is errors.ErrUnsupported.
func statOf(stream any) (fs.FileInfo, error) {
	if f, ok := stream.(interface{ Stat() (fs.FileInfo, error) }); ok {
		return f.Stat()
	}
	return nil, errors.ErrUnsupported
}

// finish waits until everything is written, for at most lastWordsTime. It also closes
// files, because some file systems report errors only then (an NFS server with a full
// disk, a quota), and nobody would see them after the process has ended. Call it after
// the last Write. It returns the first error of writing.
func (o *output) finish() error {
	o.mu.Lock()
	last := o.last
	o.mu.Unlock()
	unread := false
	if last != nil {
		select {
		case <-last.done:
		case <-time.After(lastWordsTime):
			unread = true
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if unread {
		return o.failed(errUnread)
	}
	f, isFile := o.w.(*os.File)
	if !isFile || o.err != nil {
		return o.err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	return o.failed(dest.FinishFile(f))
}

// writeError returns the first error of writing, or nil.
func (o *output) writeError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// onError sets a function that is called, with o locked, after each write error.
func (o *output) onError(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.whenFailed = do
}

// unwrapWriter returns the writer underneath an output, for programs that gdrcp starts.
func unwrapWriter(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.w
	}
	return w
}

// errTakesNoMore ends a command that only prints when standard output fails.
var errTakesNoMore = errors.New("standard output takes no more")

// printingContext returns a context for a command that only prints. It ends when a
// write to standard output fails. If the reader has closed the pipe, the program then
// ends without a message, as other programs end by SIGPIPE. A command with a single
// write needs no context: it sets onlyPrints.
func (p *program) printingContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.onlyPrints = true
	p.checkedStdout.onError(func() { cancel(errTakesNoMore) })
	return ctx, func() { cancel(nil) }
}

// readerHasLeft reports whether the command only prints and its reader has closed the pipe.
func (p *program) readerHasLeft() bool {
	return p.onlyPrints && errors.Is(p.checkedStdout.writeError(), syscall.EPIPE)
}

// endedByOutput reports whether a command that only prints ended with err because a
// write to standard output failed.
func (p *program) endedByOutput(err error) bool {
	lost := p.checkedStdout.writeError()
	return p.onlyPrints && lost != nil && !errors.Is(lost, errUnread) && (errors.Is(err, errTakesNoMore) || errors.Is(err, context.Canceled) || errors.Is(err, errors.Unwrap(lost)))
}

// closedFile replaces the standard input or output of a program that was started without it.
type closedFile struct{}

var errClosed = errors.New("it is closed")

// Read implements io.Reader.
func (closedFile) Read([]byte) (int, error) {
	return 0, fmt.Errorf("read %s: %w", inputName, errClosed)
}

// Write implements io.Writer.
func (closedFile) Write([]byte) (int, error) { return 0, errClosed }

// inheritedInput returns the standard input that this program was started with.
func inheritedInput() io.Reader {
	if inherited.Look(0) == inherited.Missing {
		return closedFile{}
	}
	return os.Stdin
}

// inheritedOutput returns the standard output that this program was started with.
func inheritedOutput() io.Writer {
	if inherited.Look(1) == inherited.Missing {
		return closedFile{}
	}
	return os.Stdout
}
