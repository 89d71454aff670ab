package cli

import (
	"context"
	"io"
)

// openUntil opens a reader that may wait for ever, like a terminal or a fifo, whose
// opening may wait as well. When ctx ends, so do the waits, with ctx's error. The opened
// reader itself is then closed when its own wait ends, at the latest by the end of the
// program. Close the result.
func openUntil(ctx context.Context, open func() (io.ReadCloser, error)) (io.ReadCloser, error) {
	out, in := io.Pipe()
	opened := make(chan error, 1)
	go func() {
		from, err := open()
		opened <- err
		if err != nil {
			return
		}
		_, err = io.Copy(in, from)
		_ = from.Close() // nothing was written
		in.CloseWithError(err)
	}()
	select {
	case err := <-opened:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		out.Close() // ends the goroutine when the file opens after all
		return nil, ctx.Err()
	}
	forget := context.AfterFunc(ctx, func() { in.CloseWithError(ctx.Err()) })
	return &untilReader{out, forget}, nil
}

// untilReader is what openUntil opens.
type untilReader struct {
	from   *io.PipeReader
	forget func() bool
}

func (r *untilReader) Read(b []byte) (int, error) { return r.from.Read(b) }

// Close ends the reading. It does not wait.
func (r *untilReader) Close() error {
	r.forget()
	return r.from.Close()
}
