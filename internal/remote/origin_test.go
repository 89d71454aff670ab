package remote

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
)

// The test binary is also the far end: it is started as one with farEndEnv set
// to the protocol version that it must speak.
const farEndEnv = "REMOTE_TEST_FAR_END"

// scriptEnv names the script that started the test binary, if one did.
const scriptEnv = "REMOTE_TEST_SCRIPT"

func TestMain(m *testing.M) {
	if os.Getenv(farEndEnv) != "" {
		os.Exit(testFarEnd(os.Args[1:]))
	}
	if err := rdmatest.EndAtOnce(); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

type stdio struct {
	io.Reader
	io.WriteCloser
}

// testFarEnd offers the file it was started from as its home directory.
func testFarEnd(args []string) int {
	if len(args) > 0 && args[0] == "--version" {
		return 0
	}
	protocol, err := strconv.Atoi(os.Getenv(farEndEnv))
	if err != nil {
		return 1
	}
	_, c, err := Answer(context.Background(), stdio{os.Stdin, os.Stdout}, Banner{Protocol: protocol, Version: "test"})
	if err != nil {
		return 1
	}
	wish, err := c.Asked()
	if err != nil {
		return 1
	}
	exe, _ := os.Executable()
	exe = cmp.Or(os.Getenv(scriptEnv), exe)
	// The origin may close the pipe after it has read the offer, before Offer returns.
	_ = c.Offer(&Offer{Home: exe, Expanded: make([][]string, len(wish.Serve.Sources))})
	_ = c.Hear(context.Background())
	return 0
}

// testOrigin starts far ends in a shell on this host, in place of ssh.
func testOrigin(t *testing.T, remotePath string) (*Origin, *bytes.Buffer) {
	t.Helper()
	stderr := &bytes.Buffer{}
	return &Origin{
		Rsh: []string{"sh", "-c", `shift; exec sh -c "$*"`, "rsh"}, Host: "here",
		RemotePath: remotePath, Protocol: 5, Version: "mine", Stderr: stderr,
	}, stderr
}

func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return exe
}

// smallBinary is a small script that runs the test binary, for tests that copy
// and check it often.
func smallBinary(t *testing.T) string {
	t.Helper()
	return filepath.Join(writeProgram(t, "export "+scriptEnv+`="$0"; exec '`+self(t)+`' "$@"`+"\n"), "gdrcp")
}

func TestConnect(t *testing.T) {
	o, stderr := testOrigin(t, "cd / && "+farEndEnv+"=5 "+self(t))
	link, err := o.Connect(t.Context())
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	offer, err := link.Talk.AskServe(t.Context(), &Serve{Key: newKey(t)})
	if err != nil || offer.Home != self(t) {
		t.Fatalf("%+v, %v", offer, err)
	}
	if err := link.Failure(); err != nil {
		t.Errorf("a link that stands: %v", err)
	}
	start := time.Now()
	if err := link.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > leaveTimeout || link.process.code() != 0 {
		t.Errorf("the far end took %s to end with code %d: %s", took, link.process.code(), stderr)
	}
}

// TestFarEndDies: the origin learns that it died, and how.
func TestFarEndDies(t *testing.T) {
	o, _ := testOrigin(t, farEndEnv+"=5 "+self(t))
	link, err := o.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer link.Close()
	if _, err := link.Talk.AskServe(t.Context(), &Serve{Key: newKey(t)}); err != nil {
		t.Fatal(err)
	}
	if err := link.process.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-link.Mux.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("nobody tells that the far end is gone")
	}
	if err := link.Failure(); !errors.Is(err, ErrPipe) || !strings.Contains(err.Error(), "killed") {
		t.Errorf("%v", err)
	}
}

