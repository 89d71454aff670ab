package dest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// What is written to follows links on the user's own paths, and nothing below a served root.
func TestSpecial(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "null>/dev/null", "chain>null", "f=text", "link>f", "dangling>none", "d/")
	if err := syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"null": "device", "chain": "device", "fifo": "fifo", "f": "", "link": "", "dangling": "", "d": "", "none": ""} {
		for _, rooted := range []bool{false, true} {
			opt := Options{Dest: filepath.Join(dir, name)}
			if rooted {
				opt = Options{Dest: name, Root: treetest.OpenRoot(t, dir)}
			}
			s, err := Open(opt)
			if err != nil {
				if rooted && (name == "null" || name == "chain") && errors.Is(err, fsys.ErrEscape) {
					continue
				}
				t.Fatal(err)
			}
			got := ""
			if s.Special() != nil {
				got = s.Special().Kind()
			}
			if rooted && got != "" || !rooted && got != want {
				t.Errorf("%s, below a root %t, is %q, want %q", name, rooted, got, want)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A fifo is opened by the first Write, which waits for a reader until it is interrupted; an
// interrupt in between counts, too.
func TestSpecialWaitsForReader(t *testing.T) {
	treetest.NoLeaks(t)
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	open := func() *Special {
		s := openSink(t, Options{Dest: path})
		if err := s.Place(&manifest.Entry{Type: manifest.File, Path: "x"}, "x"); err != nil {
			t.Fatal(err)
		}
		return s.Special()
	}
	p := open()
	if err := p.Finish(); err != nil || p.TakesAgain() {
		t.Errorf("nothing was written, and Finish said %v; it takes data again: %t", err, p.TakesAgain())
	}
	time.AfterFunc(3*readerPause, p.Interrupt)
	from := time.Now()
	if _, err := p.Write([]byte("x")); !errors.Is(err, ErrInterrupted) || time.Since(from) < 2*readerPause {
		t.Errorf("an interrupted Write said %v after %v", err, time.Since(from))
	}
	p = open()
	p.Interrupt()
	if _, err := p.Write([]byte("x")); !errors.Is(err, ErrInterrupted) {
		t.Errorf("a Write after the interrupt said %v", err)
	}
	p = open()
	got := make(chan string)
	go func() {
		time.Sleep(2 * readerPause)
		b, _ := os.ReadFile(path)
		got <- string(b)
	}()
	if n, err := p.Write([]byte("text")); n != 4 || err != nil || p.Finish() != nil {
		t.Errorf("wrote %d bytes, %v", n, err)
	}
	if err := p.sink.Close(); err != nil {
		t.Error(err)
	}
	if got := <-got; got != "text" {
		t.Errorf("a reader got %q", got)
	}
}
