package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"gdrcp/chunker/dest"
	"gdrcp/rdma/rdmatest"

	"golang.org/x/sys/unix"
)

// frames returns the successive contents of the last line of a terminal.
func frames(t *testing.T, screen string, columns int) []string {
	t.Helper()
	all := strings.FieldsFunc(screen, func(r rune) bool { return r == '\r' || r == '\n' })
	var shown []string
	for _, f := range all {
		if strings.HasPrefix(f, "gdrcp:") || strings.HasPrefix(f, "copied ") { // lines that are not redrawn
			continue
		}
		if len(f) >= columns {
			t.Errorf("on %d columns a frame of %d: %q", columns, len(f), f)
		}
		for _, c := range f {
			if c < ' ' || c > '~' {
				t.Errorf("a frame with %q: %q", c, f)
			}
		}
		if f = strings.TrimRight(f, " "); f != "" {
			shown = append(shown, f)
		}
	}
	return shown
}

// row returns the last row of a terminal with that many columns after all output. It
// fails the test if the output took more rows.
func row(t *testing.T, written string, columns int) string {
	t.Helper()
	var cells []rune
	at := 0
	for _, c := range written {
		switch {
		case c == '\r':
			at = 0
			continue
		case c == '\n' || at == columns:
			t.Fatalf("on %d columns the line of progress takes another row: %q", columns, written)
		case at < len(cells):
			cells[at] = c
		default:
			cells = append(cells, c)
		}
		at++
	}
	return strings.TrimRight(string(cells), " ")
}

// shows returns the submatches of the frames on a screen that match.
func shows(screen *buffer, frame *regexp.Regexp) (all [][]string) {
	for _, f := range strings.FieldsFunc(screen.String(), func(r rune) bool { return r == '\r' || r == '\n' }) {
		if m := frame.FindStringSubmatch(f); m != nil && len(f) < 100 {
			all = append(all, m)
		}
	}
	return all
}

// awaitFrames waits until n frames have matched. A timer draws them, and fewer on a
// busy machine. After a generous time it returns anyway.
func awaitFrames(screen *buffer, frame *regexp.Regexp, n int) {
	for end := time.Now().Add(time.Minute); len(shows(screen, frame)) < n && time.Now().Before(end); {
		time.Sleep(redrawEvery / 4)
	}
}

// On a terminal of any width, a copy draws its progress in one line without names, and
// removes it at the end.
func TestProgressOnTerminals(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	name := "\x1b[2Jfile\n\u5bbd\u5bbd\u202e"
	if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "second"), make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	alone := regexp.MustCompile(`^ {0,2}\d+%  [\d.]+ [KM]?i?B/s`)
	bar := regexp.MustCompile(`^[\d.]+ [KM]?i?B/s.* {1,3}\d+% \[=+ *\]$`)
	for _, columns := range []uint16{20, 30, 40, 80, 160, 200} {
		share := bar
		if columns < 30 {
			share = alone
		}
		t.Run(fmt.Sprint(columns), func(t *testing.T) {
			t.Parallel()
			tty, screen := openTerminal(t)
			if err := unix.IoctlSetWinsize(int(tty.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: columns}); err != nil {
				t.Fatal(err)
			}
			p, _, _ := newProgram()
			p.stderr = tty
			args := []string{"gdrcp", "-r", "--compress=off", "--bwlimit=1M", "--chunk-size=1M", dir, s.url(fmt.Sprintf("at%d", columns))}
			if code := p.run(t.Context(), args); code != exitOK {
				t.Errorf("exit code %d", code)
			}
			waitFor(t, screen, regexp.MustCompile(`copied 2 files.*\r\n$`))
			shown := frames(t, screen.String(), int(columns))
			if n := strings.Count(screen.String(), "\n"); n != 1 {
				t.Errorf("%d lines, want the last one alone: %q", n, screen)
			}
			before, _, _ := strings.Cut(screen.String(), "copied 2 files")
			if left := row(t, before, int(columns)); left != "" {
				t.Errorf("%q is left on the line of the summary: %q", left, screen)
			}
			n := 0
			for _, f := range shown {
				if columns >= 30 && len(f) > 1 && strings.HasSuffix(f, "]") && len(f) != int(columns)-1 {
					t.Errorf("a line of %d cells on %d columns: %q", len(f), columns, f)
				}
				if share.MatchString(f) {
					n++
				}
			}
			if n < 3 {
				t.Errorf("%d frames with a share and a rate in %q", n, shown)
			}
		})
	}
}