func TestWhyThereIsNoFarEnd(t *testing.T) {
	for _, c := range []struct {
		name, path string
		is         error
		says       string
	}{
		{"missing", "no-such-program", ErrMissing, "no-such-program"},
		{"not a program", "/etc/passwd", ErrMissing, "cannot be started"},
		{"another version", farEndEnv + "=4 " + self(t), ErrVersion, "test on here, mine here"},
		{"one that is held to nothing", "printf 'gdrcp-far-end: protocol 5, version old\\n'; exec cat >/dev/null;", ErrVersion, "old on here is too old to be limited to one copy, mine here"},
		{"a later set-up", "printf 'gdrcp-far-end: protocol 5 set-up 99, version new\\n'; exec cat >/dev/null;", ErrVersion, "new on here, mine here (set-up 99, here 4)"},
		{"no far end", "exit 2;", ErrVersion, FarEndCommand},
		{"no login", "exit 255;", nil, "cannot reach or log in"},
		{"ends", "exit 9;", nil, "exit status 9"},
		{"a shell that starts nothing", `echo; printf 'This account is \033[1mcurrently not available.\n'; exit 1;`, nil, `and said "This account is [1mcurrently not available." (sh: exit status 1)`},
		{"noise", "echo Welcome;" + farEndEnv + "=5 " + self(t), nil, `"Welcome"`},
		{"endless noise", "exec yes;", nil, `"y"`},
	} {
		t.Run(c.name, func(t *testing.T) {
			o, _ := testOrigin(t, c.path)
			_, err := o.Connect(t.Context())
			if err == nil || c.is != nil && !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v; want %v, saying %s", err, c.is, c.says)
			}
		})
	}
	o, _ := testOrigin(t, "/no/such/gdrcp")
	if _, err := o.Connect(t.Context()); !errors.Is(err, ErrMissing) || strings.Contains(err.Error(), "PATH") {
		t.Errorf("no program at a path: %v", err)
	}
	o, _ = testOrigin(t, "gdrcp")
	o.Rsh = []string{"/no/such/ssh"}
	if _, err := o.Connect(t.Context()); err == nil || !strings.Contains(err.Error(), "/no/such/ssh") {
		t.Errorf("no remote shell command: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	o, _ = testOrigin(t, "exec sleep 60;")
	if _, err := o.Connect(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a host that says nothing: %v", err)
	}
}

// cacheOf creates a cache directory for the shell that stands in for another
// host, with the given PATH.
func cacheOf(t *testing.T, path string) string {
	t.Helper()
	home := t.TempDir()
	if err := os.Chmod(home, 0o755); err != nil { // whatever the umask
		t.Fatal(err)
	}
	cache := filepath.Join(home, "up", "cache")
	t.Setenv("HOME", home)
	t.Setenv("XDG_CACHE_HOME", cache)
	t.Setenv("PATH", path)
	t.Setenv(farEndEnv, "5") // for programs that are started there
	return filepath.Join(cache, "gdrcp")
}

func uname(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("uname", "-sm").Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestBootstrap(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "broken")
	if err := os.WriteFile(broken, []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	machine, small := uname(t), smallBinary(t)
	binaries := []Binary{{Path: "/no/such/file", Machine: machine}, {Path: small, Machine: "Other machine"}, {Path: broken, Machine: machine}, {Path: small, Machine: machine}}
	for _, sums := range []string{"sha256sum", "cksum"} {
		t.Run(sums, func(t *testing.T) {
			path := os.Getenv("PATH")
			if sums == "cksum" {
				path = toolsWithout(t, "sha256sum")
			}
			cache := cacheOf(t, path)
			o, stderr := testOrigin(t, "")
			o.Rsh[0] = "/bin/sh"
			told := 0
			tell := func(string) { told++ }
			bootstrap := func() {
				t.Helper()
				link, err := o.Bootstrap(t.Context(), binaries, tell)
				if err != nil {
					t.Fatalf("%v: %s", err, stderr)
				}
				defer link.Close()
				offer, err := link.Talk.AskServe(t.Context(), &Serve{Key: newKey(t)})
				if err != nil || filepath.Dir(offer.Home) != cache {
					t.Fatalf("it runs from %+v, %v; want %s", offer, err, cache)
				}
			}
			bootstrap()
			if told != 2 { // the broken one and the good one
				t.Errorf("%d copies", told)
			}
			bootstrap()
			if told != 2 {
				t.Error("what was there already was copied again")
			}
			file := onlyFile(t, cache)
			if err := os.WriteFile(file, []byte("#!/bin/sh\necho damaged\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			bootstrap()
			if told != 4 {
				t.Errorf("another content was used: %d copies", told)
			}
			if onlyFile(t, cache) != file {
				t.Error("the cache has another file now")
			}
		})
	}
}

// Binaries that have not been used for long are removed when one is stored, and
// so are the leftovers of killed copies.
func TestBootstrapRemovesOldVersions(t *testing.T) {
	cache := cacheOf(t, os.Getenv("PATH"))
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	long := time.Now().AddDate(0, 0, -40)
	for name, used := range map[string]time.Time{"gdrcp-old": long, ".gdrcp-7": long, "gdrcp-new": time.Now(), ".gdrcp-8": time.Now()} {
		file := filepath.Join(cache, name)
		if err := errors.Join(os.WriteFile(file, nil, 0o700), os.Chtimes(file, used, used)); err != nil {
			t.Fatal(err)
		}
	}
	o, stderr := testOrigin(t, "")
	link, err := o.Bootstrap(t.Context(), []Binary{{Path: self(t), Machine: uname(t)}}, func(string) {})
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	defer link.Close()
	files, err := os.ReadDir(cache)
	if err != nil || len(files) != 3 || files[0].Name() != ".gdrcp-8" {
		t.Errorf("%v, %v", files, err)
	}
}

// An interrupted copy leaves nothing behind.
func TestBootstrapThatEnds(t *testing.T) {
	cache := cacheOf(t, os.Getenv("PATH"))
	for name, end := range map[string]func(p *os.Process, stdout io.Closer) error{
		"SIGHUP":         func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGHUP) },
		"SIGTERM":        func(p *os.Process, _ io.Closer) error { return p.Signal(syscall.SIGTERM) },
		"the end of ssh": func(_ *os.Process, stdout io.Closer) error { return stdout.Close() },
	} {
		cmd := exec.Command("sh", "-c", scriptStore, "sh", "0", "0-0")
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		stdout, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		temp := filepath.Join(cache, ".gdrcp-"+strconv.Itoa(cmd.Process.Pid))
		for end := time.Now().Add(10 * time.Second); ; time.Sleep(5 * time.Millisecond) {
			if _, err := os.Stat(temp); err == nil {
				break
			}
			if time.Now().After(end) {
				t.Fatal("nothing is written")
			}
		}
		if err := errors.Join(end(cmd.Process, stdout), stdin.Close()); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it fails
		if files, err := os.ReadDir(cache); err != nil || len(files) > 0 {
			t.Errorf("%s: there is %v, %v", name, files, err)
			_ = os.Remove(temp)
		}
	}
}

// toolsWithout returns a PATH with all the tools that the scripts need except one.
func toolsWithout(t *testing.T, left string) string {
	t.Helper()
	dir := t.TempDir()
	for _, tool := range []string{"sh", "uname", "cat", "mkdir", "chmod", "mv", "rm", "cksum", "sha256sum", "ls", "id", "touch", "find"} {
		file, err := exec.LookPath(tool)
		if err != nil {
			t.Fatal(err)
		}
		if tool == left {
			continue
		}
		if err := os.Symlink(file, filepath.Join(dir, tool)); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func onlyFile(t *testing.T, dir string) string {
	t.Helper()
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 1 {
		t.Fatalf("in %s: %v, %v", dir, files, err)
	}
	return filepath.Join(dir, files[0].Name())
}

func TestBootstrapThatCannot(t *testing.T) {
	cacheOf(t, os.Getenv("PATH"))
	o, _ := testOrigin(t, "")
	silent := func(string) {}
	if _, err := o.Bootstrap(t.Context(), []Binary{{Path: self(t), Machine: "Other machine"}}, silent); err == nil || !strings.Contains(err.Error(), "there is no gdrcp for such machines") {
		t.Errorf("another machine: %v", err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Setenv("XDG_CACHE_HOME", file)
	if _, err := o.Bootstrap(t.Context(), []Binary{{Path: self(t), Machine: uname(t)}}, silent); err == nil || !strings.Contains(err.Error(), "cannot be written") {
		t.Errorf("no cache directory: %v", err)
	}
}

// TestFingerprints compares with the tools that the scripts use.
func TestFingerprints(t *testing.T) {
	prints, _, err := fingerprints([]Binary{{Path: self(t)}})
	if err != nil || len(prints) != 1 {
		t.Fatalf("%v, %v", prints, err)
	}
	sha, err := exec.Command("sha256sum", self(t)).Output()
	if err != nil || !strings.HasPrefix(string(sha), prints[0].sha256+" ") {
		t.Errorf("sha256sum says %s, %v; here it is %s", sha, err, prints[0].sha256)
	}
	crc, err := exec.Command("cksum", self(t)).Output()
	if words := strings.Fields(string(crc)); err != nil || len(words) < 2 || words[0]+"-"+words[1] != prints[0].cksum {
		t.Errorf("cksum says %s, %v; here it is %s", crc, err, prints[0].cksum)
	}
}

// TestBinariesOfOthers: in a directory like /tmp another user can put a file
// with the name of a binary beside this program. It must not be copied, because
// it would run as this user on another host.
func TestBinariesOfOthers(t *testing.T) {
	program := filepath.Join(t.TempDir(), "gdrcp")
	beside := program + "-static"
	make := func(path string, mode os.FileMode) error {
		return errors.Join(os.WriteFile(path, []byte("a program"), 0o600), os.Chmod(path, mode))
	}
	for name, c := range map[string]struct {
		make   func() error
		copied bool
	}{
		"as it is installed":         {func() error { return make(beside, 0o755) }, true},
		"anybody writes":             {func() error { return make(beside, 0o757) }, false},
		"a group writes":             {func() error { return make(beside, 0o775) }, false},
		"the same group writes both": {func() error { return errors.Join(make(beside, 0o775), os.Chmod(program, 0o775)) }, true},
		"a pipe":                     {func() error { return syscall.Mkfifo(beside, 0o755) }, false},
		"another user's": {func() error {
			if os.Getuid() != 0 {
				return os.Mkdir(beside, 0o755) // not a regular file either
			}
			return errors.Join(make(beside, 0o755), os.Chown(beside, 65534, 65534))
		}, false},
	} {
		if err := errors.Join(make(program, 0o755), os.RemoveAll(beside), c.make()); err != nil {
			t.Fatal(err)
		}
		prints, passedOver, err := fingerprints([]Binary{{Path: program}, {Path: beside, Beside: program}})
		if err != nil || (len(prints) == 2) != c.copied || (passedOver == "") != c.copied {
			t.Errorf("%s: %d binaries without %q, %v", name, len(prints), passedOver, err)
		}
	}
}
