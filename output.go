package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync"
)

// output is standard output. It keeps its first error, because most of those
// who write lines there have nobody to return one to, and writes nothing after
// it: what follows a gap would not say so.
type output struct {
	mu  sync.Mutex
	w   io.Writer
	err error
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
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
	o.err = fmt.Errorf("write standard output: %w", err)
	return n, o.err
}

// lost is the first error of writing, or nil.
func (o *output) lost() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}