// --no-progress draws nothing even on a terminal, unless --progress follows.
func TestNoProgressOnATerminal(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": strings.Repeat("a", 2<<20)})
	for options, drawn := range map[string]bool{
		"--no-progress": false, "--progress --no-P": false, "--info progress0": false, "--no-progress --progress": true, "--no-progress --info=progress2": true,
	} {
		tty, screen := openTerminal(t)
		p, _, _ := newProgram()
		p.stderr = tty
		args := append([]string{"gdrcp", "--compress=off", "--bwlimit=2M", "--chunk-size=1M"}, strings.Fields(options)...)
		if code := p.run(t.Context(), append(args, dir+"/a", dir+"/b")); code != exitOK {
			t.Errorf("%s: exit code %d", options, code)
		}
		waitFor(t, screen, regexp.MustCompile(`copied 1 file.*\r\n$`))
		if got := len(frames(t, screen.String(), 100)) > 0; got != drawn {
			t.Errorf("%s: drawn is %v: %q", options, got, screen)
		}
	}
}

// An ssh that asks for a password has the terminal to itself, even when a copy
// restarts: the test kills the first remote process after a file has been copied.
func TestNoProgressWhileSSHAsks(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, there := t.TempDir(), t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "small", "t/b": strings.Repeat("large", 1<<20)})
	rsh := `sh -c 'shift; if mkdir "$0/once" 2>&-; then exec 3<&0; env $* <&3 & while kill -0 $! && ! [ -e "$0/kill" ]; do sleep 0.05; done; kill -9 $!; ` +
		`else printf "password: " >&2; sleep 1; echo given >&2; exec env $*; fi' ` + dir
	tty, screen := openTerminal(t)
	p, _, _ := newProgram()
	p.stderr = tty
	code := make(chan int, 1)
	go func() {
		code <- p.run(t.Context(), []string{"gdrcp", "--rsh", rsh, "--remote-path", beMain + "=1 " + exe,
			"-r", "--compress=off", "--bwlimit=1M", "--chunk-size=1M", dir + "/t", "h:" + there})
	}()
	waitFor(t, screen, regexp.MustCompile(`  1 file  `))
	makeFiles(t, dir, map[string]string{"kill": ""})
	if code := <-code; code != exitOK {
		t.Errorf("exit code %d", code)
	}
	waitFor(t, screen, regexp.MustCompile(`copied 2 files.*\r\n$`))
	if !regexp.MustCompile(`[\r\n]password: given\r\n`).MatchString(screen.String()) {
		t.Errorf("a line of progress comes between: %q", screen)
	}
}

// streamClock matches a frame of a copy whose total is unknown; its submatches are the
// minutes and seconds of the clock.
var streamClock = regexp.MustCompile(`^[\d.]+ MiB  [\d.]+ [KM]iB/s  \d files?  (\d+):(\d\d) so far *$`)

// clocks returns the times in such frames, in seconds.
func clocks(screen *buffer) (all []int) {
	for _, m := range shows(screen, streamClock) {
		minutes, _ := strconv.Atoi(m[1])
		seconds, _ := strconv.Atoi(m[2])
		all = append(all, 60*minutes+seconds)
	}
	return all
}

