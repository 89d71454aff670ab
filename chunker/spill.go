package chunker

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"os"

	"gdrcp/internal/fsys"
)

const (
	// spillBufferBytes is the buffer of each run while runs are merged.
	spillBufferBytes = 4 << 10
	// maxRuns bounds the runs of one directory. Beyond it, all runs are merged into
	// one.
	maxRuns = 64
)

// spillFile is one unlinked temporary file for the sorted runs of directories
// too large for memory. Directories use it like a stack: the space behind the
// last one is given back.
type spillFile struct {
	file *os.File // nil until needed
	size int64
	runs int // maxRuns, or less in tests
}

func (f *spillFile) begin() (*runs, error) {
	if f.file == nil {
		file, err := fsys.OpenUnlinked(os.TempDir())
		if err != nil {
			return nil, fmt.Errorf("make temporary file for a large directory: %w", err)
		}
		f.file = file
	}
	limit := f.runs
	if limit == 0 {
		limit = maxRuns
	}
	return &runs{file: f, start: f.size, limit: limit}, nil
}

func (f *spillFile) close() error {
	if f.file == nil {
		return nil
	}
	err := f.file.Close()
	f.file = nil
	return err
}

// runs are the sorted runs of one directory and the merge of them.
type runs struct {
	file  *spillFile
	start int64 // of the first run in the file
	limit int
	all   []*run
}

// run is one sorted run: records of length (2 bytes) and name in [next, stop)
// of the file, the first of them decoded.
type run struct {
	next, stop int64
	buf        []byte // read ahead, not decoded yet
	space      []byte
	name       []byte
	ended      bool
}

// runWriter appends one run to the file.
type runWriter struct {
	runs  *runs
	start int64
	buf   []byte
}

func (r *runs) newRun() *runWriter { return &runWriter{runs: r, start: r.file.size} }

func (w *runWriter) add(name []byte) error {
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(len(name)))
	w.buf = append(w.buf, name...)
	if len(w.buf) >= direntBytes {
		return w.flush()
	}
	return nil
}

func (w *runWriter) flush() error {
	f := w.runs.file
	n, err := f.file.WriteAt(w.buf, f.size)
	f.size += int64(n)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("spill names of a large directory: %w", err)
	}
	return nil
}

// finish writes the run out. If there are too many runs, it merges all into one.
func (w *runWriter) finish() error {
	if err := w.flush(); err != nil {
		return err
	}
	r := w.runs
	r.all = append(r.all, &run{next: w.start, stop: r.file.size})
	if len(r.all) < r.limit {
		return nil
	}
	if err := r.rewind(); err != nil {
		return err
	}
	merged := &runWriter{runs: r, start: r.file.size}
	for name, ok := r.peek(); ok; name, ok = r.peek() {
		if err := merged.add(name); err != nil {
			return err
		}
		if err := r.advance(); err != nil {
			return err
		}
	}
	if err := merged.flush(); err != nil {
		return err
	}
	r.all = []*run{{next: merged.start, stop: r.file.size}}
	return nil
}

// rewind decodes the first name of every run, and makes the runs a heap.
func (r *runs) rewind() error {
	for _, one := range r.all {
		if err := one.decode(r.file.file); err != nil {
			return err
		}
	}
	for i := len(r.all)/2 - 1; i >= 0; i-- {
		r.sift(i)
	}
	return nil
}

// peek returns the least name of all runs.
func (r *runs) peek() ([]byte, bool) {
	if len(r.all) == 0 || r.all[0].ended {
		return nil, false
	}
	return r.all[0].name, true
}

func (r *runs) advance() error {
	if err := r.all[0].decode(r.file.file); err != nil {
		return err
	}
	r.sift(0)
	return nil
}

// sift moves run i down to its place in the heap.
func (r *runs) sift(i int) {
	for {
		least := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(r.all); child++ {
			if r.all[child].before(r.all[least]) {
				least = child
			}
		}
		if least == i {
			return
		}
		r.all[i], r.all[least] = r.all[least], r.all[i]
		i = least
	}
}

// drop frees the space of the runs. If the file cannot be cut, that is no error: it has
// no name and will be written over.
func (r *runs) drop() {
	r.file.size = r.start
	_ = r.file.file.Truncate(r.start)
}

func (one *run) before(other *run) bool {
	if one.ended || other.ended {
		return !one.ended
	}
	return bytes.Compare(one.name, other.name) < 0
}

// decode makes the next record the run's name.
func (one *run) decode(file io.ReaderAt) error {
	if len(one.buf) == 0 && one.next == one.stop {
		one.ended, one.space = true, nil
		return nil
	}
	if err := one.fill(file, 2); err != nil {
		return err
	}
	length := int(binary.NativeEndian.Uint16(one.buf))
	if err := one.fill(file, 2+length); err != nil {
		return err
	}
	one.name = append(one.name[:0], one.buf[2:2+length]...)
	one.buf = one.buf[2+length:]
	return nil
}

// fill reads until at least n bytes are ahead.
func (one *run) fill(file io.ReaderAt, n int) error {
	if len(one.buf) >= n {
		return nil
	}
	if one.space == nil || n > len(one.space) {
		one.space = make([]byte, max(n, spillBufferBytes))
	}
	have := copy(one.space, one.buf)
	want := int(min(int64(len(one.space)-have), one.stop-one.next))
	got, err := file.ReadAt(one.space[have:have+want], one.next)
	one.next += int64(got)
	one.buf = one.space[:have+got]
	if len(one.buf) < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read spilled names of a large directory: %w", err)
	}
	return nil
}
