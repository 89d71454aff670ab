// Picture records what a real run of the program GDRCP shows on a terminal, and writes it as an
// animated SVG for the README. The remote side of its copies is the same program on the same
// machine: a shell stands for ssh, and the data goes by TCP over loopback. Nothing that is shown is
// made up but the typing of the command lines.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"html"
	"io"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// commands are what is typed, one after the other. node2 stands for this machine.
var commands = []string{"gdrcp -a checkpoint-4000 node2:data/", "echo more >>checkpoint-4000/tokens/7", "gdrcp -a checkpoint-4000 node2:data/"}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if len(os.Args) != 3 {
		log.Fatal("usage: picture GDRCP FILE.svg")
	}
	if err := run(ctx, os.Args[1], os.Args[2]); err != nil {
		log.Fatal("picture: ", err)
	}
}

// makeTree makes a tree like a checkpoint, the program, and a remote shell, called with a host and a command.
const makeTree = `mkdir -p bin data checkpoint-4000/tokens && ln -s "$1" bin/gdrcp &&
printf '#!/bin/sh\nshift\ncd "$HOME" && exec sh -c "$*"\n' >bin/here && chmod +x bin/here &&
for i in 0 1 2 3 4 5; do head -c 256M /dev/urandom >checkpoint-4000/layer-$i.safetensors || exit; done &&
for i in $(seq 0 1199); do head -c 8192 /dev/urandom >checkpoint-4000/tokens/$i || exit; done`

// run makes the tree, from memory to memory if there is room, runs the commands and writes the picture.
func run(ctx context.Context, program, to string) error {
	dir, err := os.MkdirTemp(cmp.Or(os.Getenv("TMPDIR"), "/dev/shm"), "gdrcp-picture-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	program, err = filepath.Abs(program)
	tree := exec.CommandContext(ctx, "sh", "-c", makeTree, "sh", program)
	tree.Dir, tree.Stderr = dir, os.Stderr
	if err = errors.Join(err, tree.Run()); err != nil {
		return fmt.Errorf("make the tree: %w", err)
	}
	s := newScreen(104, 7)
	for _, line := range commands {
		s.typed(line)
		s.write("\r\n")
		if err := s.record(ctx, dir, line); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	s.typed("")
	picture, err := s.svg()
	if err == nil {
		err = os.WriteFile(to, picture, 0o666)
	}
	return err
}

const (
	frameTime  = 200 * time.Millisecond  // between looks at the screen: half as often as the program draws
	typingTime = 1200 * time.Millisecond // of a command line
	restTime   = 1800 * time.Millisecond // of its last output
	endTime    = 4 * time.Second         // of the last frame, before it begins anew

	cellWidth, lineHeight, margin = 8.4, 20, 14 // pixels
	maxPictureBytes               = 60 << 10
)

// typed shows a command line letter by letter after a prompt, without running it.
func (s *screen) typed(line string) {
	s.write("$ ")
	s.frame(0)
	for _, letter := range line {
		s.write(string(letter))
		s.frame(typingTime / time.Duration(len(line)))
	}
	s.frame(typingTime / 4)
}

// record runs a command line in dir by a shell in a pseudo-terminal of the
// screen's size, and takes a frame whenever it has shown something.
func (s *screen) record(ctx context.Context, dir, line string) error {
	// pty(7)
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return err
	}
	defer master.Close()
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(s.rows), Col: uint16(s.columns)}))
	tty, e := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err = errors.Join(err, e); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir, cmd.Env = dir, []string{"HOME=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "TERM=xterm", "GDRCP_RSH=here"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	tty.Close() // or the reading below would not end
	if err != nil {
		return err
	}
	last, buf, n := time.Now(), make([]byte, 4096), 0
	for err == nil {
		if n, err = master.Read(buf); n > 0 {
			s.frame(time.Since(last)) // what was shown until now
			last = time.Now()
			s.write(string(buf[:n]))
			time.Sleep(frameTime)
		}
	}
	s.frame(restTime)
	if errors.Is(err, io.EOF) || errors.Is(err, syscall.EIO) { // EIO: nobody has the other side open
		err = nil
	}
	return errors.Join(err, cmd.Wait())
}

// screen is a terminal that knows printable characters, carriage return and line
// feed, which is all that the program writes to one. It keeps what it showed when.
type screen struct {
	columns, rows int
	lines         []string // from the first, also those that have left the screen above
	column        int      // where the next character goes
	strange       string   // the first thing that it does not know
	frames        []frame
}

