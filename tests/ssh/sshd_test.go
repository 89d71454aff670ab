package ssh

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// sshd must be started by its full path (sshd(8)).
const sshd = "/usr/sbin/sshd"

// host is an sshd that plays another host.
type host struct {
	name string
	port int
	// path is a directory at the start of its PATH, whose programs its shell finds.
	path string
	// home is HOME there. Logins start in the user's real home directory.
	home  string
	cache string // XDG_CACHE_HOME
}

// newHost starts an sshd whose shell finds what install puts into the directory.
func newHost(t *testing.T, name string, install func(t *testing.T, dir string)) *host {
	t.Helper()
	dir := t.TempDir()
	h := &host{name: name, path: filepath.Join(dir, "bin"), home: filepath.Join(dir, "home"), cache: filepath.Join(dir, "home", "cache")}
	for _, d := range []string{h.path, h.home, h.cache} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	install(t, h.path)
	for !h.listens(t, filepath.Join(dir, "sshd_config")) {
	}
	return h
}

// listens starts the sshd at a port that was free. It returns false if another process
// has taken that.
func (h *host) listens(t *testing.T, config string) bool {
	t.Helper()
	h.port = freePort(t)
	write(t, config, fmt.Sprintf(`Port %d
ListenAddress 127.0.0.1
HostKey %s
AuthorizedKeysFile %s
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxStartups 100
SetEnv PATH=%s:/usr/bin:/bin HOME=%s XDG_CACHE_HOME=%s
`, h.port, filepath.Join(keys, "host"), filepath.Join(keys, "user.pub"), h.path, h.home, h.cache))
	log := &launch.Output{}
	daemon := exec.Command(sshd, "-D", "-e", "-f", config)
	daemon.Stderr = log
	if err := daemon.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = daemon.Wait() // its output says why it ended
		close(ended)
	}()
	t.Cleanup(func() {
		_ = daemon.Process.Kill() // it may already have ended
		<-ended
		if t.Failed() {
			t.Logf("the sshd of %s wrote:\n%s", h.name, log)
		}
	})
	taken := false
	within(t, launch.Slow(10*time.Second), "sshd listens", func() bool {
		select {
		case <-ended:
			if taken = strings.Contains(log.String(), "Address already in use"); !taken {
				t.Fatalf("sshd ended: %s", log)
			}
		default:
		}
		return taken || strings.Contains(log.String(), fmt.Sprintf("Server listening on 127.0.0.1 port %d.", h.port))
	})
	return !taken
}

// program installs the program under test.
func program(t *testing.T, dir string) {
	t.Helper()
	if err := os.Symlink(binary, filepath.Join(dir, "gdrcp")); err != nil {
		t.Fatal(err)
	}
}

// noProgram installs nothing.
func noProgram(*testing.T, string) {}

// script installs a shell script as gdrcp. In it, $gdrcp is the real one.
func script(text string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		file := filepath.Join(dir, "gdrcp")
		write(t, file, "#!/bin/sh\ngdrcp='"+binary+"'\n"+text+"\n")
		if err := os.Chmod(file, 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

// client is this host, with an ssh configuration that knows the hosts.
type client struct {
	dir    string
	config string
	rsh    string // GDRCP_RSH
}

func newClient(t *testing.T, hosts ...*host) *client {
	t.Helper()
	c := &client{dir: t.TempDir()}
	c.config = filepath.Join(c.dir, "my ssh config")
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(filepath.Join(keys, "host.pub"))
	if err != nil {
		t.Fatal(err)
	}
	var config, known strings.Builder
	for _, h := range hosts {
		fmt.Fprintf(&config, "Host %s\n  Port %d\n  IdentityFile %s\n", h.name, h.port, filepath.Join(keys, "user"))
		fmt.Fprintf(&config, "Host stranger-to-%s\n  Port %d\n  IdentityFile %s\n", h.name, h.port, filepath.Join(keys, "stranger"))
		fmt.Fprintf(&known, "[127.0.0.1]:%d %s", h.port, public)
	}
	fmt.Fprintf(&config, `Host down
  Port %d
Host *
  HostName 127.0.0.1
  User %s
  IdentitiesOnly yes
  IdentityAgent none
  UserKnownHostsFile %s
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  BatchMode yes
  LogLevel ERROR
`, freePort(t), me.Username, filepath.Join(c.dir, "known_hosts"))
	write(t, c.config, config.String())
	write(t, filepath.Join(c.dir, "known_hosts"), known.String())
	c.rsh = "ssh -F '" + c.config + "'"
	return c
}

// freePort returns a port at which nothing listens.
func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// within waits until a condition is true.
func within(t *testing.T, limit time.Duration, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %s still not: %s", limit, what)
		}
	}
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
