package ssh

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// goneWithin is how long both ends may run after an event that ends a copy: each waits
// for the peer's last message, and then for its connections.
func goneWithin() time.Duration { return launch.Slow(10 * time.Second) }

// slowCopy is a copy in progress, slow enough to be ended in the middle.
type slowCopy struct {
	here     *client
	source   string
	there    string // destination of the copy
	farPID   int
	sshPID   int
	errs     *bytes.Buffer
	ended    chan struct{}
	process  *os.Process
	exitCode int
}

// startSlow starts a copy and waits until bytes have arrived. The remote program is a
// script that reports its process ID and ends with the line last.
func startSlow(t *testing.T, push bool, last string) *slowCopy {
	t.Helper()
	return startSlowTrying(t, push, last, "0")
}

// startSlowTrying is startSlow for a copy with retries.
func startSlowTrying(t *testing.T, push bool, last, retries string) *slowCopy {
	t.Helper()
	dir := t.TempDir()
	farPID, sshPID := filepath.Join(dir, "far"), filepath.Join(dir, "ssh")
	far := newHost(t, "node2", script("echo $$ >"+farPID+"\n"+last))
	s := &slowCopy{here: newClient(t, far), there: t.TempDir(), errs: &bytes.Buffer{}, ended: make(chan struct{})}
	wrapper := filepath.Join(dir, "rsh")
	write(t, wrapper, "#!/bin/sh\necho $$ >"+sshPID+"\nexec "+s.here.rsh+" \"$@\"\n")
	if err := os.Chmod(wrapper, 0o755); err != nil {
		t.Fatal(err)
	}
	s.here.rsh = wrapper
	source := filepath.Join(t.TempDir(), "large")
	makeFile(t, source, 64<<20)
	s.source = source
	args := []string{"--bwlimit", "4M", source, "node2:" + s.there + "/large"}
	if !push {
		args = []string{"--bwlimit", "4M", "node2:" + source, s.there + "/large"}
	}
	args = append(args, "--retries", retries)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	cmd := s.here.command(ctx, args...)
	cmd.Stderr = s.errs
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // as a shell does, for ^C
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = cmd.Process
	go func() {
		defer cancel()
		_ = cmd.Wait()
		s.exitCode = cmd.ProcessState.ExitCode()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-s.process.Pid, syscall.SIGKILL)
		<-s.ended
	})
	within(t, patience, "bytes have come", func() bool {
		select {
		case <-s.ended:
			t.Fatalf("it ended with code %d: %s", s.exitCode, s.errs)
		default:
		}
		files, _ := filepath.Glob(filepath.Join(s.there, ".gdrcp-*"))
		if len(files) == 0 {
			return false
		}
		st, err := os.Stat(files[0])
		return err == nil && st.Sys().(*syscall.Stat_t).Blocks > 0
	})
	s.farPID, s.sshPID = pidIn(t, farPID), pidIn(t, sshPID)
	return s
}

func pidIn(t *testing.T, file string) int {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// gone waits until both ends have ended. Nothing of the copy may be left except what
// the next copy resumes from.
func (s *slowCopy) gone(t *testing.T) {
	t.Helper()
	start := time.Now()
	select {
	case <-s.ended:
	case <-time.After(goneWithin()):
		t.Fatalf("this end is still there after %s: %s", goneWithin(), s.errs)
	}
	within(t, goneWithin()-time.Since(start), "the far end is gone", func() bool { return !alive(s.farPID) })
	onlyPartial(t, s.there)
}

// alive reports whether a process is running. A zombie is not.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// direct is how a script executes the program.
const direct = `exec "$gdrcp" "$@"`

// everyWay runs a test for pushes and pulls, over a network and over ssh.
func everyWay(t *testing.T, test func(t *testing.T, s *slowCopy)) {
	for name, push := range map[string]bool{"Push": true, "Pull": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, startSlow(t, push, direct))
		})
		t.Run(name+"OverSSH", func(t *testing.T) {
			t.Parallel()
			cutOff(t) // or skips
			test(t, startSlow(t, push, `exec unshare -n "$gdrcp" "$@"`))
		})
	}
}

