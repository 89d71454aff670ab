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

	"gdrcp/chunker"
	"gdrcp/internal/inherited"
)

// output is standard output, standard error or a log file. It keeps its first error,
// because most writers of lines cannot return one. It is written in a goroutine: a
// terminal that is stopped, or a pipe that nobody reads, holds a write for ever, and
// nothing ends that but the process.
type output struct {
	name string
	w    io.Writer
	// resumes: the output goes on after an error, for a log that a full disk
	// interrupts. Without resumes nothing is written after an error, because nobody
	// would see the gap.
	resumes bool
	// patience is how long a write waits for the reader; 0: until the program is to end.
	patience time.Duration
	// ending is closed when the program is to end. Nil: writes wait for the reader for
	// ever.
	ending <-chan struct{}

	mu         sync.Mutex
	queue      []*queuedWrite
	last       *queuedWrite // that came
	bytes      int          // of the queue, and of the write that is under way
	writing    bool         // by a goroutine
	stalled    bool         // the reader was waited for in vain: nobody waits until all is written
	dropped    int64        // writes for which there was no room
	err        error
	whenFailed func() // called after an error of writing; may be nil
}

// queuedWrite is something to write, and the result once done is closed.
type queuedWrite struct {
	text []byte
	done chan struct{}
	n    int
	err  error
}

const (
	// outputBytes bounds what waits for a reader that was waited for in vain.
	outputBytes = 1 << 20
	// readerPatience is how long a copy waits for who reads what it tells, and logPatience how
	// long the sessions of a server wait for who reads its log.
	readerPatience = time.Minute
	logPatience    = time.Second
	// lastWordsTime is how long a program that is to end waits for the reader of an output.
	lastWordsTime = 2 * time.Second
)

// errUnread says that the reader of an output did not read.
var errUnread = errors.New("nobody reads it")

// newOutput returns the output on w.
func (p *program) newOutput(name string, w io.Writer, resumes bool, patience time.Duration) *output {
	return &output{name: name, w: w, resumes: resumes, patience: patience, ending: p.ending}
}

// Write implements io.Writer. It blocks while the reader does not read, for patience at
// most. What comes then is written when the reader goes on, or is lost, which is an error,
// once more than outputBytes wait.
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

// put takes something to write. It returns nil if there is nothing to wait for.
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
	// The caller takes b back before a write that is not waited for ends.
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

// failed keeps the error of a write, if there is one, and returns it with the output's
// name. The caller holds mu.
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

// Stat describes the file that the output goes to, if it goes to one.
func (o *output) Stat() (fs.FileInfo, error) { return statOf(o.w) }

// statOf describes the file that a stream is. For other streams the error is
// errors.ErrUnsupported.
func statOf(stream any) (fs.FileInfo, error) {
	if f, ok := stream.(interface{ Stat() (fs.FileInfo, error) }); ok {
		return f.Stat()
	}
	return nil, errors.ErrUnsupported
}

// finish waits until all is written, for lastWordsTime at most, and makes the file system
// report errors that it reports only when a file is closed (an NFS server with a full disk,
// a quota). At the end of the process nobody would see them. Call it after the last Write.
// It returns the first error of writing.
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
	return o.failed(chunker.FinishFile(f))
}

// writeError is the first error of writing, or nil.
func (o *output) writeError() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// onError sets a function that is called, with o locked, after each error of writing.
func (o *output) onError(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.whenFailed = do
}

// unwrapWriter returns the writer below an output, for programs that gdrcp starts.
func unwrapWriter(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.w
	}
	return w
}

// errTakesNoMore ends a command that only prints.
var errTakesNoMore = errors.New("standard output takes no more")

// printingContext is for a command that only prints. The context ends when standard
// output takes no more. If the reader has gone away, the program then ends without a
// message, as other programs end by SIGPIPE. A command with a single write needs no
// context: it sets onlyPrints.
func (p *program) printingContext(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.onlyPrints = true
	p.checkedStdout.onError(func() { cancel(errTakesNoMore) })
	return ctx, func() { cancel(nil) }
}

// readerHasLeft reports whether the command only prints and its reader has gone away.
func (p *program) readerHasLeft() bool {
	return p.onlyPrints && errors.Is(p.checkedStdout.writeError(), syscall.EPIPE)
}

// endedByOutput reports whether a command that only prints ended with err because standard
// output took no more.
func (p *program) endedByOutput(err error) bool {
	lost := p.checkedStdout.writeError()
	return p.onlyPrints && lost != nil && !errors.Is(lost, errUnread) && (errors.Is(err, errTakesNoMore) || errors.Is(err, context.Canceled) || errors.Is(err, errors.Unwrap(lost)))
}

// closedFile stands for standard input or output of a program that was started without
// it.
type closedFile struct{}

var errClosed = errors.New("it is closed")

// Read implements io.Reader.
func (closedFile) Read([]byte) (int, error) {
	return 0, fmt.Errorf("read %s: %w", inputName, errClosed)
}

// Write implements io.Writer.
func (closedFile) Write([]byte) (int, error) { return 0, errClosed }

// inheritedInput returns the standard input with which this program was started.
func inheritedInput() io.Reader {
	if inherited.Look(0) == inherited.Missing {
		return closedFile{}
	}
	return os.Stdin
}

// inheritedOutput returns the standard output with which this program was started.
func inheritedOutput() io.Writer {
	if inherited.Look(1) == inherited.Missing {
		return closedFile{}
	}
	return os.Stdout
}
