package cli

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// unread returns the writing end of a pipe that nobody reads.
func unread(t *testing.T) *os.File {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	t.Cleanup(func() { w.Close() })
	return w
}

// codeIn runs a process to its end, with a time limit, and returns its exit code, or -1
// if a signal ended it.
func codeIn(t *testing.T, cmd *exec.Cmd) int {
	t.Helper()
	timer := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// A server continues after the reader of its log has left, and its exit code reports
// the lost lines.
func TestServerOutlivesWhoReadsItsLog(t *testing.T) {
	cmd, _ := process(t, "serve", "--root", t.TempDir(), "--listen", "127.0.0.1:0")
	log, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = theirs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	theirs.Close()
	line := make([]byte, 4096)
	n, err := log.Read(line)
	said := servingLine.FindSubmatch(line[:n])
	if err != nil || said == nil {
		t.Fatalf("%q, %v", line[:n], err)
	}
	log.Close()
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	for i := range 3 {
		gdrcp(t, dir+"/a", fmt.Sprintf("rdma://%s/%d", said[1], i)).want(t, exitOK)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if cmd.Wait(); cmd.ProcessState.ExitCode() != exitError {
		t.Errorf("it ended with %v", cmd.ProcessState)
	}
}

// A copy continues after the reader of its output has left, and reports at the end, as
// far as possible, that output was lost.
func TestCopyOutlivesItsReader(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "B", "t/c": "C"})
	const lost = "gdrcp: write standard output: broken pipe\n"
	for name, c := range map[string]struct {
		args     []string
		out, err bool // nobody reads
		wantErr  string
	}{
		"stdout": {args: []string{"--json", "-v"}, out: true, wantErr: lost},
		"stderr": {args: []string{"-v"}, err: true},
		"both":   {args: []string{"--json", "-v"}, out: true, err: true},
	} {
		cmd, errs := process(t, append(c.args, "-r", dir+"/t", s.url(name))...)
		if c.out {
			cmd.Stdout = unread(t)
		}
		if c.err {
			cmd.Stderr = unread(t)
		}
		if code := codeIn(t, cmd); code != exitError || errs.String() != c.wantErr {
			t.Errorf("%s: it ended with %v, and wrote %q", name, cmd.ProcessState, errs)
		}
		if got := listFiles(t, s.root+"/"+name); len(got) != 3 {
			t.Errorf("%s: the copy has %v", name, got)
		}
	}
}

// A command that only prints ends without a message when its reader leaves, even if
// there is more to print.
func TestPrintingEndsWithItsReader(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	files := make(map[string]string)
	for i := range 200 {
		files["t/"+strconv.Itoa(i)] = strings.Repeat("x", i)
	}
	makeFiles(t, dir, files)
	gdrcp(t, "manifest", "create", "-o", dir+"/m", dir+"/t").want(t, exitOK)
	gdrcp(t, "manifest", "create", "-o", dir+"/other", t.TempDir()).want(t, exitOK)
	whole, err := os.ReadFile(dir + "/m")
	if err != nil {
		t.Fatal(err)
	}
	endless := func() io.Reader {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { r.Close(); w.Close() })
		if _, err := w.Write(whole[:len(whole)/2]); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, c := range []struct {
		args    []string
		endless bool
	}{
		{[]string{"--help"}, false},
		{[]string{"--version"}, false},
		{[]string{"completion", "bash"}, false},
		{[]string{"manifest", "show", dir + "/m"}, false},
		{[]string{"manifest", "show", "-"}, true},
		{[]string{"manifest", "diff", dir + "/m", dir + "/other"}, false},
		{[]string{"manifest", "diff", "--json", "-", dir + "/other"}, true},
		{[]string{"manifest", "create", dir + "/t"}, false},
		{[]string{"bench", "--json", "--bytes", "1M", "--rounds", "10000000", "rdma://" + s.addr}, false},
	} {
		cmd, errs := process(t, c.args...)
		cmd.Stdout = unread(t)
		if c.endless {
			cmd.Stdin = endless()
		}
		if code := codeIn(t, cmd); code != exitError || errs.String() != "" {
			t.Errorf("gdrcp %q ended with %v, and wrote %q", c.args, cmd.ProcessState, errs)
		}
	}
	cmd, errs := process(t, "manifest", "verify", dir+"/m", t.TempDir())
	cmd.Stdout = unread(t)
	if code := codeIn(t, cmd); code != exitIntegrity || !strings.Contains(errs.String(), "NOT as the manifest says") {
		t.Errorf("a verification ended with %v, and wrote %q", cmd.ProcessState, errs)
	}
}

