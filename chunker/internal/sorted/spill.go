package sorted

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

// SpillFile is one unlinked temporary file for the sorted runs of directories
// too large for memory. Directories use it like a stack: the space behind the
// last one is given back.
type SpillFile struct {
	File *os.File // nil until needed
	Size int64
	Runs int // maxRuns, or less in tests
}

func (f *SpillFile) Begin() (*runs, error) {
	if f.File == nil {
		file, err := fsys.OpenUnlinked(os.TempDir())
		if err != nil {
			return nil, fmt.Errorf("make temporary file for a large directory: %w", err)
		}
		f.File = file
	}
	limit := f.Runs
	if limit == 0 {
		limit = maxRuns
	}
	return &runs{file: f, start: f.Size, limit: limit}, nil
}

func (f *SpillFile) Close() error {
	if f.File == nil {
		return nil
	}
	err := f.File.Close()
	f.File = nil
	return err
}

// runs are the sorted runs of one directory and the merge of them.
type runs struct {
	file  *SpillFile
	start int64 // of the first run in the file
	limit int
	all   []*Run
}

// Run is one sorted run: records of length (2 bytes) and name in [next, stop)
// of the file, the first of them decoded.
type Run struct {
	Next, Stop int64
	buf        []byte // read ahead, not decoded yet
	space      []byte
	Name       []byte
	Ended      bool
}

// RunWriter appends one run to the file.
type RunWriter struct {
	runs  *runs
	Start int64
	buf   []byte
}

func (r *runs) NewRun() *RunWriter { return &RunWriter{runs: r, Start: r.file.Size} }

func (w *RunWriter) Add(name []byte) error {
	w.buf = binary.NativeEndian.AppendUint16(w.buf, uint16(len(name)))
	w.buf = append(w.buf, name...)
	if len(w.buf) >= DirentBytes {
		return w.Flush()
	}
	return nil
}

func (w *RunWriter) Flush() error {
	f := w.runs.file
	n, err := f.File.WriteAt(w.buf, f.Size)
	f.Size += int64(n)
	w.buf = w.buf[:0]
	if err != nil {
		return fmt.Errorf("spill names of a large directory: %w", err)
	}
	return nil
}

// finish writes the run out. If there are too many runs, it merges all into one.
func (w *RunWriter) finish() error {
	if err := w.Flush(); err != nil {
		return err
	}
	r := w.runs
	r.all = append(r.all, &Run{Next: w.Start, Stop: r.file.Size})
	if len(r.all) < r.limit {
		return nil
	}
	if err := r.rewind(); err != nil {
		return err
	}
	merged := &RunWriter{runs: r, Start: r.file.Size}
	for name, ok := r.peek(); ok; name, ok = r.peek() {
		if err := merged.Add(name); err != nil {
			return err
		}
		if err := r.advance(); err != nil {
			return err
		}
	}
	if err := merged.Flush(); err != nil {
		return err
	}
	r.all = []*Run{{Next: merged.Start, Stop: r.file.Size}}
	return nil
}

// rewind decodes the first name of every run, and makes the runs a heap.
func (r *runs) rewind() error {
	for _, one := range r.all {
		if err := one.Decode(r.file.File); err != nil {
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
	if len(r.all) == 0 || r.all[0].Ended {
		return nil, false
	}
	return r.all[0].Name, true
}

func (r *runs) advance() error {
	if err := r.all[0].Decode(r.file.File); err != nil {
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
	r.file.Size = r.start
	_ = r.file.File.Truncate(r.start)
}

func (one *Run) before(other *Run) bool {
	if one.Ended || other.Ended {
		return !one.Ended
	}
	return bytes.Compare(one.Name, other.Name) < 0
}

// Decode makes the next record the run's name.
func (one *Run) Decode(file io.ReaderAt) error {
	if len(one.buf) == 0 && one.Next == one.Stop {
		one.Ended, one.space = true, nil
		return nil
	}
	if err := one.fill(file, 2); err != nil {
		return err
	}
	length := int(binary.NativeEndian.Uint16(one.buf))
	if err := one.fill(file, 2+length); err != nil {
		return err
	}
	one.Name = append(one.Name[:0], one.buf[2:2+length]...)
	one.buf = one.buf[2+length:]
	return nil
}

// fill reads until at least n bytes are ahead.
func (one *Run) fill(file io.ReaderAt, n int) error {
	if len(one.buf) >= n {
		return nil
	}
	if one.space == nil || n > len(one.space) {
		one.space = make([]byte, max(n, spillBufferBytes))
	}
	have := copy(one.space, one.buf)
	want := int(min(int64(len(one.space)-have), one.Stop-one.Next))
	got, err := file.ReadAt(one.space[have:have+want], one.Next)
	one.Next += int64(got)
	one.buf = one.space[:have+got]
	if len(one.buf) < n {
		if err == nil {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read spilled names of a large directory: %w", err)
	}
	return nil
}
