package program

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// process is a running program. It is ended with the test.
type process struct {
	t              testing.TB
	args           []string
	cmd            *exec.Cmd
	stdout, stderr launch.Output
	ended          chan struct{}
	started        time.Time
	took           time.Duration
	peakBytes      int64 // of resident memory, last sample
}

// how is how to start a process. The zero value means: in the test's directory, as the
// test's user, by its own name.
type how struct {
	dir    string
	uid    uint32   // run as this user, without a group that has rights
	before []string // a command that runs the program
	// stdin and stdout are passed to the program. Without them there is no input, and
	// the output is kept.
	stdin, stdout *os.File
}

// nobody is a user who owns nothing.
const nobody = 65534

func start(t testing.TB, h how, args ...string) *process {
	t.Helper()
	argv := append(append([]string{}, h.before...), binary)
	argv = append(argv, args...)
	p := &process{t: t, args: args, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{}), started: time.Now()}
	p.cmd.Env = append(os.Environ(), "GDRCP_KEY_FILE="+keyFiles[h.uid])
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = h.dir, &p.stdout, &p.stderr
	if h.stdin != nil {
		p.cmd.Stdin = h.stdin
	}
	if h.stdout != nil {
		p.cmd.Stdout = h.stdout
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if h.uid != 0 {
		p.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: h.uid, Gid: h.uid}
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.watch()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // a process that has ended was waited for, and gets no signal
		<-p.ended
	})
	return p
}

// sampling is the interval at which memory is read. The kernel keeps a high-water mark,
// so only the last interval can be missed.
const sampling = 10 * time.Millisecond

func (p *process) watch() {
	gone := make(chan struct{})
	go func() {
		_ = p.cmd.Wait() // the code is in ProcessState
		close(gone)
	}()
	tick := time.NewTicker(sampling)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.peakBytes = max(p.peakBytes, peakOf(p.cmd.Process.Pid))
		case <-gone:
			p.took = time.Since(p.started)
			close(p.ended)
			return
		}
	}
}

// peakOf reads VmHWM of proc(5), the peak of resident memory, in bytes. It returns 0
// for a process that has ended.
func peakOf(pid int) int64 {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	_, rest, _ := strings.Cut(string(text), "VmHWM:")
	fields := strings.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(fields[0], 10, 64)
	return kib << 10
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("signal %v: %v\n%s", s, err, p)
	}
}

// wait waits at most limit for the process to end and returns the exit code, or -1 if a
// signal ended it.
func (p *process) wait(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.signal(syscall.SIGQUIT)
		time.Sleep(time.Second)
		p.t.Fatalf("still runs after %v: %s", limit, p)
	}
	return p.cmd.ProcessState.ExitCode()
}

func (p *process) String() string {
	return fmt.Sprintf("gdrcp %q\nstderr: %s\nstdout: %s", p.args, p.stderr.String(), p.stdout.String())
}

// patience is the time limit of an undisturbed copy.
const patience = 60 * time.Second

// run runs the program to its end.
func run(t testing.TB, h how, args ...string) *process {
	t.Helper()
	p := start(t, h, args...)
	p.wait(launch.Slow(patience))
	return p
}

// wantCode fails the test if the program ended with another exit code.
func (p *process) wantCode(code int) *process {
	p.t.Helper()
	if got := p.wait(launch.Slow(patience)); got != code {
		p.t.Fatalf("exit code %d, want %d: %s", got, code, p)
	}
	return p
}

// note matches lines that inform and report no error. A rail may be lost before the
// connection is.
var note = regexp.MustCompile(`^gdrcp: (using|from|serving|slots|meta root|warning:|rail \S+ (lost|joined)[,:]) `)

// wantFailure fails the test unless the program ended with that code and one clear
// line: one that begins with "gdrcp: " and matches the pattern, at most one hint, and
// nothing else.
func (p *process) wantFailure(code int, pattern string) *process {
	p.t.Helper()
	p.wantCode(code)
	if line := p.oneLine(); !regexp.MustCompile(pattern).MatchString(line) {
		p.t.Errorf("the error does not match /%s/: %s", pattern, p)
	}
	return p
}

// oneLine returns the line with the error, and the hint below it.
func (p *process) oneLine() string {
	p.t.Helper()
	var errors, hints []string
	text := p.stderr.String()
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case note.MatchString(line):
		case strings.HasPrefix(line, "gdrcp: "):
			errors = append(errors, line)
		case strings.HasPrefix(line, "hint: "):
			hints = append(hints, line)
		default:
			p.t.Errorf("a failure has the line %q: %s", line, p)
		}
	}
	if len(errors) != 1 || len(hints) > 1 {
		p.t.Errorf("a failure has %d lines and %d hints, want one and at most one: %s", len(errors), len(hints), p)
	}
	p.checkText(text)
	return strings.Join(append(errors, hints...), "\n")
}

// wantOne fails the test unless exactly one of the lines matches.
func (p *process) wantOne(lines []string, pattern string) {
	p.t.Helper()
	found := 0
	for _, line := range lines {
		if regexp.MustCompile(pattern).MatchString(line) {
			found++
		}
	}
	if found != 1 {
		p.t.Errorf("%d lines match /%s/, want one: %s", found, pattern, p)
	}
}

// longLine is longer than any error should be, apart from the names in it.
const longLine = 600

