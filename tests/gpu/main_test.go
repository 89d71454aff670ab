package gpu

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/gpu/gputest"
	"gdrcp/internal/trust"
	"gdrcp/tests/launch"

	"golang.org/x/sys/unix"
)

// binary is the program under test. TestMain sets it.
var binary string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	// What is copied is to measure the program, not a disk. In containers there is
	// often no room in memory.
	if os.Getenv("TMPDIR") == "" && freeBytes("/dev/shm") >= 1<<30 {
		os.Setenv("TMPDIR", "/dev/shm")
	}
	dir, err := os.MkdirTemp("", "gdrcp-gpu-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = makeKey(filepath.Join(dir, "key"))
	}
	if err == nil {
		binary, err = launch.Program(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// makeKey makes the key that all that is started here shares.
func makeKey(file string) error {
	key, err := trust.NewKey("test")
	if err == nil {
		err = key.WriteFile(file)
	}
	if err != nil {
		return err
	}
	return os.Setenv("GDRCP_KEY_FILE", file)
}

// freeBytes is the room in the file system of dir, 0 where there is none.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

// machine is what processes find: variables of the environment, and a GPU.
type machine struct {
	env  []string
	name string // of GPU 0
}

// realMachine is this machine and its GPU, or what GDRCP_LIBCUDA makes of it.
// Without a GPU the test is skipped; GDRCP_REQUIRE=gpu makes an error of that.
func realMachine(t testing.TB) *machine {
	t.Helper()
	m := &machine{}
	why, _ := m.findGPU(t)
	switch {
	case why == "":
		return m
	case slices.Contains(strings.Split(os.Getenv("GDRCP_REQUIRE"), ","), "gpu"):
		t.Fatalf("GDRCP_REQUIRE wants a GPU: %s", why)
	}
	t.Skipf("no GPU to test with: %s; `make gpu-test` says how to run this elsewhere", why)
	return nil
}

// fakeMachine has a GPU that is gpu/fakecuda's, which shows nothing of what a
// real one does; only that these tests work.
func fakeMachine(t testing.TB) *machine {
	t.Helper()
	if why, reason := (&machine{}).findGPU(t); reason == "not-built" {
		t.Skip(why + ": build it with CGO_ENABLED=1 and a C compiler")
	}
	library, err := gputest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{env: gputest.Env(library, "late=1")}
	if why, _ := m.findGPU(t); why != "" {
		t.Fatal(why)
	}
	return m
}

// findGPU asks the program for GPU 0, and returns why it cannot be used, also as
// `gdrcp devices --json` calls the reason.
func (m *machine) findGPU(t testing.TB) (why, reason string) {
	t.Helper()
	out, err := m.command("devices", "--json").Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) { // that there is no RDMA device does not matter
		t.Fatal(err)
	}
	for _, e := range events(t, out) {
		switch {
		case e["event"] == "no_gpu":
			why, _ = e["text"].(string)
			reason, _ = e["reason"].(string)
			return why, reason
		case e["event"] == "gpu" && e["index"] == 0.0:
			m.name, _ = e["name"].(string)
			why, _ = e["problem"].(string)
			return why, ""
		}
	}
	return fmt.Sprintf("`gdrcp devices` tells of none: %s", out), ""
}

func (m *machine) command(args ...string) *exec.Cmd {
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), m.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return cmd
}

// run runs the program to its good end, and returns what it wrote to standard
// output.
func (m *machine) run(t testing.TB, args ...string) []byte {
	t.Helper()
	var errs bytes.Buffer
	cmd := m.command(args...)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("gdrcp %q: %v\n%s%s", args, err, errs.Bytes(), out)
	}
	return out
}

// events reads what --json wrote.
func events(t testing.TB, out []byte) (all []map[string]any) {
	t.Helper()
	for line := range bytes.Lines(out) {
		var e map[string]any
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%q is no event: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// copy runs a copy and returns its summary.
func (m *machine) copy(t testing.TB, args ...string) map[string]any {
	t.Helper()
	all := events(t, m.run(t, append([]string{"--transport", "tcp", "--json"}, args...)...))
	summary := all[len(all)-1]
	if summary["event"] != "summary" || summary["verified"] != true {
		t.Fatalf("gdrcp %q told %v", args, summary)
	}
	return summary
}

var listening = regexp.MustCompile(`^gdrcp: serving .* on tcp (\S+)$`)

// serve starts a server of root, which the test's end ends, and returns where
// it is reached. A server that does not end well fails the test.
func (m *machine) serve(t testing.TB, root string) (url string) {
	t.Helper()
	cmd := m.command("serve", "--root", root, "--listen", "127.0.0.1:0", "--transport", "tcp")
	pipe, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	listens, ended := make(chan string, 1), make(chan string, 1)
	go func() {
		var log strings.Builder
		for lines := bufio.NewScanner(pipe); lines.Scan(); {
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				listens <- found[1]
			}
			log.WriteString(lines.Text() + "\n")
		}
		ended <- log.String()
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // one that has ended is found below
		log := <-ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("the server: %v\n%s", err, log)
		}
	})
	select {
	case at := <-listens:
		return "rdma://" + at + "/"
	case log := <-ended:
		ended <- log
		t.Fatalf("the server ended: %s", log)
	case <-time.After(30 * time.Second):
		t.Fatal("the server does not serve")
	}
	return ""
}
