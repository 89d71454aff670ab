package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// fillPipe writes to a pipe or a FIFO until it is full.
func fillPipe(t *testing.T, name string) (bytes int) {
	t.Helper()
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	for _, part := range []int{unix.Getpagesize(), 1} {
		for {
			n, err := unix.Write(fd, make([]byte, part))
			if err != nil {
				if err != unix.EAGAIN {
					t.Fatal(err)
				}
				break
			}
			bytes += n
		}
	}
	return bytes
}

// stalledPipe is a full pipe.
type stalledPipe struct {
	*os.File
	began chan struct{} // closed when there is more to write
	once  sync.Once
	read  func() []byte // returns what was written after the pipe was read to its end
}

func newStalledPipe(t *testing.T) *stalledPipe {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close(); w.Close() })
	filled := fillPipe(t, fmt.Sprintf("/proc/self/fd/%d", w.Fd()))
	return &stalledPipe{File: w, began: make(chan struct{}), read: func() []byte {
		all, err := io.ReadAll(r)
		if err != nil {
			t.Error(err)
		}
		return all[filled:]
	}}
}

func (s *stalledPipe) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.began) })
	return s.File.Write(b)
}

// codeWhenDone waits, with a time limit, for the exit code of a program.
func codeWhenDone(t *testing.T, code <-chan int) int {
	t.Helper()
	select {
	case c := <-code:
		return c
	case <-time.After(time.Minute):
		t.Fatal("it does not end")
		return 0
	}
}

// If nobody reads a copy's output, ^C still ends it, and the peer is still informed.
func TestInterruptedWhileNobodyReads(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "B"})
	fifo := filepath.Join(dir, "log")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	reader, err := os.OpenFile(fifo, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	fillPipe(t, fifo)
	for name, c := range map[string]struct {
		args     []string
		out, err bool // nobody reads
	}{
		"stdout":   {args: []string{"--json", "-v"}, out: true},
		"stderr":   {args: []string{"-v"}, err: true},
		"log file": {args: []string{"--log-file", fifo}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, interrupt := context.WithCancel(t.Context())
			p, _, _ := newProgram()
			pipe := newStalledPipe(t)
			if c.out {
				p.stdout = pipe
			}
			if c.err {
				p.stderr = pipe
			}
			code := make(chan int, 1)
			go func() {
				code <- p.run(ctx, slices.Concat([]string{"gdrcp"}, c.args, []string{"-r", dir + "/t", s.url(name)}))
			}()
			if c.out || c.err {
				<-pipe.began
			}
			interrupt()
			if c := codeWhenDone(t, code); c != exitInterrupted {
				t.Errorf("exit code %d", c)
			}
			if c.out || c.err {
				waitFor(t, s.errs, regexp.MustCompile(`push "/`+name+`": 127\.0\.0\.1:\d+: the client was interrupted`))
			}
		})
	}
}

// A reader that continues after the copy has given up waiting for it still gets the last line.
func TestLastWordsOfAnInterruptedCopy(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	ctx, interrupt := context.WithCancel(t.Context())
	p, _, _ := newProgram()
	pipe := newStalledPipe(t)
	p.stderr = pipe
	code, got := make(chan int, 1), make(chan []byte, 1)
	go func() { code <- p.run(ctx, []string{"gdrcp", "-v", "-r", dir + "/t", s.url("copy")}) }()
	<-pipe.began
	interrupt()
	time.AfterFunc(lastWordsTime+time.Second, func() { got <- pipe.read() })
	if c := codeWhenDone(t, code); c != exitInterrupted {
		t.Errorf("exit code %d", c)
	}
	pipe.Close()
	if text := string(<-got); !strings.Contains(text, "interrupted") {
		t.Errorf("it printed %q", text)
	}
}

// A copy waits for the reader of its output for at most half of --timeout, and its exit
// code reports that output was lost.
func TestCopyWhileNobodyReads(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "B"})
	for name, args := range map[string][]string{"first": {"-v"}, "entry": {"-v", "--log-file", dir + "/log"}, "events": {"-v", "--json"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, _, errs := newProgram()
			if name == "events" {
				p.stdout = newStalledPipe(t)
			} else {
				p.stderr = newStalledPipe(t)
			}
			code := make(chan int, 1)
			go func() {
				code <- p.run(t.Context(), slices.Concat([]string{"gdrcp", "--timeout", "1"}, args, []string{"-r", dir + "/t", s.url(name)}))
			}()
			if c := codeWhenDone(t, code); c != exitError {
				t.Errorf("exit code %d", c)
			}
			if got := listFiles(t, s.root+"/"+name); len(got) != 2 {
				t.Errorf("the copy has %v", got)
			}
			if want := "gdrcp: write standard output: nobody reads it\n"; name == "events" && errs.String() != want {
				t.Errorf("it wrote %q, want %q", errs, want)
			}
		})
	}
}

