package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startTimeout is how long a server may take to start.
const startTimeout = 30 * time.Second

// server is a process that runs during the timed ones.
type server struct {
	cmd     *exec.Cmd
	printed *log
	done    chan struct{} // closed when the process has ended
}

// log keeps what a server prints.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// startServer starts a command and waits until it has printed ready or, if ready is an
// address, until connections to it are accepted.
func startServer(ctx context.Context, ready string, argv ...string) (*server, error) {
	s := &server{cmd: exec.Command(argv[0], argv[1:]...), printed: &log{}, done: make(chan struct{})}
	s.cmd.Stdout, s.cmd.Stderr = s.printed, s.printed
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", argv[0], err)
	}
	go func() {
		s.cmd.Wait() // the exit status does not matter: stop ended it
		close(s.done)
	}()
	if err := s.awaitReady(ctx, ready); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, tail(s.printed.String()))
	}
	return s, nil
}

func (s *server) awaitReady(ctx context.Context, ready string) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	_, _, notAddress := net.SplitHostPort(ready)
	for !strings.Contains(s.printed.String(), ready) {
		if notAddress == nil {
			if c, err := net.Dial("tcp", ready); err == nil {
				return c.Close()
			}
		}
		select {
		case <-s.done:
			return fmt.Errorf("ended before it was ready")
		case <-ctx.Done():
			return fmt.Errorf("not ready: %w", ctx.Err())
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

// stop ends the server and waits for its end.
func (s *server) stop() {
	s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.done:
	case <-time.After(10 * time.Second):
		s.cmd.Process.Kill()
		<-s.done
	}
}

// freeAddress finds a free port of the loopback interface.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// startRsyncd starts an rsync daemon whose module "dst" is root, with its own
// configuration in folder, and returns its address.
func startRsyncd(ctx context.Context, folder, root string) (*server, string, error) {
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	// Without munge symlinks a daemon that does not chroot rewrites every link.
	conf := "use chroot = no\nmunge symlinks = no\nreverse lookup = no\n[dst]\npath = " + root + "\nread only = no\n"
	if os.Getuid() == 0 {
		conf += "uid = root\ngid = root\n"
	}
	name := filepath.Join(folder, "rsyncd.conf")
	if err := os.WriteFile(name, []byte(conf), 0o600); err != nil {
		return nil, "", fmt.Errorf("configure rsync: %w", err)
	}
	_, port, _ := net.SplitHostPort(address)
	s, err := startServer(ctx, address, "rsync", "--daemon", "--no-detach", "--address=127.0.0.1", "--port="+port,
		"--config="+name, "--log-file="+filepath.Join(folder, "rsyncd.log"))
	return s, address, err
}

// startSSHD starts an SSH server on the loopback interface, with newly created keys, and
// returns the configuration with which ssh and scp reach it.
func startSSHD(ctx context.Context, folder string) (s *server, config string, err error) {
	address, err := freeAddress()
	if err != nil {
		return nil, "", err
	}
	me, err := user.Current()
	if err != nil {
		return nil, "", fmt.Errorf("find user: %w", err)
	}
	_, port, _ := net.SplitHostPort(address)
	for _, key := range []string{"host", "user"} {
		if _, err := output(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(folder, key)); err != nil {
			return nil, "", err
		}
	}
	if os.Getuid() == 0 { // Debian's sshd needs its empty directory, which its service creates at boot
		if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
			return nil, "", fmt.Errorf("make sshd's folder: %w", err)
		}
	}
	daemon := "ListenAddress 127.0.0.1\nPort " + port + "\nHostKey " + folder + "/host\nAuthorizedKeysFile " + folder +
		"/user.pub\nStrictModes no\nUsePAM no\nPidFile none\nPermitRootLogin prohibit-password\nSubsystem sftp internal-sftp\n"
	client := "Host *\nPort " + port + "\nUser " + me.Username + "\nIdentityFile " + folder +
		"/user\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\nLogLevel ERROR\n"
	files := map[string]string{"sshd_config": daemon, "ssh_config": client}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return nil, "", fmt.Errorf("configure ssh: %w", err)
		}
	}
	s, err = startServer(ctx, address, "/usr/sbin/sshd", "-D", "-e", "-f", filepath.Join(folder, "sshd_config"))
	return s, filepath.Join(folder, "ssh_config"), err
}