// frame is what a screen showed for some time: the last lines, rows at most.
type frame struct {
	lines []string
	shown time.Duration
}

func newScreen(columns, rows int) *screen {
	return &screen{columns: columns, rows: rows, lines: []string{""}}
}

// write takes what a program writes.
func (s *screen) write(text string) {
	for _, r := range text {
		switch {
		case r == '\r':
			s.column = 0
		case r == '\n':
			s.lines = append(s.lines, "")
		case r >= ' ' && r != 0x7f:
			if s.column == s.columns {
				s.lines, s.column = append(s.lines, ""), 0
			}
			last := &s.lines[len(s.lines)-1]
			line := []rune(fmt.Sprintf("%-*s", s.columns, *last))
			line[s.column] = r
			*last = string(line)
			s.column++
		case s.strange == "":
			s.strange = fmt.Sprintf("%q", r)
		}
	}
}

// frame notes that what is on the screen was shown for that long.
func (s *screen) frame(shown time.Duration) {
	var lines []string
	for _, l := range s.lines[max(0, len(s.lines)-s.rows):] {
		lines = append(lines, strings.TrimRight(l, " "))
	}
	if n := len(s.frames); n > 0 && slices.Equal(s.frames[n-1].lines, lines) {
		s.frames[n-1].shown += shown
		return
	}
	s.frames = append(s.frames, frame{lines, shown})
}

// svg is the picture: each line of text once, shown for as long as it was, by
// animations of CSS (https://www.w3.org/TR/css-animations-1/), which play if
// an SVG is shown as an image. If nothing plays, the last frame is shown.
func (s *screen) svg() ([]byte, error) {
	if s.strange != "" || len(s.frames) == 0 {
		return nil, errors.New("the program wrote nothing, or what this screen does not know: " + s.strange)
	}
	s.frames[len(s.frames)-1].shown += endTime
	total := time.Duration(0)
	for _, f := range s.frames {
		total += f.shown
	}
	var b strings.Builder
	width, height := int(float64(s.columns)*cellWidth)+2*margin, s.rows*lineHeight+2*margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="ui-monospace,Menlo,Consolas,monospace" font-size="14" xml:space="preserve">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>What gdrcp showed on a terminal</title>\n<rect width=\"%d\" height=\"%d\" rx=\"8\" fill=\"#0d1117\"/>\n", width, height)
	fmt.Fprintf(&b, "<style>text{fill:#e6edf3;white-space:pre;opacity:0;animation:%.2fs step-end infinite}</style>\n", total.Seconds())
	for i, p := range s.spans() {
		still := map[bool]string{true: ";opacity:1"}[p.to == total]
		fmt.Fprintf(&b, "<style>@keyframes k%d{0%%{opacity:0}%.4g%%{opacity:1}%.4g%%{opacity:0}}</style>\n", i, 100*p.from.Seconds()/total.Seconds(), 100*p.to.Seconds()/total.Seconds())
		fmt.Fprintf(&b, "<text x=\"%d\" y=\"%d\" style=\"animation-name:k%d%s\" textLength=\"%.0f\" lengthAdjust=\"spacingAndGlyphs\">%s</text>\n",
			margin, margin+(p.row+1)*lineHeight-5, i, still, float64(len([]rune(p.text)))*cellWidth, html.EscapeString(p.text))
	}
	b.WriteString("</svg>\n")
	if b.Len() > maxPictureBytes {
		return nil, fmt.Errorf("the picture has %d bytes, more than %d", b.Len(), maxPictureBytes)
	}
	return []byte(b.String()), nil
}

// span is a line of text in a row of the screen, and when it was there.
type span struct {
	row      int
	text     string
	from, to time.Duration
}

// spans are all lines that frames show, each from when it came to when it went.
func (s *screen) spans() (all []span) {
	for row := range s.rows {
		now := time.Duration(0)
		for _, f := range s.frames {
			next := span{row, "", now, now + f.shown}
			if row < len(f.lines) {
				next.text = f.lines[row]
			}
			if n := len(all); n > 0 && all[n-1].row == row && all[n-1].to == now && all[n-1].text == next.text {
				all[n-1].to = next.to
			} else if next.text != "" {
				all = append(all, next)
			}
			now = next.to
		}
	}
	slices.SortStableFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	return all
}
