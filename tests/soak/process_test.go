package soak

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/tests/launch"
	"gdrcp/xfer"
)

// process is a running program with its own process group. It is ended with the test.
type process struct {
	t              *testing.T
	args           []string
	cmd            *exec.Cmd
	stdout, stderr launch.Output
	ended          chan struct{}
}

// start starts the program. stdin and stdout may be nil: then there is no input, and
// the output is kept.
func start(t *testing.T, stdin, stdout *os.File, args ...string) *process {
	t.Helper()
	p := &process{t: t, args: args, cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), "GDRCP_KEY_FILE="+keyFile)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if stdin != nil {
		p.cmd.Stdin = stdin
	}
	if stdout != nil {
		p.cmd.Stdout = stdout
	}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	must(t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the code is in ProcessState
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.ended
		if syscall.Kill(-p.cmd.Process.Pid, 0) == nil {
			t.Errorf("a process of the program's group is left: %s", p)
		}
	})
	return p
}

// signal sends a signal, unless the process has ended.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// wait waits for the process to end and returns the exit code, or -1 if a signal ended
// it. A process that does not end fails the test, with its stacks.
func (p *process) wait(limit time.Duration) int {
	p.t.Helper()
	select {
	case <-p.ended:
	case <-time.After(limit):
		p.signal(syscall.SIGCONT)
		p.signal(syscall.SIGQUIT)
		time.Sleep(time.Second)
		p.t.Fatalf("still runs after %v: %s", limit, p)
	}
	return p.cmd.ProcessState.ExitCode()
}

// String returns the process's arguments and output, without the entries that it
// copied.
func (p *process) String() string {
	var out strings.Builder
	for line := range strings.Lines(p.stdout.String()) {
		if !strings.Contains(line, `"outcome":"copied"`) && !strings.Contains(line, `"outcome":"kept"`) && !strings.Contains(line, `"outcome":"left_out"`) {
			out.WriteString(line)
		}
	}
	return fmt.Sprintf("gdrcp %q\nstderr: %s\nstdout: %s", p.args, p.stderr.String(), &out)
}

// checkText fails the test if the output has anything that users should not see.
func (p *process) checkText() {
	p.t.Helper()
	for _, bad := range []string{"panic", "goroutine ", ".go:", "%!", "<nil>", "DATA RACE"} {
		if strings.Contains(p.stderr.String(), bad) {
			p.t.Errorf("standard error has %q: %s", bad, p)
		}
	}
}

// link is a connection between client and server: "tcp", or a device.
type link struct{ name, host string }

// links returns the devices that the environment names, or else TCP.
func links() (all []link) {
	for pair := range strings.SplitSeq(os.Getenv("GDRCP_TEST_RDMA"), ",") {
		if device, address, ok := strings.Cut(pair, "="); ok {
			all = append(all, link{device, address})
		}
	}
	if len(all) == 0 {
		all = []link{{"tcp", "127.0.0.1"}}
	}
	return all
}

func (l link) isTCP() bool { return l.name == "tcp" }

// transport returns the option that chooses the link.
func (l link) transport() []string {
	if l.isTCP() {
		return []string{"--transport", "tcp", "--retries", "0"}
	}
	return []string{"--transport", "verbs", "--retries", "0"}
}

// server is a running gdrcp serve.
type server struct {
	*process
	addr string // of the link
}

var listening = regexp.MustCompile(`(?m)^gdrcp: serving .* on (tcp|verbs \S+) (\S+)$`)

// serve starts a server and waits until it listens.
func serve(t *testing.T, l link, root string) *server {
	t.Helper()
	args := []string{"serve", "--root", root, "--listen", "127.0.0.1:0", "--transport", "tcp"}
	if !l.isTCP() {
		args = append(args[:3], "--listen", "0.0.0.0:0", "--transport", "auto")
	}
	s := &server{process: start(t, nil, nil, args...)}
	for deadline := time.Now().Add(launch.Slow(20 * time.Second)); ; time.Sleep(5 * time.Millisecond) {
		port, listens := "", false
		for _, m := range listening.FindAllStringSubmatch(s.stderr.String(), -1) {
			if m[1] == "tcp" {
				_, port, _ = net.SplitHostPort(m[2])
			}
			listens = listens || strings.TrimPrefix(m[1], "verbs ") == l.name
		}
		if listens && port != "" {
			s.addr = net.JoinHostPort(l.host, port)
			return s
		}
		if time.Now().After(deadline) {
			t.Fatalf("the server does not serve: %s", s)
		}
	}
}

// leaving is how long a server takes after it was asked to stop.
func leaving() time.Duration { return launch.Slow(xfer.AbortWait + xfer.DefaultTimeouts().Linger) }

// stop ends the server by SIGTERM and checks that it ended cleanly.
func (s *server) stop() {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	if code := s.wait(leaving()); code != 0 {
		s.t.Errorf("after SIGTERM the server ended with %d: %s", code, s.process)
	}
	s.checkText()
}

// must ends the test if preparing it fails.
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
