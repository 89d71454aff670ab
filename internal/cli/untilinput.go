package cli

import (
	"context"
	"io"
	"io/fs"
)

// openUntil opens a reader that may block for ever, such as a terminal or a fifo. Opening it may
// block as well. When ctx ends, both stop waiting and return ctx's error. The underlying reader is
// closed when its own wait ends, which may be at the end of the program. Close the result.
func openUntil(ctx context.Context, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	out, in := io.Pipe()
	type result struct {
		from io.Reader
		err  error
	}
	opened := make(chan result, 1)
	go func() {
		from, err := open()
		opened <- result{from, err}
		if err != nil {
			return
		}
		_, err = io.Copy(in, from)
		_ = from.Close() // nothing was written
		in.CloseWithError(err)
	}()
	select {
	case r := <-opened:
		if r.err != nil {
			return nil, r.err
		}
		forget := context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
		return &untilReader{r.from, out, forget}, nil
	case <-ctx.Done():
		out.Close() // ends the goroutine if the file opens after all
		return nil, ctx.Err()
	}
}

// untilReader is the reader that openUntil returns.
type untilReader struct {
	from   io.Reader // only for Stat: the goroutine of openUntil reads it
	text   *io.PipeReader
	forget func() bool
}

func (r *untilReader) Read(b []byte) (int, error) { return r.text.Read(b) }

// Stat describes the underlying file, if the reader is a file.
func (r *untilReader) Stat() (fs.FileInfo, error) { return statOf(r.from) }

// Close ends the reading. It does not wait for a blocked read.
func (r *untilReader) Close() error {
	r.forget()
	return r.text.Close()
}

// kept is a reader that is not closed by the code that opened it.
type kept struct{ from io.Reader }

func (k kept) Read(b []byte) (int, error) { return k.from.Read(b) }

func (k kept) Stat() (fs.FileInfo, error) { return statOf(k.from) }

func (kept) Close() error { return nil }