// checkText fails the test if a text contains anything that users should not see.
func (p *process) checkText(text string) {
	p.t.Helper()
	for _, bad := range []string{"panic", "goroutine ", ".go:", "%!", "<nil>", "0xc0"} {
		if strings.Contains(text, bad) {
			p.t.Errorf("an error holds %q: %s", bad, p)
		}
	}
	for line := range strings.Lines(text) {
		if len(line) > longLine {
			p.t.Errorf("an error of %d bytes is no clear line: %s", len(line), p)
		}
		for _, r := range strings.TrimSuffix(line, "\n") {
			if r < ' ' || r == 0x7f {
				p.t.Errorf("an error holds the control character %q: %s", r, p)
			}
		}
	}
}

// server is a running gdrcp serve.
type server struct {
	*process
	root string
	link link
	port int // of TCP
}

var listening = regexp.MustCompile(`(?m)^gdrcp: serving .* on (tcp|verbs \S+) (\S+)$`)

// serve starts a server of root that clients reach over l, and waits until it listens.
func serve(t testing.TB, l link, root string, extra ...string) *server {
	t.Helper()
	return serveAs(t, how{}, l, root, extra...)
}

// serveAs starts a server. Without a root, extra must name an access file.
func serveAs(t testing.TB, h how, l link, root string, extra ...string) *server {
	t.Helper()
	args := append([]string{"serve", "--listen", "127.0.0.1:0"}, l.serveArgs()...)
	if root != "" {
		args = append(args, "--root", root)
	}
	s := &server{process: start(t, h, append(args, extra...)...), root: root, link: l}
	deadline := time.Now().Add(launch.Slow(20 * time.Second))
	for !s.isListening() {
		select {
		case <-s.ended:
			t.Fatalf("the server ended: %s", s)
		case <-time.After(5 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not serve: %s", s)
		}
	}
	return s
}

func (s *server) isListening() bool {
	found := false
	for _, m := range listening.FindAllStringSubmatch(s.stderr.String(), -1) {
		if m[1] == "tcp" {
			_, port, _ := net.SplitHostPort(m[2])
			s.port, _ = strconv.Atoi(port)
		}
		found = found || strings.TrimPrefix(m[1], "verbs ") == s.link.name
	}
	return found && s.port != 0
}

// url names a path below the server's root. The path is not escaped.
func (s *server) url(path string) string {
	return fmt.Sprintf("rdma://%s:%d/%s", s.link.host, s.port, path)
}

func (s *server) addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// copy runs a copy over the server's link.
func (s *server) copy(t testing.TB, args ...string) *process {
	t.Helper()
	return run(t, how{}, append(s.link.copyArgs(), args...)...)
}

// stop ends the server by SIGTERM and checks that it ended cleanly.
func (s *server) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.wait(launch.Slow(leaving())); code != 0 {
		s.t.Errorf("after SIGTERM the server ended with %d: %s", code, s.process)
	}
	s.checkLog()
}

// checkLog fails the test if the log contains anything that users should not see.
func (s *server) checkLog() {
	s.t.Helper()
	s.checkText(s.stderr.String())
}

// sides are a client's directory and a server with its own.
type sides struct {
	*server
	here, there string
	as          how      // how both are started
	options     []string // of every copy
	slow        *proxy   // the proxy of the last slowDown, or nil
}

func newSides(t testing.TB, l link, extra ...string) *sides {
	t.Helper()
	return newSidesAs(t, how{}, l, extra...)
}

func newSidesAs(t testing.TB, h how, l link, extra ...string) *sides {
	t.Helper()
	s := &sides{here: t.TempDir(), there: t.TempDir(), as: h}
	s.server = serveAs(t, h, l, s.there, extra...)
	return s
}

// copyArgs returns the options that choose the link, and those of every copy.
func (s *sides) copyArgs() []string { return append(s.link.copyArgs(), s.options...) }

// copy runs a copy over the server's link.
func (s *sides) copy(t testing.TB, args ...string) *process {
	t.Helper()
	return run(t, s.as, append(s.copyArgs(), args...)...)
}

// direction is the direction of a copy.
type direction struct{ push bool }

func (d direction) String() string {
	if d.push {
		return "push"
	}
	return "pull"
}

func bothWays(t *testing.T, test func(t *testing.T, d direction)) {
	for _, d := range []direction{{true}, {false}} {
		t.Run(d.String(), func(t *testing.T) { test(t, d) })
	}
}

// bothWaysByTCP is bothWays with a server and directories of the test's own.
func bothWaysByTCP(t *testing.T, test func(t *testing.T, s *sides, d direction, from, to string)) {
	bothWays(t, func(t *testing.T, d direction) {
		s := newSides(t, tcpLink())
		from, to := s.ends(d)
		test(t, s, d, from, to)
	})
}

// ends returns the directories that contain the source and the copy.
func (s *sides) ends(d direction) (from, to string) {
	if d.push {
		return s.here, s.there
	}
	return s.there, s.here
}

// operands names a source and a destination below the directories, for a client that
// reaches the server at via.
func (s *sides) operands(d direction, via, from, to string) []string {
	if d.push {
		return []string{s.here + "/" + from, "rdma://" + via + "/" + to}
	}
	return []string{"rdma://" + via + "/" + from, s.here + "/" + to}
}

// via returns the address of the server without a proxy.
func (s *sides) via() string { return net.JoinHostPort(s.link.host, strconv.Itoa(s.port)) }
