package manifest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"

	"gdrcp/internal/dirsync"
)

// Compression is zstd (RFC 8878) in one thread. A writer chooses it by the file's name,
// a reader recognizes it by the first bytes.
const (
	zstdSuffix = ".zst"
	// writeWindowBytes is small because digests do not compress, and names and
	// numbers compress only with others nearby: a larger window would use
	// readers' memory to no benefit.
	writeWindowBytes = 1 << 20
	// maxWindowBytes is the window that RFC 8878 recommends every decoder to
	// support. It bounds the memory that a hostile stream can demand.
	maxWindowBytes = 8 << 20
)

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// source is the text that a Reader reads, with what has to be closed afterwards.
type source struct {
	text    io.Reader
	below   faultReader
	id      Inode
	name    FileName      // the name by which it was opened, if known
	decoder *zstd.Decoder // nil if not compressed
	file    *os.File      // nil if the caller owns it
}

// faultReader remembers an error of the stream below, which the decompressor
// would otherwise mix with its own.
type faultReader struct {
	io.Reader
	fault error
}

func (f *faultReader) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		f.fault = err
	}
	return n, err
}

func newSource(r io.Reader) (*source, error) {
	s := &source{below: faultReader{Reader: r}, id: idOf(r)}
	if s.id != (Inode{}) {
		s.name = nameOfStream(r)
	}
	raw := bufio.NewReaderSize(&s.below, maxLineBytes)
	s.text = raw
	// If the stream is too short, the reader of the first line reports that.
	if first, err := raw.Peek(len(zstdMagic)); err != nil || !bytes.Equal(first, zstdMagic) {
		return s, nil
	}
	decoder, err := zstd.NewReader(raw,
		zstd.WithDecoderConcurrency(1), // starts no goroutine
		zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindowBytes))
	if err != nil {
		return nil, fmt.Errorf("start decompression: %w", err)
	}
	s.decoder, s.text = decoder, decoder
	return s, nil
}

// explain turns a read error into one that names its cause: the underlying
// stream, its end, or the compression.
func (s *source) explain(err error) error {
	switch {
	case s.below.fault != nil:
		return s.below.fault
	case s.decoder == nil:
		return err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fmt.Errorf("%w: decompress: %w", ErrTruncated, err)
	}
	return fmt.Errorf("%w: decompress: %w", ErrFormat, err)
}

func (s *source) close() error {
	if s.decoder != nil {
		s.decoder.Close()
	}
	if s.file == nil {
		return nil
	}
	f := s.file
	s.file = nil
	return f.Close()
}

// Open opens the named manifest, compressed or not. The caller closes it.
func Open(name string) (*Reader, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read manifest: %w", err)
	}
	src, err := newSource(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("read manifest: %s: %w", name, err), f.Close())
	}
	src.file = f
	return startReader(src, name+": ")
}

// Again returns a new Reader at the start of a manifest that Open opened and
// that is not closed. It reads the same file even if the name now refers to
// another one. r must not be used afterwards, and need not be closed.
func (r *Reader) Again() (*Reader, error) {
	f := r.source.file
	r.source.file = nil
	if f == nil {
		return nil, fmt.Errorf("read manifest: %sagain: %w", r.name, os.ErrClosed)
	}
	_, err := f.Seek(0, io.SeekStart)
	err = errors.Join(err, r.Close())
	src, serr := newSource(f)
	if err = errors.Join(err, serr); err != nil {
		return nil, errors.Join(fmt.Errorf("read manifest: %s%w", r.name, err), f.Close())
	}
	src.file = f
	return startReader(src, r.name)
}

// FileWriter is a Writer to a file that appears under its name only when it is complete.
// End it with Commit or Abort; Abort after Commit does nothing, so it can be deferred.
type FileWriter struct {
	*Writer
	name    string
	temp    string   // empty if the existing file is written to
	file    *os.File // nil once ended
	encoder *zstd.Encoder
}

// Create starts a manifest that will be named name, and replaces an existing file of that
// name. If name ends in ".zst" the manifest is compressed. Until Commit it is a hidden
// file in the same directory. A device, FIFO or socket of that name is not replaced: the
// manifest is written to it. If name is a directory, the error is EISDIR.
func Create(name string, h Header) (*FileWriter, error) {
	w := &FileWriter{name: name}
	if err := checkNoDir(name); err != nil {
		return nil, fmt.Errorf("create manifest: %w", err)
	}
	var f *os.File
	var err error
	if isSpecial(name) {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0) // /dev/stdout may be a log file
	} else {
		sweep(filepath.Dir(name))
		if f, err = createTemp(name); err == nil {
			w.temp = f.Name()
		}
	}
	if err != nil {
		return nil, fmt.Errorf("create manifest: %w", err)
	}
	w.file = f
	var out io.Writer = f
	if strings.HasSuffix(name, zstdSuffix) {
		w.encoder, err = zstd.NewWriter(f,
			zstd.WithEncoderConcurrency(1), // starts no goroutine
			zstd.WithWindowSize(writeWindowBytes))
		out = w.encoder
	}
	if err == nil {
		w.Writer, err = NewWriter(out, h)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("create manifest: %w", err), w.Abort())
	}
	w.itself = newItself(f) // the file itself, without compression
	w.itself.replacing(name)
	return w, nil
}

