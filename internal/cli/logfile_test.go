package cli

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gdrcp/chunker/dest"
)

// logLine matches the beginning of each line of a log.
var logLine = regexp.MustCompile(`^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d \[(\d+)\] (.*)$`)

// logged reads a log and strips time and process from its lines.
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

// A log has a line for every entry and for the result of the copy, whatever else is
// printed. Copies append to it.
func TestLogFile(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b\nc": "BC", "t/d/": ""})
	log := dir + "/log"
	gdrcp(t, "-q", "-r", "--log-file", log, dir+"/t", s.url("x")).want(t, exitOK)
	here, there := regexp.QuoteMeta(dir)+"/t", regexp.QuoteMeta(s.url("x"))
	first := []string{
		`copy ` + here + ` to ` + there,
		`connected to 127\.0\.0\.1:\d+ over tcp \(tcp\), 1 queue pair, 16 slots of 1MiB`, `copied ` + here + ` to ` + there + `, 0 bytes`,
		`copied ` + here + `/a to ` + there + `/a, 1 bytes`, `copied "` + here + `/b\\nc" to "` + there + `/b\\nc", 2 bytes`,
		`copied ` + here + `/d to ` + there + `/d, 0 bytes`, `total: 2 files, 2 directories, 3 B .*, verified: root xxh3 [0-9a-f]{64} \(exit code 0\)`,
	}
	wantLog(t, log, first...)
	makeFiles(t, s.root, map[string]string{"y/a/": ""})
	gdrcp(t, "--json", "--log-file="+log, dir+"/t/a", s.url("y/")).want(t, exitPartial)
	gdrcp(t, "--log-file", log, dir+"/none", s.url("z")).want(t, exitError)
	wantLog(t, log, append(first, `copy .*/t/a to rdma://.*/y/`, `connected to .*`, `failed .*/t/a to rdma://.*/y/a: .*"a": is a directory`, `total: 0 files, .*, nothing to verify; 1 failed \(exit code 3\)`, `copy .*/none to .*/z`, `error: .*none.*no such file.* \(exit code 1\)`)...)
}

// An error of writing the log is reported once, and fails the copy if no other error is
// worse. A log that cannot be opened fails the copy before it connects.
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

// The log also lists what was kept or deleted, or would be.
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
	here, there := dir+"/t", s.url("t")
	for _, want := range [][2]string{
		{"kept " + there + "/a: ", "kept " + there + "/a: "}, {"would delete " + there + "/old", "deleted " + there + "/old"},
		{"would copy " + here + "/new to " + there + "/new, 1 bytes", "copied " + here + "/new to " + there + "/new, 1 bytes"},
	} {
		has := func(lines []string, text string) bool {
			return slices.ContainsFunc(lines, func(line string) bool { return strings.HasPrefix(line, text) })
		}
		if !has(dry, want[0]) || !has(done, want[1]) {
			t.Errorf("no lines %q in %q and %q", want, dry, done)
		}
	}
}

// The log also lists what a copy left undone: a tree that did not appear, and entries
// that should have been deleted.
func TestLogOfWhatIsUndone(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "X"})
	makeFiles(t, s.root, map[string]string{"d/a": "A", "d/old": "O"})
	copyWith := func(options, dst string) (lines []string) {
		log := t.TempDir() + "/log"
		gdrcp(t, append(strings.Fields(options), "-q", "-r", "--log-file", log, "--manifest", dir+"/m", dir+"/t", s.url(dst))...).want(t, exitIntegrity)
		return logged(t, log)
	}
	gdrcp(t, "manifest", "create", "-q", "-o", dir+"/m", dir+"/t").want(t, exitOK)
	makeFiles(t, dir, map[string]string{"t/a": "B"})
	lines := copyWith("--atomic-dir", "new")
	if last := lines[len(lines)-1]; !strings.HasPrefix(last, "total: "+withheldClaim+": 1 file, ") || !strings.HasPrefix(lines[len(lines)-2], "the tree is not in place") {
		t.Errorf("of a tree that did not appear:\n%s", strings.Join(lines, "\n"))
	}
	lines = copyWith("--delete", "d")
	if !strings.HasPrefix(lines[len(lines)-2], "nothing is deleted: ") {
		t.Errorf("where nothing was deleted:\n%s", strings.Join(lines, "\n"))
	}
}

