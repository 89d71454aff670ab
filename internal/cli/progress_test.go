package cli

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal and collects its output.
func openTerminal(t *testing.T) (tty *os.File, screen *buffer) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("no terminal can be made here: %v", err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100}); err != nil {
		t.Fatal(err)
	}
	screen = &buffer{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b)
			screen.Write(b[:n])
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() {
		tty.Close()
		<-done
		master.Close()
	})
	return tty, screen
}

func TestLineOfProgressOnATerminal(t *testing.T) {
	tty, screen := openTerminal(t)
	p, _, _ := newProgram()
	if !p.isTerminal(tty) {
		t.Error("a terminal is taken for none")
	}
	p.getenv = func(name string) string { return map[string]string{"TERM": "dumb"}[name] }
	if p.isTerminal(tty) {
		t.Error("a dumb terminal is taken for one that can redraw a line")
	}
	c := &console{w: tty, columns: func() int { return 100 }}
	c.draw(reading{Progress: xfer.Progress{Bytes: 1 << 20, TotalBytes: 1 << 20}})
	c.draw(reading{Progress: xfer.Progress{Bytes: 25 << 20, TotalBytes: 100 << 20, TotalKnown: true}})
	c.line("a line")
	c.draw(reading{Progress: xfer.Progress{Bytes: 100 << 20, TotalBytes: 100 << 20, TotalKnown: true}})
	c.clear()
	fmt.Fprintln(tty, "end")
	waitFor(t, screen, regexp.MustCompile("end"))
	for _, want := range []string{"\r1.0 MiB  0 B/s  0 files", "25.0 MiB of 100.0 MiB", " 25% [====", "a line\r\n", "100%"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not on the screen: %q", want, screen)
		}
	}
	// The line is separate: the progress was wiped before it.
	before, _, _ := strings.Cut(screen.String(), "a line")
	if wiped := before[strings.LastIndexByte(before[:len(before)-1], '\r')+1:]; strings.TrimSpace(strings.Trim(wiped, "\r")) != "" {
		t.Errorf("before the line there is %q", wiped)
	}
}

// A copy with a terminal as standard error leaves its last line there. Without a
// terminal it draws nothing.
func TestCopyOnATerminal(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	tty, screen := openTerminal(t)
	p, _, _ := newProgram()
	p.stderr = tty
	if code := p.run(t.Context(), []string{"gdrcp", dir + "/a", s.url("a")}); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	waitFor(t, screen, regexp.MustCompile(`copied 1 file, 1 B in .*, verified\r\n$`))
	if r := gdrcp(t, dir+"/a", s.url("a")).want(t, exitOK); strings.Contains(r.err, "\r") {
		t.Errorf("it wrote %q", r.err)
	}
}

// begun is the tally of a copy that does not move.
type begun struct{}

func (begun) Read() xfer.Progress {
	return xfer.Progress{Bytes: 3, Files: 1, TotalBytes: 4, MovedBytes: 3}
}

// Without a terminal, --progress prints a line every 10 seconds, and --json an event
// every second.
func TestProgressWithoutATerminal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lines, out := &buffer{}, &buffer{}
		w := progressReporter{console: &console{w: lines}}
		end := w.follow(begun{})
		time.Sleep(time.Minute)
		end()
		if lines.String() != "" {
			t.Errorf("nobody asked for %q", lines)
		}
		w.wanted = true
		end = w.follow(&xfer.Tally{})
		time.Sleep(time.Minute)
		end()
		if lines.String() != "" {
			t.Errorf("before the copy has begun it tells %q", lines)
		}
		end = w.follow(begun{})
		time.Sleep(25 * time.Second)
		end()
		if want := "gdrcp: 3 B, 0 B/s, 1 file, 0:10 so far\ngdrcp: 3 B, 0 B/s, 1 file, 0:20 so far\n"; lines.String() != want {
			t.Errorf("told %q, want %q", lines, want)
		}
		w.events = newEvents(out)
		end = w.follow(begun{})
		time.Sleep(2500 * time.Millisecond)
		end()
		want := `{"event":"progress","bytes":3,"files":1,"total_bytes":4,"total_known":false,"seconds":2,"bytes_per_second":1.5}` + "\n"
		if n := strings.Count(out.String(), "\n"); n != 2 || !strings.HasSuffix(out.String(), want) {
			t.Errorf("%d events in %s", n, out)
		}
	})
}

// The events of a copy report its progress.
func TestProgressEvents(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": strings.Repeat("A", 1<<20), "b": strings.Repeat("B", 2<<20)})
	r := gdrcp(t, "--json", "--bwlimit=1M", "--chunk-size=1M", "-r", dir, s.url("tree")).want(t, exitOK)
	n := 0
	for _, e := range r.events(t) {
		if e["event"] != "progress" {
			continue
		}
		n++
		if e["total_known"] != true || e["total_bytes"] != float64(3<<20) || e["bytes"].(float64) > 3<<20 || e["bytes_per_second"].(float64) > 4<<20 {
			t.Errorf("%v", e)
		}
	}
	if n == 0 {
		t.Errorf("no event of progress in %s", r.out)
	}
	gdrcp(t, "--progress", "-q", dir+"/a", s.url("a")).want(t, exitUsage)
}
