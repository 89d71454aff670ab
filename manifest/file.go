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

// Compression is zstd (RFC 8878), one thread, chosen by the file's name when
// written and seen from its first bytes when read.
const (
	zstdSuffix = ".zst"
	// writeWindowBytes: digests do not compress, only names and numbers near
	// each other do, so a larger window costs readers memory for nothing.
	writeWindowBytes = 1 << 20
	// maxWindowBytes is what RFC 8878 recommends every decoder to take, and
	// bounds the memory a hostile stream can ask for.
	maxWindowBytes = 8 << 20
)

var zstdMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}

// source is the text below a Reader, with what has to be closed after it.
type source struct {
	text    io.Reader
	below   faultReader
	id      Inode
	decoder *zstd.Decoder // nil if not compressed
	file    *os.File      // nil if the caller's
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
	raw := bufio.NewReaderSize(&s.below, maxLineBytes)
	s.text = raw
	// A short stream is for the reader of the first line to complain of.
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

// explain says what an error of reading text is: of the stream below, its end,
// or of the compression.
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

// Open reads the manifest of that name, compressed or not. Close it.
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

// Again begins anew with a manifest that Open opened, and was not closed. It is
// the same file, whatever has its name now. r itself is at its end, and need not
// be closed.
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

// FileWriter is a Writer to a file that gets its name only when it is complete.
// End it with Commit or Abort; Abort after Commit does nothing, so it can be
// deferred.
type FileWriter struct {
	*Writer
	name    string
	temp    string   // empty where what has the name is written to itself
	file    *os.File // nil once ended
	encoder *zstd.Encoder
}

// Create starts a manifest that will be named name, replacing what has that
// name, compressed if it ends in ".zst". Until Commit it is a hidden file
// beside it. A device, fifo or socket of that name is not replaced but written
// to.
func Create(name string, h Header) (*FileWriter, error) {
	w := &FileWriter{name: name}
	var f *os.File
	var err error
	if isSpecial(name) {
		f, err = os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0) // /dev/stdout may be a log
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
	w.itself = newItself(f) // below the compression
	w.itself.replacing(name)
	return w, nil
}

// isSpecial reports whether a file of that name must stay what it is: a device,
// fifo or socket, or one of the links in /dev to what is open, as /dev/stdout.
func isSpecial(name string) bool {
	st, err := os.Stat(name)
	if err != nil || st.IsDir() {
		return false
	}
	abs, err := filepath.Abs(name)
	return !st.Mode().IsRegular() || (err == nil && strings.HasPrefix(abs, "/dev/") && !strings.HasPrefix(abs, "/dev/shm/"))
}

// createTemp makes a new file beside name, with the permissions that name itself
// would get (os.CreateTemp's are for the owner alone).
func createTemp(name string) (*os.File, error) {
	for {
		temp := filepath.Join(filepath.Dir(name), fmt.Sprintf("%s%016x", tempPrefix, rand.Uint64()))
		f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
		if err == nil {
			// Locked while in use, so that leftovers can be told from it. Where
			// there are no locks, nothing is ever cleaned.
			_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		}
		if !errors.Is(err, os.ErrExist) {
			return f, err
		}
	}
}

// tempPrefix and 16 hex digits make the name of a manifest that is being written.
const tempPrefix = ".gdrcp-manifest-"

// leftoverAge is how old a leftover must be: one that has just been made may
// not be locked yet.
const leftoverAge = time.Minute

// sweep removes what writers that were killed left in a directory: old files
// so named that belong to this user and that nobody has locked.
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
			_ = os.Remove(name) // one that stays harms nothing
		}
		f.Close()
	}
}

// escapeGlob quotes what filepath.Match would take for a pattern.
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(s)
}

// Commit ends the manifest, makes it durable and gives it its name. If it
// returns an error nothing has that name that had not before, unless only the
// directory could not be synced.
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

// finish is Commit up to the rename.
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

// Abort forgets the manifest and removes its file.
func (w *FileWriter) Abort() error {
	if w.file == nil {
		return nil
	}
	_ = w.file.Close() // what was written does not matter, and it may be closed
	w.file = nil
	if w.temp == "" {
		return nil
	}
	if err := os.Remove(w.temp); err != nil {
		return fmt.Errorf("abort manifest: %w", err)
	}
	return nil
}
