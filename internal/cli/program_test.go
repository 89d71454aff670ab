package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"

	"golang.org/x/sys/unix"
)

// beMain makes the test binary gdrcp itself.
const beMain = "GDRCP_TEST_BE_MAIN"

func TestMain(m *testing.M) {
	if addresses := os.Getenv(beOfferer); addresses != "" {
		os.Exit(offerer(addresses))
	}
	if how := os.Getenv(beLiar); how != "" {
		os.Exit(liar(how))
	}
	if home := os.Getenv(beHostile); home != "" {
		os.Exit(hostileSource(home))
	}
	if how := os.Getenv(beFalse); how != "" {
		os.Exit(falseAuditor(how))
	}
	if os.Getenv(beMain) != "" {
		os.Exit(Main(""))
	}
	os.Exit(withKey(m.Run))
}

// withKey runs tests with a key in the environment, which their child processes share.
func withKey(run func() int) int {
	dir, err := os.MkdirTemp("", "gdrcp-key-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	k, err := trust.NewKey("test")
	if err == nil {
		err = k.WriteFile(dir + "/key")
	}
	if err == nil {
		err = errors.Join(os.Setenv(keyFileVariable, dir+"/key"), rdmatest.EndAtOnce())
	}
	if err != nil {
		panic(err)
	}
	return run()
}

// process returns a gdrcp in its own process.
func process(t *testing.T, args ...string) (cmd *exec.Cmd, errs *buffer) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	errs = &buffer{}
	cmd = exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), beMain+"=1")
	cmd.Stderr = errs
	t.Cleanup(func() {
		if cmd.ProcessState == nil && cmd.Process != nil {
			cmd.Process.Kill()
			cmd.Wait()
		}
	})
	return cmd, errs
}

// A server ends cleanly on SIGTERM and on ^C, even while a client is connected.
func TestServerStopsOnSignals(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		cmd, errs := process(t, "serve", "--root", t.TempDir(), "--listen", "127.0.0.1:0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		addr := waitFor(t, errs, servingLine)[1]
		dir := t.TempDir()
		makeFiles(t, dir, map[string]string{"a": "A"})
		gdrcp(t, dir+"/a", "rdma://"+addr+"/").want(t, exitOK)
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v: %v\n%s", sig, err, errs)
		}
	}
}

// Keys are in memory, so no core dump is written unless the user asks for one.
func TestNoCoreDumps(t *testing.T) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max == 0 {
		t.Skip("no process may dump core here")
	}
	for _, traceback := range []string{"single", "crash"} {
		cmd, errs := process(t, "serve", "--root", t.TempDir(), "--listen", "127.0.0.1:0")
		cmd.Args = append([]string{"sh", "-c", `ulimit -S -c "$(ulimit -H -c)"; exec "$0" "$@"`}, append([]string{cmd.Path}, cmd.Args[1:]...)...)
		cmd.Path = "/bin/sh"
		cmd.Env = append(cmd.Env, "GOTRACEBACK="+traceback)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		waitFor(t, errs, servingLine)
		limits, err := os.ReadFile("/proc/" + strconv.Itoa(cmd.Process.Pid) + "/limits")
		if none := regexp.MustCompile(`Max core file size +0 `).Match(limits); err != nil || none != (traceback == "single") {
			t.Errorf("with GOTRACEBACK=%s: %s, %v", traceback, limits, err)
		}
	}
}

// A server outlives its terminal, with or without nohup: SIGHUP makes it reload its
// keys.
func TestHangup(t *testing.T) {
	for _, nohup := range []bool{false, true} {
		if nohup && !signal.Ignored(syscall.SIGHUP) {
			signal.Ignore(syscall.SIGHUP) // the process inherits it
			defer signal.Reset(syscall.SIGHUP)
		}
		c := newAccess(t)
		c.add(t, "old")
		cmd, errs := process(t, "serve", "--access-file", c.file, "--listen", "127.0.0.1:0")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		url := "rdma://" + waitFor(t, errs, servingLine)[1] + "/name"
		c.add(t, "new")
		gdrcp(t, "--key-file", c.key("new"), url, t.TempDir()).want(t, exitError)
		if err := cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		waitFor(t, errs, regexp.MustCompile(`the keys were read anew: 2 keys of .*; 0 sessions ended\n`))
		gdrcp(t, "--key-file", c.key("new"), url, t.TempDir()).want(t, exitOK)
		if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v\n%s", err, errs)
		}
	}
}