// Every line about an entry has its full paths at the source and the destination, for
// each direction and each form of the operands.
func TestLogNamesFullPaths(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/t": "T", "u/b": "B", "list": "a\n", "into/": ""})
	makeFiles(t, s.root, map[string]string{"t/a": "A", "t/t": "T", "u/b": "B", "in/": ""})
	url := func(path string) string { return "rdma://" + s.addr + path }
	for _, c := range []struct {
		args string
		want string // a line about an entry
	}{
		{"-r t URL/new", dir + "/t/t to " + url("/new/t") + ", 1"},
		{"-r t URL/in", dir + "/t/t to " + url("/in/t/t") + ", 1"},
		{"-r t/. URL/in", dir + "/t/a to " + url("/in/a") + ", 1"},
		{"-r ../" + dir[strings.LastIndexByte(dir, '/')+1:] + "/t URL/in/", dir + "/t to " + url("/in/t") + ", 0"},
		{"t/a URL/in", dir + "/t/a to " + url("/in/a") + ", 1"},
		{"t/a URL/in/c", dir + "/t/a to " + url("/in/c") + ", 1"},
		{"-r t u/b URL/in", dir + "/u/b to " + url("/in/b") + ", 1"},
		{"-r t u/b URL/in", dir + "/t/t to " + url("/in/t/t") + ", 1"},
		{"--files-from list t URL/in", dir + "/t/a to " + url("/in/a") + ", 1"},
		{"-r URL/t new", url("/t/t") + " to " + dir + "/new/t, 1"},
		{"-r URL/t into", url("/t/t") + " to " + dir + "/into/t/t, 1"},
		{"URL/t/t into", url("/t/t") + " to " + dir + "/into/t, 1"},
		{"URL/t/t file", url("/t/t") + " to " + dir + "/file, 1"},
		{"-r URL/t URL/u/b into", url("/t/a") + " to " + dir + "/into/t/a, 1"},
		{"URL/t/? into", url("/t/a") + " to " + dir + "/into/a, 1"},
		{"--files-from list URL/t into", url("/t/a") + " to " + dir + "/into/a, 1"},
		{"-r t into", dir + "/t/a to " + dir + "/into/t/a, 1"},
		{"URL/t/t -", url("/t/t") + " to -, 1"},
		{"h:" + dir + "/t/a into", "h:" + dir + "/t/a to " + dir + "/into/a, 1"},
		{"-r t h:" + dir + "/into", dir + "/t/a to h:" + dir + "/into/t/a, 1"},
	} {
		for _, made := range []string{s.root + "/new", s.root + "/in", dir + "/new", dir + "/into", dir + "/file"} {
			if err := os.RemoveAll(made); err != nil {
				t.Fatal(err)
			}
		}
		makeFiles(t, "/", map[string]string{dir + "/into/": "", s.root + "/in/": ""})
		log := t.TempDir() + "/log"
		args := strings.Fields(strings.ReplaceAll(c.args, "URL", "rdma://"+s.addr))
		p, _, errs := newProgram()
		if strings.HasSuffix(c.args, " -") {
			out, err := os.Create(t.TempDir() + "/out")
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			p.output = func() (*dest.Pipe, error) { return dest.NewOutput(int(out.Fd()), "standard output") }
		}
		args = append([]string{"gdrcp", "--log-file", log}, args...)
		if strings.Contains(c.args, "h:") {
			args = append(append(args[:1:1], overShellWith(t, beMain+"=1")...), args[1:]...)
		}
		if code := p.run(t.Context(), args); code != exitOK {
			t.Errorf("gdrcp %s: exit code %d: %s", c.args, code, errs)
		}
		if lines := logged(t, log); !slices.Contains(lines, "copied "+c.want+" bytes") {
			t.Errorf("gdrcp %s: no line %q in\n%s", c.args, c.want, strings.Join(lines, "\n"))
		}
	}
}