// Programs that gdrcp starts die by SIGPIPE as usual.
func TestChildrenHeedSIGPIPE(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	cmd, errs := process(t, "-e", `sh -c 'grep SigIgn /proc/self/status >"$0"; exit 255' `+dir+"/ignored", dir+"/a", "host:b")
	if code := codeIn(t, cmd); code != exitError {
		t.Fatalf("%v: %s", cmd.ProcessState, errs)
	}
	text, err := os.ReadFile(dir + "/ignored")
	if err != nil {
		t.Fatal(err)
	}
	mask, err := strconv.ParseUint(strings.TrimSpace(strings.TrimPrefix(string(text), "SigIgn:")), 16, 64)
	if err != nil || mask>>(syscall.SIGPIPE-1)&1 != 0 {
		t.Errorf("the signals that it ignores: %s, %v", text, err)
	}
}

// Closed standard input and output do not act like /dev/null. If /dev/null was opened,
// in any way, it is used as usual.
func TestClosedDescriptors(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	makeFiles(t, s.root, map[string]string{"a": "A"})
	gdrcp(t, "manifest", "create", "-o", dir+"/m", dir+"/t").want(t, exitOK)
	run := func(redirect string, args ...string) (int, string) {
		t.Helper()
		cmd, errs := process(t, args...)
		cmd.Args = append([]string{"sh", "-c", `exec "$0" "$@" ` + redirect, cmd.Path}, cmd.Args[1:]...)
		cmd.Path = "/bin/sh"
		return codeIn(t, cmd), errs.String()
	}
	_, doubt := run("0<>/dev/null", "-q", "-", s.url("doubt"))
	certain := doubt == "" // see package inherited, which tests it
	const noIn, noOut = "open standard input: it is closed", "open standard output: it is closed"
	const lost = "write standard output: it is closed\n$"
	for _, c := range []struct {
		redirect string
		args     []string
		code     int
		says     string
		unsure   bool // detected without C code, too
	}{
		{"<&-", []string{"-", s.url("new")}, exitError, noIn, true},
		{"<&-", []string{"-", "host:new", "-e", "false"}, exitError, noIn, true},
		{">&-", []string{s.url("a"), "-"}, exitError, noOut, true},
		{"</dev/null", []string{"-", s.url("empty")}, exitOK, "", true},
		{">/dev/null", []string{s.url("a"), "-"}, exitOK, "", true},
		{"1<>/dev/null", []string{s.url("a"), "-"}, exitOK, "", false},
		{"<&-", []string{"-r", "--files-from", "-", dir + "/t", s.url("new")}, exitError, "read standard input: it is closed", false},
		{"<&-", []string{"manifest", "show", "-"}, exitError, "read standard input: it is closed", false},
		{">&-", []string{"manifest", "show", dir + "/m"}, exitError, lost, false},
		{">&-", []string{"manifest", "create", dir + "/t"}, exitError, lost, false},
		{">&-", []string{"--version"}, exitError, lost, false},
		{">&-", []string{"completion", "fish"}, exitError, lost, false},
		{">&-", []string{"--json", "-r", dir + "/t", s.url("events")}, exitError, lost, false},
		{"1<>/dev/null", []string{"--json", "-r", dir + "/t", s.url("null")}, exitOK, "", false},
		{">&- <&- 2>&-", []string{"-r", dir + "/t", s.url("none")}, exitOK, "", true},
	} {
		if !certain && !c.unsure {
			continue
		}
		code, errs := run(c.redirect, c.args...)
		if code != c.code || !regexp.MustCompile(c.says).MatchString(errs) {
			t.Errorf("gdrcp %q %s: exit code %d, want %d; it wrote %q, want %q", c.args, c.redirect, code, c.code, errs, c.says)
		}
	}
	got := listFiles(t, s.root)
	if _, there := got["new"]; there || got["events/a"] != "A" && certain || got["none/a"] != "A" {
		t.Errorf("the copies made %v", got)
	}
	if content, there := got["empty"]; !there || content != "" {
		t.Errorf("/dev/null became %q", content)
	}
}