// While the total is unknown, the rate is correct and the clock advances.
func TestProgressOfAStream(t *testing.T) {
	s := startServer(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	tty, screen := openTerminal(t)
	const drawn, seconds = 5, 2
	go func() {
		defer w.Close()
		for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(60 * time.Millisecond) {
			if _, err := w.Write(make([]byte, 128<<10)); err != nil {
				return
			}
			if shown := clocks(screen); len(shown) >= drawn && shown[len(shown)-1] >= seconds {
				return // a busy machine takes longer
			}
		}
	}()
	p, _, _ := newProgram()
	p.stderr = tty
	p.input = func() (*dest.Pipe, error) { return dest.NewInput(int(r.Fd()), "standard input") }
	if code := p.run(t.Context(), []string{"gdrcp", "--chunk-size=1M", "-", s.url("stream")}); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	waitFor(t, screen, regexp.MustCompile(`copied 1 file.*\r\n$`))
	shown := clocks(screen)
	if !slices.IsSorted(shown) {
		t.Errorf("the clock went back: %d", shown)
	}
	if len(shown) < drawn || shown[len(shown)-1] < seconds {
		t.Errorf("the frames show %d s, in %q", shown, screen)
	}
	frames(t, screen.String(), 100) // checks each frame
	if strings.Contains(screen.String(), "TiB") || strings.Contains(screen.String(), "GiB") {
		t.Errorf("too fast: %q", screen)
	}
}

// Commands that make or verify a manifest draw their progress in one line of a terminal
// and remove it: for local and remote trees, and with --progress.
func TestProgressOfManifests(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for i := range 3000 {
		files[fmt.Sprintf("t/file-%04d", i)] = "some bytes"
	}
	makeFiles(t, dir, files)
	text := gdrcp(t, "manifest", "create", dir+"/t").want(t, exitOK).out
	half := strings.Index(text, "file-1500")
	seen := dir + "/seen"
	for name, c := range map[string]struct {
		args  []string
		frame string // of its line
		last  string
	}{
		"create":            {[]string{"create", dir + "/t"}, `KiB  .* files? `, `manifest of 3000 files`},
		"create --progress": {[]string{"create", "--progress", dir + "/t"}, `KiB  .* files? `, `manifest of 3000 files`},
		"verify":            {[]string{"verify", "--progress", "-", dir + "/t"}, `KiB  .* files? `, `verified 3000 files`},
		"at another host":   {append(append([]string{"create", "-o", dir + "/none"}, overShellWith(t, beFalse+"='"+slowUntil+seen+"'")...), "h:/t"), ` \d+% \[=* *\] *$`, `gdrcp: h: `},
	} {
		t.Run(name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			t.Parallel()
			tty, screen := openTerminal(t)
			p, _, _ := newProgram()
			p.stderr = tty
			in, given := io.Pipe()
			defer in.Close()
			taken, out := io.Pipe()
			p.stdin, p.stdout = in, out
			// The peer continues after this many frames.
			const drawn = 3
			frame := regexp.MustCompile(c.frame)
			shown := make(chan struct{})
			go func() {
				awaitFrames(screen, frame, drawn)
				if name == "at another host" {
					_ = os.WriteFile(seen, nil, 0o600)
				}
				close(shown)
			}()
			go func() {
				_, _ = io.WriteString(given, text[:half])
				<-shown
				_, _ = io.WriteString(given, text[half:])
				given.Close()
			}()
			go func() {
				<-shown
				_, _ = io.Copy(io.Discard, taken)
			}()
			_ = p.run(t.Context(), append([]string{"gdrcp", "manifest"}, c.args...))
			out.Close()
			waitFor(t, screen, regexp.MustCompile(regexp.QuoteMeta(c.last)+`.*\r\n$`))
			if strings.Count(screen.String(), "\n") != 1 {
				t.Errorf("more lines than the last one: %q", screen)
			}
			if n := len(shows(screen, frame)); n < drawn {
				t.Errorf("%d frames in %q", n, screen)
			}
		})
	}
}

// A manifest printed on a terminal has no progress line in it.
func TestNoProgressInAManifest(t *testing.T) {
	tty, screen := openTerminal(t)
	p, _, _ := newProgram()
	p.stdout, p.stderr = tty, tty
	if code := p.run(t.Context(), append(append([]string{"gdrcp", "manifest", "create"}, overShellWith(t, beFalse+"=slow")...), "h:/t")); code != exitError {
		t.Errorf("exit code %d", code)
	}
	waitFor(t, screen, regexp.MustCompile(`gdrcp: h: .*\r\n$`))
	if strings.Contains(screen.String(), "%") {
		t.Errorf("it shows %q", screen)
	}
}
