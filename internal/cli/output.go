package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"sync"
	"syscall"

	"gdrcp/chunker"
	"gdrcp/internal/inherited"
)

// output is standard output or standard error. It keeps its first error, because
// most of those who write lines there have nobody to return one to.
type output struct {
	name string
	w    io.Writer
	// resumes: after an error it goes on, for a log that a full disk interrupts.
	// Without it nothing is written after one: what follows a gap would not say so.
	resumes bool

	mu   sync.Mutex
	err  error
	full func() // called after an error of writing; may be nil
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil && !o.resumes {
		return 0, o.err
	}
	n, err := o.w.Write(b)
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
	if o.full != nil {
		o.full()
	}
	return n, err
}

// settle has the file system say what it says of writing only when a file is closed
// (an NFS server of a full disk or a quota), which is else left to the end of the
// process, where nobody hears it. Call it behind the last Write: it is one. The error
// is lost's.
func (o *output) settle() error {
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

// lost is the first error of writing, or nil.
func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// whenFull has a function called, with o locked, when o takes no more.
func (o *output) whenFull(do func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.full = do
}

// beneath is what a writer writes to: programs that are started here get it as it
// is.
func beneath(w io.Writer) io.Writer {
	if o, ok := w.(*output); ok {
		return o.w
	}
	return w
}

// errTakesNoMore ends what does nothing but print.
var errTakesNoMore = errors.New("standard output takes no more")

// printing is for what does nothing but print: it ends when that is not written
// any more, and without a word where the reader has gone away, as other programs
// end by SIGPIPE. Who has no more to do than one write sets prints himself.
func (p *program) printing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	p.prints = true
	p.told.whenFull(func() { cancel(errTakesNoMore) })
	return ctx, func() { cancel(nil) }
}

// isUnread reports whether all that was done was to print, for a reader who has
// gone away.
func (p *program) isUnread() bool { return p.prints && errors.Is(p.told.lost(), syscall.EPIPE) }

// hasStopped reports whether an error is what a command that prints ends with
// when that is not written any more.
func (p *program) hasStopped(err error) bool {
	lost := p.told.lost()
	return p.prints && lost != nil && (errors.Is(err, errTakesNoMore) || errors.Is(err, context.Canceled) || errors.Is(err, errors.Unwrap(lost)))
}

// closedFile is standard input or output of a program that was started without.
type closedFile struct{}

var errNotGiven = errors.New("it is closed")

// Read implements io.Reader.
func (closedFile) Read([]byte) (int, error) {
	return 0, fmt.Errorf("read %s: %w", inputName, errNotGiven)
}

// Write implements io.Writer.
func (closedFile) Write([]byte) (int, error) { return 0, errNotGiven }

// givenInput is standard input as this program was given it.
func givenInput() io.Reader {
	if inherited.Look(0) == inherited.Missing {
		return closedFile{}
	}
	return os.Stdin
}

// givenOutput is standard output, likewise.
func givenOutput() io.Writer {
	if inherited.Look(1) == inherited.Missing {
		return closedFile{}
	}
	return os.Stdout
}
