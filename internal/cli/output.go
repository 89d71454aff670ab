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
	"sync/atomic"
	"syscall"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/inherited"
)

// output is standard output, standard error or a log file. It keeps its first error,
// because most writers of lines cannot return one.
type output struct {
	name string
	w    io.Writer
	// resumes: the output goes on after an error, for a log that a full disk
	// interrupts. Without resumes nothing is written after an error, because nobody
	// would see the gap.
	resumes bool
	// ending is closed when the program is to end. Nil: writes wait for the reader for
	// ever.
	ending <-chan struct{}

	mu         sync.Mutex
	patience   time.Duration // how long all writes may still wait once ending is closed
	err        error
	unread     bool   // a write was given up, and may still be under way
	whenFailed func() // called after an error of writing; may be nil

	turn atomic.Int64 // odd while something is being written
}

// lastWordsTime is how long a program that is to end waits for the reader of an output.
const lastWordsTime = 2 * time.Second

// errUnread says that the reader of an output did not read until the program had to end.
var errUnread = errors.New("nobody reads it")

// newOutput returns the output on w, whose writes wait no longer than lastWordsTime once
// the program is to end.
func (p *program) newOutput(name string, w io.Writer, resumes bool) *output {
	return &output{name: name, w: w, resumes: resumes, ending: p.ending, patience: lastWordsTime}
}

// Write implements io.Writer. It blocks while the reader does not read. Once the program is
// to end it gives up, and nothing more is written.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.unread || o.err != nil && !o.resumes {
		return 0, o.err
	}
	o.turn.Add(1)
	n, err := o.write(b)
	o.turn.Add(1)
	if err == nil {
		return n, nil
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
	return n, err
}

// write writes in a goroutine of its own: a terminal that is stopped, or a pipe that
// nobody reads, holds a write for ever, and nothing ends that but the process.
func (o *output) write(b []byte) (int, error) {
	if o.ending == nil {
		return o.w.Write(b)
	}
	type written struct {
		n   int
		err error
	}
	done, b := make(chan written, 1), bytes.Clone(b) // the caller takes b back before a write that is given up ends
	go func() {
		n, err := o.w.Write(b)
		done <- written{n, err}
	}()
	select {
	case r := <-done:
		return r.n, r.err
	case <-o.ending:
	}
	from := time.Now()
	select {
	case r := <-done:
		o.patience -= time.Since(from)
		return r.n, r.err
	case <-time.After(o.patience):
		o.unread = true
		return 0, errUnread
	}
}

// isWriting reports whether a write is under way, and which one.
func (o *output) isWriting() (turn int64, is bool) {
	turn = o.turn.Load()
	return turn, turn%2 == 1
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

// finish makes the file system report errors that it reports only when a file is closed
// (an NFS server with a full disk, a quota). At the end of the process nobody would see
// them. Call it after the last Write. It returns the first error of writing.
func (o *output) finish() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, isFile := o.w.(*os.File)
	if !isFile || o.err != nil {
		return o.err
	}
	if st, err := f.Stat(); err != nil || !st.Mode().IsRegular() {
		return nil
	}
	if err := chunker.FinishFile(f); err != nil {
		o.err = fmt.Errorf("write %s: %w", o.name, err)
	}
	return o.err
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