// A slow reader gets everything, in order.
func TestSlowReaderMissesNothing(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	files, want := make(map[string]string), []string{"."}
	for i := range 500 {
		name := fmt.Sprintf("%03d", i)
		files["t/"+name], want = "x", append(want, name)
	}
	makeFiles(t, dir, files)
	p, _, errs := newProgram()
	pipe := newStalledPipe(t)
	p.stdout = pipe
	code := make(chan int, 1)
	go func() {
		code <- p.run(t.Context(), []string{"gdrcp", "--json", "-v", "-r", dir + "/t", s.url("")})
		pipe.Close()
	}()
	<-pipe.began
	r := result{out: string(pipe.read())}
	if c := codeWhenDone(t, code); c != exitOK {
		t.Errorf("exit code %d: %s", c, errs)
	}
	var got []string
	events := r.events(t)
	for _, e := range events {
		if e["event"] == "file" {
			got = append(got, e["path"].(string))
		}
	}
	if last := events[len(events)-1]; !slices.Equal(got, want) || last["event"] != "summary" {
		t.Errorf("it told of %q, want %q, and last of %q", got, want, last["event"])
	}
}

// gate accepts nothing until it is opened.
type gate struct {
	opened chan struct{}
	buffer
}

func (g *gate) Write(b []byte) (int, error) {
	<-g.opened
	return g.buffer.Write(b)
}

// A write waits for its reader until the program is about to end, and then for a
// limited time.
func TestWriteThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ending := make(chan struct{})
		g := &gate{opened: make(chan struct{})}
		o := &output{name: "it", w: g, ending: ending}
		began := time.Now()
		time.AfterFunc(time.Hour, func() { close(ending) })
		for range 3 {
			if n, err := o.Write([]byte("a")); n != 1 || err != nil {
				t.Errorf("%d, %v", n, err)
			}
		}
		if waited := time.Since(began); waited != time.Hour+lastWordsTime {
			t.Errorf("it waited for %v", waited)
		}
		if err := o.finish(); !errors.Is(err, errUnread) || time.Since(began) != time.Hour+2*lastWordsTime {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		close(g.opened)
	})
}

// An output that nobody reads blocks writers for at most its patience, keeps as much
// text as it may, reports where lines are missing and how many, and keeps that as its
// error.
func TestLogThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &gate{opened: make(chan struct{})}
		o := &output{name: "it", w: g, resumes: true, patience: logPatience}
		line := func(i int) string { return fmt.Sprintf("%8d %s\n", i, strings.Repeat("x", 1000)) }
		const written = 2 * outputBytes / 1000
		began := time.Now()
		for i := range written {
			_, _ = o.Write([]byte(line(i)))
		}
		if time.Since(began) != logPatience || !errors.Is(o.writeError(), errUnread) {
			t.Errorf("it took %v; %v", time.Since(began), o.writeError())
		}
		close(g.opened)
		synctest.Wait()
		kept := 0
		rest := []byte(g.String())
		for ; bytes.HasPrefix(rest, []byte(line(kept))); kept++ {
			rest = rest[len(line(kept)):]
		}
		if want := fmt.Sprintf("gdrcp: the log lacks %d lines here, because nobody read it\n", written-kept); string(rest) != want || kept != outputBytes/len(line(0)) {
			t.Errorf("%d lines were kept, and then it wrote %.200q, want %q", kept, rest, want)
		}
		// The reader has come back: text is written before Write returns.
		_, _ = o.Write([]byte("last\n"))
		if !strings.HasSuffix(g.String(), "\nlast\n") {
			t.Error("the last line is not written")
		}
	})
}

// A server whose log nobody reads still serves clients, and ends by a signal.
func TestServerWhoseLogNobodyReads(t *testing.T) {
	cmd, _ := process(t, "serve", "--root", t.TempDir(), "--listen", "127.0.0.1:0", "--max-sessions", "1")
	log, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stderr = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 4096)
	n, err := log.Read(line)
	said := servingLine.FindSubmatch(line[:n])
	if err != nil || said == nil {
		t.Fatalf("%q, %v", line[:n], err)
	}
	fillPipe(t, fmt.Sprintf("/proc/self/fd/%d", theirs.Fd()))
	theirs.Close()
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	for i := range 3 {
		gdrcp(t, dir+"/a", fmt.Sprintf("rdma://%s/%d", said[1], i)).want(t, exitOK)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	code := make(chan int, 1)
	go func() {
		_ = cmd.Wait()
		code <- cmd.ProcessState.ExitCode()
	}()
	if c := codeWhenDone(t, code); c != exitError { // its log is incomplete
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}