// TestSSHDies: the sshd of the connection ends the remote process.
func TestSSHDies(t *testing.T) {
	everyWay(t, func(t *testing.T, s *slowCopy) {
		if err := syscall.Kill(s.sshPID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		s.gone(t)
		if s.exitCode != 1 || !strings.Contains(s.errs.String(), "the connection by the remote shell ended: ssh to node2: signal: killed\n") &&
			!strings.Contains(s.errs.String(), "the connection by the remote shell ended: rsh to node2: signal: killed\n") {
			t.Errorf("exit code %d: %s", s.exitCode, s.errs)
		}
	})
}

// TestInterrupt: ssh receives ^C, too.
func TestInterrupt(t *testing.T) {
	everyWay(t, func(t *testing.T, s *slowCopy) {
		if err := syscall.Kill(-s.process.Pid, syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		s.gone(t)
		if said := s.errs.String(); s.exitCode != 130 || !strings.HasSuffix(said, "gdrcp: interrupted\n") &&
			!strings.HasSuffix(said, "gdrcp: interrupted\nhint: run the same command again: it goes on where this copy was cut off\n") {
			t.Errorf("exit code %d: %s", s.exitCode, s.errs)
		}
	})
}

// TestOriginDies: the origin is killed without a last message.
func TestOriginDies(t *testing.T) {
	t.Parallel()
	s := startSlow(t, true, direct)
	if err := s.process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
}

// TestFarEndDies: the local end leaves no partial files under final names.
func TestFarEndDies(t *testing.T) {
	t.Parallel()
	s := startSlow(t, false, direct)
	if err := syscall.Kill(s.farPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
	if s.exitCode != 1 || !strings.Contains(s.errs.String(), "the connection by the remote shell ended") {
		t.Errorf("exit code %d: %s", s.exitCode, s.errs)
	}
}

// TestFarEndStartsAnew: if the remote process or ssh dies, the copy starts another one
// and resumes.
func TestFarEndStartsAnew(t *testing.T) {
	for name, pid := range map[string]func(s *slowCopy) int{
		"FarEnd": func(s *slowCopy) int { return s.farPID }, "SSH": func(s *slowCopy) int { return s.sshPID },
	} {
		for way, push := range map[string]bool{"Push": true, "Pull": false} {
			t.Run(name+way, func(t *testing.T) {
				t.Parallel()
				s := startSlowTrying(t, push, direct, "3")
				if err := syscall.Kill(pid(s), syscall.SIGKILL); err != nil {
					t.Fatal(err)
				}
				select {
				case <-s.ended:
				case <-time.After(patience):
					t.Fatalf("it still runs: %s", s.errs)
				}
				if s.exitCode != 0 || !strings.Contains(s.errs.String(), "(retry 1 of 3)") || !strings.Contains(s.errs.String(), "1 retry), verified") {
					t.Errorf("exit code %d: %s", s.exitCode, s.errs)
				}
				want, err := os.ReadFile(s.source)
				if err != nil {
					t.Fatal(err)
				}
				if got, err := os.ReadFile(filepath.Join(s.there, "large")); err != nil || !bytes.Equal(got, want) {
					t.Errorf("the copy differs, or %v", err)
				}
			})
		}
	}
}

// TestSecretsStayInThePipe: what everyone on the remote host can see of the remote
// process, and here of ssh, shows only which program runs.
func TestSecretsStayInThePipe(t *testing.T) {
	t.Parallel()
	s := startSlow(t, true, direct)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.farPID))
	if err != nil || string(line) != binary+"\x00far-end\x00" {
		t.Errorf("the far end runs as %q, %v", line, err)
	}
	line, err = os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", s.sshPID))
	if err != nil || !strings.HasSuffix(string(line), "\x00node2\x00gdrcp\x00far-end\x00") {
		t.Errorf("ssh runs as %q, %v", line, err)
	}
	for _, pid := range []int{s.farPID, s.sshPID} {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		if err != nil {
			t.Fatal(err)
		}
		for v := range strings.SplitSeq(string(environ), "\x00") {
			if name, value, _ := strings.Cut(v, "="); strings.HasPrefix(name, "GDRCP_") && name != "GDRCP_RSH" && name != "GDRCP_BINARY" {
				t.Errorf("process %d has %s=%s", pid, name, value)
			}
		}
	}
	if err := s.process.Kill(); err != nil {
		t.Fatal(err)
	}
	s.gone(t)
}
