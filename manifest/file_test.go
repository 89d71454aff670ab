package manifest

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
)

// names lists dir.
func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestCreateCommitOpen(t *testing.T) {
	for _, name := range []string{"tree.manifest", "tree.manifest.zst"} {
		dir := t.TempDir()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("the old one"), 0o644); err != nil {
			t.Fatal(err)
		}
		w, err := Create(path, goldenHeader)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := w.Abort(); err != nil {
				t.Errorf("abort after commit: %v", err)
			}
		}()
		writeItems(t, w.Writer, goldenItems())
		if old, err := os.ReadFile(path); err != nil || string(old) != "the old one" {
			t.Errorf("%s before commit: %q, %v", name, old, err)
		}
		s, err := w.Commit()
		if err != nil {
			t.Fatal(err)
		}
		if got := names(t, dir); len(got) != 1 || got[0] != name {
			t.Errorf("after commit: %v", got)
		}
		raw, err := os.ReadFile(path)
		if err != nil || bytes.HasPrefix(raw, zstdMagic) != (filepath.Ext(name) == zstdSuffix) {
			t.Errorf("%s begins with %q, %v", name, raw[:4], err)
		}
		r, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		items, err := readItems(r)
		if len(items) != len(goldenItems()) || r.Summary() != s || s.Entries != 7 {
			t.Errorf("%s: read %d items, %v, summary %+v", name, len(items), err, r.Summary())
		}
		for range 2 {
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := w.Commit(); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("second commit: %v", err)
		}
	}
}

// The standard tool reads what Create compresses, with its standard limits. A
// FIFO, or root's /dev/null, is written to and not replaced.
func TestCreateOntoFifo(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, commit := range []bool{true, false} {
		read := make(chan []byte, 1)
		go func() {
			text, _ := os.ReadFile(path)
			read <- text
		}()
		w, err := Create(path, goldenHeader)
		if err != nil {
			t.Fatal(err)
		}
		if commit {
			writeItems(t, w.Writer, goldenItems())
			_, err = w.Commit()
		} else {
			err = w.Abort()
		}
		if err != nil {
			t.Errorf("commit %v: %v", commit, err)
		}
		if text := <-read; commit != bytes.Contains(text, []byte("\nroot ")) {
			t.Errorf("commit %v: the reader got %q", commit, text)
		}
		if st, err := os.Lstat(path); err != nil || st.Mode()&fs.ModeNamedPipe == 0 {
			t.Errorf("the fifo is gone: %v, %v", st, err)
		}
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left behind: %q", got)
	}
}

func TestZstdToolReads(t *testing.T) {
	tool, err := exec.LookPath("zstd")
	if err != nil {
		t.Skip("zstd is not installed: try apt-get install zstd")
	}
	path := filepath.Join(t.TempDir(), "m.zst")
	w, err := Create(path, goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	writeItems(t, w.Writer, goldenItems())
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(tool, "-dc", path).Output(); string(out) != golden || err != nil {
		t.Errorf("zstd prints %q, %v", out, err)
	}
}

func TestAbortLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "m.zst"), goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	if len(names(t, dir)) != 1 {
		t.Errorf("while writing: %v", names(t, dir))
	}
	for range 2 {
		if err := w.Abort(); err != nil {
			t.Error(err)
		}
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("after abort: %v", got)
	}
}

func TestCommitInsideFileLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w, err := Create(filepath.Join(dir, "m"), goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.BeginFile(&Entry{Type: File, Path: "a", Size: 1 << 30}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); !errors.Is(err, ErrEntry) {
		t.Errorf("commit inside a file: %v", err)
	}
	if got := names(t, dir); len(got) != 0 {
		t.Errorf("after a commit that was refused: %v", got)
	}
}

func TestCommitOntoDirectory(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "m")
	w, err := Create(name, goldenHeader)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(name, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := w.Commit(); err == nil {
		t.Error("a manifest took the name of a directory")
	}
	for _, is := range []string{name, name + "/"} {
		if _, err := Create(is, goldenHeader); !errors.Is(err, syscall.EISDIR) {
			t.Errorf("a manifest is to be named %q, as a directory is: %v", is, err)
		}
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("after: %v", got)
	}
}

func TestCreateAndOpenErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := Create(filepath.Join(dir, "no", "m"), goldenHeader); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("create in no directory: %v", err)
	}
	if _, err := Create(filepath.Join(dir, "m"), Header{}); !errors.Is(err, ErrFormat) || len(names(t, dir)) != 0 {
		t.Errorf("create with no header: %v, left %v", err, names(t, dir))
	}
	if _, err := Open(filepath.Join(dir, "m")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("open nothing: %v", err)
	}
	if _, err := Open(dir); err == nil || errors.Is(err, ErrFormat) || errors.Is(err, ErrTruncated) {
		t.Errorf("open a directory: %v", err)
	}
}

// Neither compression nor decompression starts goroutines.
func TestCompressionStartsNoGoroutine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.zst")
	before := runtime.NumGoroutine()
	check := func(when string) {
		t.Helper()
		if now := runtime.NumGoroutine(); now > before {
			t.Errorf("%s: %d goroutines, %d before", when, now, before)
		}
	}
	w, err := Create(path, Header{XXH3, DefaultPieceBytes})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range manyFiles(40_000) { // several blocks of zstd
		if err := w.WriteEntry(&e); err != nil {
			t.Fatal(err)
		}
	}
	check("writing")
	if _, err := w.Commit(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for range 30_000 {
		if _, err := r.Next(); err != nil {
			t.Fatal(err)
		}
	}
	check("reading")
}
