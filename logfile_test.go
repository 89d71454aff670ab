package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// logLine is what every line of a log begins with.
var logLine = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\d+)\] (.*)$`)

// logged reads a log and takes time and process off its lines.
func logged(t *testing.T, name string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		m := logLine.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil || m[1] != fmt.Sprint(os.Getpid()) {
			t.Fatalf("the log has the line %q", line)
		}
		lines = append(lines, m[2])
	}
	return lines
}

// wantLog fails the test unless the lines of a log match the patterns, in order.
func wantLog(t *testing.T, name string, patterns ...string) {
	t.Helper()
	lines := logged(t, name)
	if len(lines) != len(patterns) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(patterns), strings.Join(lines, "\n"))
	}
	for i, p := range patterns {
		if !regexp.MustCompile("^" + p + "$").MatchString(lines[i]) {
			t.Errorf("line %d is %q, want %s", i, lines[i], p)
		}
	}
}

// A log has a line for every entry and for how the copy went, whatever is told
// elsewhere, and copies append to it.
func TestLogFile(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b\nc": "BC", "t/d/": ""})
	log := dir + "/log"
	gdrcp(t, "-q", "-r", "--log-file", log, dir+"/t", s.url("x")).want(t, exitOK)
	first := []string{
		`copy ` + regexp.QuoteMeta(dir) + `/t to ` + regexp.QuoteMeta(s.url("x")),
		`connected to 127\.0\.0\.1:\d+ over tcp \(tcp\), 1 queue pair, 16 slots of 1MiB`, `copied \., 0 bytes`, `copied a, 1 bytes`, `copied "b\\nc", 2 bytes`,
		`copied d, 0 bytes`, `total: 2 files, 2 directories, 3 B .*, verified: root xxh3 [0-9a-f]{64} \(exit code 0\)`,
	}
	wantLog(t, log, first...)
	makeFiles(t, s.root, map[string]string{"y/a/": ""})
	gdrcp(t, "--json", "--log-file="+log, dir+"/t/a", s.url("y/")).want(t, exitPartial)
	gdrcp(t, "--log-file", log, dir+"/none", s.url("z")).want(t, exitError)
	wantLog(t, log, append(first, `copy .*/t/a to rdma://.*/y/`, `connected to .*`, `failed .*"a": is a directory`, `total: 0 files, .*, nothing to verify; 1 failed \(exit code 3\)`, `copy .*/none to .*/z`, `error: .*none.*no such file.* \(exit code 1\)`)...)
}

// A log that cannot be written is told once, and is an error where nothing
// worse is; one that cannot be opened is one before anything is connected.
func TestLogThatCannotBeWritten(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "B"})
	makeFiles(t, s.root, map[string]string{"x/t/a/": ""})
	const full = `write the log file "/dev/full": no space left on device`
	r := gdrcp(t, "-r", "--log-file", "/dev/full", dir+"/t", s.url("y")).want(t, exitError)
	if strings.Count(r.err, full) != 1 || !strings.Contains(r.err, "copied 2 files") {
		t.Errorf("it wrote %q", r.err)
	}
	if got := listFiles(t, s.root+"/y"); len(got) != 2 {
		t.Errorf("copied %v", got)
	}
	r = gdrcp(t, "-r", "--log-file", "/dev/full", dir+"/t", s.url("x")).want(t, exitPartial)
	if strings.Count(r.err, full) != 1 {
		t.Errorf("it wrote %q", r.err)
	}
	r = gdrcp(t, "--log-file", "/dev/full", dir+"/none", s.url("x")).want(t, exitError)
	if strings.Count(r.err, full) != 1 || strings.Count(r.err, "\n") != 1 {
		t.Errorf("it wrote %q", r.err)
	}
	r = gdrcp(t, "--log-file", dir+"/none/log", dir+"/t/a", "rdma://127.0.0.1:9/x").want(t, exitError)
	if !strings.HasPrefix(r.err, "gdrcp: open the log file: ") || strings.Count(r.err, "\n") != 1 {
		t.Errorf("it wrote %q", r.err)
	}
}

// What is kept, deleted, or would be is in the log too.
func TestLogOfWhatIsThere(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/new": "N"})
	makeFiles(t, s.root, map[string]string{"t/a": "A", "t/old": "O"})
	log := dir + "/log"
	args := []string{"-q", "-r", "--ignore-existing", "--delete", "--log-file", log, dir + "/t", s.url("")}
	gdrcp(t, append([]string{"-n"}, args...)...).want(t, exitOK)
	dry := logged(t, log)
	gdrcp(t, args...).want(t, exitOK)
	done := logged(t, log)[len(dry):]
	for _, want := range [][2]string{{"kept a: ", "kept a: "}, {"would copy new, 1 bytes", "copied new, 1 bytes"}, {"would delete old", "deleted old"}} {
		has := func(lines []string, text string) bool {
			return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, text) })
		}
		if !has(dry, want[0]) || !has(done, want[1]) {
			t.Errorf("no lines %q in %q and %q", want, dry, done)
		}
	}
}
