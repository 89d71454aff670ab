package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"gdrcp/chunker"
	"gdrcp/rdma/rdmatest"

	"golang.org/x/sys/unix"
)

// frames is what was shown on the last line of a terminal, one after the other.
func frames(t *testing.T, screen string, columns int) []string {
	t.Helper()
	all := strings.FieldsFunc(screen, func(r rune) bool { return r == '\r' || r == '\n' })
	var shown []string
	for _, f := range all {
		if strings.HasPrefix(f, "gdrcp:") || strings.HasPrefix(f, "copied ") { // lines that stay
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

// A copy on a terminal of any width draws its progress in one line, which shows
// no names, and leaves nothing of it.
func TestProgressOnTerminals(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	name := "\x1b[2Jfile\n\u5bbd\u5bbd\u202e"
	if err := os.WriteFile(filepath.Join(dir, name), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "second"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	share := regexp.MustCompile(`^ {0,2}\d+%  [\d.]+ [KM]?i?B/s`)
	for _, columns := range []uint16{20, 40, 80, 200} {
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
			n := 0
			for _, f := range shown {
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

// An ssh that asks for a password has the terminal for itself, also where a copy begins
// again: its first far end is killed when a file has been copied.
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

// While a total is not known the rate is one, and the clock goes on.
func TestProgressOfAStream(t *testing.T) {
	s := startServer(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	go func() {
		defer w.Close()
		for range 40 {
			if _, err := w.Write(make([]byte, 128<<10)); err != nil {
				return
			}
			time.Sleep(60 * time.Millisecond)
		}
	}()
	tty, screen := openTerminal(t)
	p, _, _ := newProgram()
	p.stderr = tty
	p.input = func() (*chunker.Pipe, error) { return chunker.NewInput(int(r.Fd()), "standard input") }
	if code := p.run(t.Context(), []string{"gdrcp", "--chunk-size=1M", "-", s.url("stream")}); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	waitFor(t, screen, regexp.MustCompile(`copied 1 file.*\r\n$`))
	line := regexp.MustCompile(`^[\d.]+ MiB  [\d.]+ [KM]iB/s  \d files?  0:0(\d) so far$`)
	last, n := "", 0
	for _, f := range frames(t, screen.String(), 100) {
		m := line.FindStringSubmatch(f)
		if m == nil {
			continue
		}
		n++
		if m[1] < last {
			t.Errorf("the clock went back to %s from %s", m[1], last)
		}
		last = m[1]
	}
	if n < 5 || last < "2" {
		t.Errorf("%d frames, the last after %q s, in %q", n, last, screen)
	}
	if strings.Contains(screen.String(), "TiB") || strings.Contains(screen.String(), "GiB") {
		t.Errorf("too fast: %q", screen)
	}
}

// What makes or checks a manifest shows on a terminal how far it is, in one line, of
// which it leaves nothing: here, at another host, and with --progress.
func TestProgressOfManifests(t *testing.T) {
	dir := t.TempDir()
	files := map[string]string{}
	for i := range 3000 {
		files[fmt.Sprintf("t/file-%04d", i)] = "some bytes"
	}
	makeFiles(t, dir, files)
	text := gdrcp(t, "manifest", "create", dir+"/t").want(t, exitOK).out
	half := strings.Index(text, "file-1500")
	for name, c := range map[string]struct {
		args  []string
		frame string // of its line
		last  string
	}{
		"create":            {[]string{"create", dir + "/t"}, `KiB  .* files? `, `manifest of 3000 files`},
		"create --progress": {[]string{"create", "--progress", dir + "/t"}, `KiB  .* files? `, `manifest of 3000 files`},
		"verify":            {[]string{"verify", "--progress", "-", dir + "/t"}, `KiB  .* files? `, `verified 3000 files`},
		"at another host":   {append(append([]string{"create", "-o", dir + "/none"}, overShellWith(t, beFalse+"=slow")...), "h:/t"), `^ *\d+%  `, `gdrcp: h: `},
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
			go func() { // slowly
				_, _ = io.WriteString(given, text[:half])
				time.Sleep(time.Second)
				_, _ = io.WriteString(given, text[half:])
				given.Close()
			}()
			go func() {
				time.Sleep(time.Second)
				_, _ = io.Copy(io.Discard, taken)
			}()
			_ = p.run(t.Context(), append([]string{"gdrcp", "manifest"}, c.args...))
			out.Close()
			waitFor(t, screen, regexp.MustCompile(regexp.QuoteMeta(c.last)+`.*\r\n$`))
			if strings.Count(screen.String(), "\n") != 1 {
				t.Errorf("more lines than the last one: %q", screen)
			}
			n := 0
			for _, f := range strings.FieldsFunc(screen.String(), func(r rune) bool { return r == '\r' || r == '\n' }) {
				if regexp.MustCompile(c.frame).MatchString(f) && len(f) < 100 {
					n++
				}
			}
			if n < 3 {
				t.Errorf("%d frames in %q", n, screen)
			}
		})
	}
}

// A manifest that is shown on a terminal has no line of progress in it.
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
