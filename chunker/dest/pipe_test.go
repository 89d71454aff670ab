package dest

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// rawPipe is both ends of a pipe as a process is given them: blocking.
func rawPipe(t *testing.T) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	return fds[0], fds[1]
}

// isBlocking fails the test where somebody has changed the open file.
func isBlocking(t *testing.T, fd int) {
	t.Helper()
	if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0); err != nil || flags&unix.O_NONBLOCK != 0 {
		t.Errorf("the given open file has flags %#x, %v", flags, err)
	}
}

// Bytes go through a pipe, and a socket, whole and in order, and their end is
// an end.
func TestPipeCarriesBytes(t *testing.T) {
	data := make([]byte, 3<<20+5)
	rand.NewChaCha8([32]byte{1}).Read(data)
	for _, kind := range []string{"pipe", "socket"} {
		t.Run(kind, func(t *testing.T) {
			r, w := rawPipe(t)
			if kind == "socket" {
				fsys.CloseQuietly(r)
				fsys.CloseQuietly(w)
				fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
				if err != nil {
					t.Fatal(err)
				}
				r, w = fds[0], fds[1]
			}
			in, err := NewInput(r, "input")
			if err != nil {
				t.Fatal(err)
			}
			out, err := NewOutput(w, "output")
			if err != nil {
				t.Fatal(err)
			}
			go func() {
				if n, err := out.Write(data); n != len(data) || err != nil {
					t.Errorf("wrote %d: %v", n, err)
				}
				isBlocking(t, w)
				if err := out.Close(); err != nil {
					t.Error(err)
				}
				fsys.CloseQuietly(w)
			}()
			got, err := io.ReadAll(in)
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("read %d of %d bytes: %v", len(got), len(data), err)
			}
			isBlocking(t, r)
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			fsys.CloseQuietly(r)
		})
	}
}

// A reader or writer that somebody keeps waiting can be interrupted, before and
// while it waits, and stays so.
func TestPipeIsInterrupted(t *testing.T) {
	for _, tc := range []struct {
		name string
		open func(r, w int) (*Pipe, error)
		use  func(*Pipe) error
	}{
		{"read", func(r, _ int) (*Pipe, error) { return NewInput(r, "input") }, func(p *Pipe) error {
			_, err := p.Read(make([]byte, 1))
			return err
		}},
		{"write", func(_, w int) (*Pipe, error) { return NewOutput(w, "output") }, func(p *Pipe) error {
			_, err := p.Write(make([]byte, 4<<20))
			return err
		}},
		{"write a little at once", func(_, w int) (*Pipe, error) { return NewInput(w, "output") }, func(p *Pipe) error {
			_, err := p.Write(make([]byte, 4<<20))
			return err
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			treetest.NoLeaks(t)
			r, w := rawPipe(t)
			defer fsys.CloseQuietly(r)
			defer fsys.CloseQuietly(w)
			p, err := tc.open(r, w)
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 1)
			go func() { ended <- tc.use(p) }()
			select {
			case err := <-ended:
				t.Fatalf("it did not wait: %v", err)
			case <-time.After(50 * time.Millisecond):
			}
			p.Interrupt()
			p.Interrupt()
			if err := <-ended; !errors.Is(err, ErrInterrupted) {
				t.Errorf("got %v", err)
			}
			if err := tc.use(p); !errors.Is(err, ErrInterrupted) {
				t.Errorf("later: %v", err)
			}
			if err := errors.Join(p.Close(), p.Close()); err != nil {
				t.Error(err)
			}
			p.Interrupt()
		})
	}
}

func TestPipeWhoseReaderIsGone(t *testing.T) {
	r, w := rawPipe(t)
	defer fsys.CloseQuietly(w)
	p, err := NewOutput(w, "standard output")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	time.AfterFunc(50*time.Millisecond, func() { fsys.CloseQuietly(r) })
	_, err = p.Write(make([]byte, 4<<20))
	if !errors.Is(err, syscall.EPIPE) || err.Error() != "write standard output: broken pipe" {
		t.Errorf("got %v", err)
	}
}

// Files are read and written from where they stand.
func TestPipeOfFiles(t *testing.T) {
	name := filepath.Join(t.TempDir(), "f")
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString("before "); err != nil {
		t.Fatal(err)
	}
	out, err := NewOutput(int(f.Fd()), "output")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if _, err := out.Write([]byte("behind")); err != nil {
		t.Fatal(err)
	}
	if _, err := f.Seek(3, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	in, err := NewInput(int(f.Fd()), "input")
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if got, err := io.ReadAll(in); err != nil || string(got) != "ore behind" {
		t.Errorf("%q, %v", got, err)
	}
	dir, err := os.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if in, err = NewInput(int(dir.Fd()), "standard input"); err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if _, err := in.Read(make([]byte, 1)); err == nil || err.Error() != "read standard input: is a directory" {
		t.Errorf("a directory: %v", err)
	}
}