// A copy ends when its terminal goes away, unless it runs under nohup.
func TestHangupOfACopy(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here: the copy would inherit that")
	}
	s := startServer(t, "--bwlimit", "1M")
	makeFiles(t, s.root, map[string]string{"a": strings.Repeat("x", 64<<20)})
	client, errs := process(t, "--transport", "tcp", "-v", s.url("a"), t.TempDir())
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, errs, regexp.MustCompile(`queue pair`))
	if err := client.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	client.Wait()
	if code := client.ProcessState.ExitCode(); code != exitInterrupted || !strings.HasSuffix(errs.String(), "gdrcp: interrupted\n") {
		t.Errorf("exit code %d, and it wrote %q", code, errs)
	}
}

// An interrupted copy reports that, has its own exit code, and leaves nothing under the
// final name, whatever the peer does. The same command resumes it.
func TestInterruptedCopy(t *testing.T) {
	root, dir := t.TempDir(), t.TempDir()
	makeFiles(t, dir, map[string]string{"huge": strings.Repeat("0123456789abcdef", 16<<20)})
	server, serverErrs := process(t, "serve", "--root", root, "--listen", "127.0.0.1:0")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	url := "rdma://" + waitFor(t, serverErrs, servingLine)[1] + "/huge"
	// It is slow enough to be in progress when both receive their signals.
	client, errs := process(t, "--transport", "tcp", "--bwlimit", "4M", "-v", dir+"/huge", url)
	if err := client.Start(); err != nil {
		t.Fatal(err)
	}
	waitFor(t, errs, regexp.MustCompile(`queue pair`))
	send := func(cmd *exec.Cmd, sig os.Signal) {
		t.Helper()
		if err := cmd.Process.Signal(sig); err != nil {
			t.Fatal(err)
		}
	}
	send(server, syscall.SIGSTOP)
	send(client, os.Interrupt)
	client.Wait()
	send(server, syscall.SIGCONT)
	wants := regexp.MustCompile(`gdrcp: interrupted\n(hint: run the same command again: .*\n)?$`)
	if code := client.ProcessState.ExitCode(); code != exitInterrupted || !wants.MatchString(errs.String()) {
		t.Errorf("exit code %d, and it wrote %q", code, errs)
	}
	waitFor(t, serverErrs, regexp.MustCompile(`: push "/huge": .+\n`))
	for name := range listFiles(t, root) {
		if !strings.HasPrefix(name, ".gdrcp-") {
			t.Errorf("%q is left", name)
		}
	}
	gdrcp(t, "--transport", "tcp", "--no-resume", dir+"/huge", url).want(t, exitOK)
	if got := listFiles(t, root); len(got) != 1 {
		t.Errorf("%d files are left", len(got))
	}
	send(server, syscall.SIGTERM)
	if err := server.Wait(); err != nil {
		t.Errorf("the server: %v\n%s", err, serverErrs)
	}
}

// A process has the program's standard output and exit code.
func TestProcess(t *testing.T) {
	cmd, errs := process(t, "--version")
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Run(); err != nil || !strings.HasPrefix(out.String(), "gdrcp ") {
		t.Errorf("%v: %q and %q", err, out.String(), errs)
	}
	cmd, errs = process(t, "--nonsense")
	if cmd.Run(); cmd.ProcessState.ExitCode() != exitUsage {
		t.Errorf("exit code %d: %s", cmd.ProcessState.ExitCode(), errs)
	}
}

// --json is detected even if the options cannot be parsed.
func TestAsksJSON(t *testing.T) {
	for line, want := range map[string]bool{
		"--json": true, "-json a": true, "a --json=true": true, "--json=1": true, "--json=false": false, "--json=x": false,
		"-- --json": false, "a": false, "--jsonx": false,
	} {
		if got := asksJSON(strings.Fields(line)); got != want {
			t.Errorf("%s: %v", line, got)
		}
	}
}
