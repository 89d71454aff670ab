package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal and collects what is written to it.
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

func TestBarOnATerminal(t *testing.T) {
	tty, screen := openTerminal(t)
	p, _, _ := newProgram()
	if !p.isTerminal(tty) {
		t.Error("a terminal is taken for none")
	}
	p.getenv = func(name string) string { return map[string]string{"TERM": "dumb"}[name] }
	if p.isTerminal(tty) {
		t.Error("a dumb terminal is taken for one that can redraw a line")
	}
	c := &console{w: tty}
	c.draw(xfer.Progress{Bytes: 1 << 20, TotalBytes: 1 << 20})
	c.draw(xfer.Progress{Bytes: 25 << 20, TotalBytes: 100 << 20, TotalKnown: true})
	c.line("a line")
	c.draw(xfer.Progress{Bytes: 100 << 20, TotalBytes: 100 << 20, TotalKnown: true})
	c.draw(xfer.Progress{TotalKnown: true})
	end := c.follow(&xfer.Tally{})
	end()
	fmt.Fprintln(tty, "end")
	waitFor(t, screen, regexp.MustCompile("end"))
	for _, want := range []string{"1.0 MiB", "25%", "(25/100 MiB", "a line\r\n"} {
		if !strings.Contains(screen.String(), want) {
			t.Errorf("%q is not on the screen: %q", want, screen)
		}
	}
	// The line stands alone: the bar was wiped before it.
	before, _, _ := strings.Cut(screen.String(), "a line")
	if wiped := before[strings.LastIndexByte(before[:len(before)-1], '\r')+1:]; strings.TrimSpace(strings.Trim(wiped, "\r")) != "" {
		t.Errorf("before the line there is %q", wiped)
	}
}

// A copy whose standard error is a terminal leaves its last line there, and one
// whose is not draws nothing.
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
	waitFor(t, screen, regexp.MustCompile(`copied 1 file, 1 B in .* root xxh3 [0-9a-f]{64}\r\n$`))
	if r := gdrcp(t, dir+"/a", s.url("a")).want(t, exitOK); strings.Contains(r.err, "\r") {
		t.Errorf("it wrote %q", r.err)
	}
}