// checkNoDir refuses the name of a directory, because a finished manifest could not be
// renamed to it. A link to a directory is replaced, unless a slash follows.
func checkNoDir(name string) error {
	stat := os.Lstat
	if strings.HasSuffix(name, "/") {
		stat = os.Stat
	}
	if st, err := stat(name); err == nil && st.IsDir() {
		return &os.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return nil
}

// isSpecial reports whether the named file must not be replaced: a device, FIFO
// or socket, or one of the links in /dev to open files, such as /dev/stdout.
func isSpecial(name string) bool {
	st, err := os.Stat(name)
	if err != nil || st.IsDir() {
		return false
	}
	abs, err := filepath.Abs(name)
	return !st.Mode().IsRegular() || (err == nil && strings.HasPrefix(abs, "/dev/") && !strings.HasPrefix(abs, "/dev/shm/"))
}

// createTemp makes a new file in the directory of name, with the permissions
// that os.Create would give it (os.CreateTemp gives them to the owner alone).
func createTemp(name string) (*os.File, error) {
	for {
		temp := filepath.Join(filepath.Dir(name), fmt.Sprintf("%s%016x", tempPrefix, rand.Uint64()))
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			// The file is locked while in use, which distinguishes it from a leftover. If
			// the file system has no locks, nothing is ever cleaned up.
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if at := (*os.PathError)(nil); errors.As(err, &at) {
			at.Path = name // hide the temporary name, which the caller did not choose
		}
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}

// tempPrefix and 16 hex digits form the name of an unfinished manifest.
const tempPrefix = ".gdrcp-manifest-"

// leftoverAge is the minimum age of a leftover: a file that was just created
// may not be locked yet.
const leftoverAge = time.Minute

// sweep removes the files that killed writers left in a directory: old files
// with a temporary name that belong to this user and that nobody has locked.
func sweep(dir string) {
	names, _ := filepath.Glob(filepath.Join(escapeGlob(dir), tempPrefix+strings.Repeat("[0-9a-f]", 16)))
	for _, name := range names {
		st, err := os.Lstat(name)
		if err != nil || !st.Mode().IsRegular() || time.Since(st.ModTime()) < leftoverAge {
			continue
		}
		f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		sys, ok := st.Sys().(*syscall.Stat_t)
		if ok && int(sys.Uid) == os.Geteuid() && syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil {
			_ = os.Remove(name) // a remaining leftover does no harm
		}
		f.Close()
	}
}

// escapeGlob quotes the characters that filepath.Match treats as special.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// Commit ends the manifest, syncs it and renames it to its name. If it returns an error,
// the file of that name is unchanged, unless only the sync of the directory failed.
func (w *FileWriter) Commit() (Summary, error) {
	if w.file == nil {
		return Summary{}, fmt.Errorf("commit manifest: %w", os.ErrClosed)
	}
	s, err := w.finish()
	if err != nil {
		return Summary{}, errors.Join(fmt.Errorf("commit manifest: %w", err), w.Abort())
	}
	if w.temp == "" {
		return s, nil
	}
	if err := dirsync.Path(filepath.Dir(w.name)); err != nil {
		return Summary{}, fmt.Errorf("commit manifest: %w", err)
	}
	return s, nil
}

// finish does everything in Commit up to the rename.
func (w *FileWriter) finish() (Summary, error) {
	s, err := w.Writer.Close()
	if err != nil {
		return Summary{}, err
	}
	if w.encoder != nil {
		if err := w.encoder.Close(); err != nil {
			return Summary{}, err
		}
	}
	if w.temp != "" { // devices and fifos cannot be synced
		if err := w.file.Sync(); err != nil {
			return Summary{}, err
		}
	}
	if err := w.file.Close(); err != nil {
		return Summary{}, err
	}
	if w.temp != "" {
		if err := os.Rename(w.temp, w.name); err != nil {
			return Summary{}, err
		}
	}
	w.file = nil
	return s, nil
}

// Abort discards the manifest and removes its file.
func (w *FileWriter) Abort() error {
	if w.file == nil {
		return nil
	}
	_ = w.file.Close() // the data does not matter, and the file may be closed already
	w.file = nil
	if w.temp == "" {
		return nil
	}
	if err := os.Remove(w.temp); err != nil {
		return fmt.Errorf("abort manifest: %w", err)
	}
	return nil
}
