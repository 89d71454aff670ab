package cli

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

// Trees, single files and several sources can be copied within this machine, under the
// names that the user gives, without a key.
func TestCopyOnThisMachine(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	t.Setenv(keyFileVariable, "")
	makeFiles(t, dir, map[string]string{"src/a": "one", "src/b/c": "two", "src/b/skip.o": "no", "into/old": "of old", "real/": ""})
	for name, to := range map[string]string{"src/link": "a", "to": "real"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	when := time.Unix(1767323045, 500)
	if err := os.Chtimes("src/a", when, when); err != nil {
		t.Fatal(err)
	}
	r := gdrcp(t, "-a", "--json", "--exclude", "*.o", "--write-manifest", "m", "src", "new").want(t, exitOK)
	if s := r.event(t, "summary"); s["transport"] != "local" || s["verified"] != true || s["files"] != 2.0 {
		t.Errorf("the summary is %v", s)
	}
	want := map[string]string{"a": "one", "b/c": "two", "link": "-> a"}
	wantFiles(t, "new", want)
	if st, err := os.Stat("new/a"); err != nil || !st.ModTime().Equal(when) {
		t.Errorf("-a keeps no time: %v", err)
	}
	gdrcp(t, "manifest", "verify", "m", "new").want(t, exitOK)
	gdrcp(t, "-rl", "--delete", "--filter", "- *.o", "--manifest", "m", "./src/.", dir+"/into").want(t, exitOK)
	wantFiles(t, "into", want)
	gdrcp(t, "src/a", "src/b/c", "to").want(t, exitOK) // which is a link to a directory
	gdrcp(t, "--max-memory", "8M", "-v", "src/a", "to/x").want(t, exitOK)
	r = gdrcp(t, "-n", "-r", "src", "nothing").want(t, exitOK)
	if _, err := os.Lstat("nothing"); err == nil || !strings.Contains(r.err, "would copy 3 files") {
		t.Errorf("a dry run made %v and said %s", err, r.err)
	}
	wantFiles(t, "real", map[string]string{"a": "one", "c": "two", "x": "one"})
}

// wantFiles fails the test unless a directory has exactly these files, see listFiles.
func wantFiles(t *testing.T, dir string, want map[string]string) {
	t.Helper()
	got := listFiles(t, dir+"/")
	delete(got, "./") // dir itself
	for name, text := range want {
		if got[name] != text {
			t.Errorf("%s/%s is %q, want %q", dir, name, got[name], text)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s has %q, want %q", dir, got, want)
	}
}

// An impossible copy within this machine prints one error line, has the same exit code
// as a copy with a server, and changes nothing.
func TestCopyOnThisMachineRefused(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"a": "one", "d/in": "two", "e/a": "three"})
	for name, to := range map[string]string{"l": "a", "dl": "d"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link("a", "d/a"); err != nil {
		t.Fatal(err)
	}
	before := listFiles(t, dir)
	for args, want := range map[string]struct {
		code int
		line string
	}{
		"a a":                   {exitError, "a and a are the same file"},
		"./a " + dir + "/a":     {exitError, "./a and " + dir + "/a are the same file"},
		"a l":                   {exitError, "a and l are the same file"},
		"-l l a":                {exitError, "l and a are the same file"},
		"a .":                   {exitError, "a and a are the same file"},
		"-u a dl/":              {exitError, "a and dl/a are the same file"},
		"none e":                {exitError, `"none": no such file or directory`},
		"help e":                {exitError, `"help": no such file or directory`}, // e is not a command
		"d x":                   {exitError, `"d" is a directory (-r copies directories)`},
		"a none/x":              {exitError, `open destination "none/x": the directory "none" does not exist: make it first`},
		"-r d a":                {exitError, `copy a directory to "a": not a directory`},
		"-r d e x":              {exitError, `copy several sources to "x": no such directory`},
		"-r d e a":              {exitError, `copy several sources to "a": not a directory`},
		"--transport verbs a x": {exitUnsupported, "--transport verbs: not supported here: both ends of the copy are on this machine, so no network carries it"},
		"--transport tcp a x":   {exitUnsupported, "--transport tcp: not supported here: both ends of the copy are on this machine, so no network carries it"},
		"--require verbs a x":   {exitUnsupported, "--require verbs: not supported here: both ends of the copy are on this machine, so no network carries it"},
		"--rail rxe0 a x":       {exitUnsupported, "--rail rxe0: not supported here: both ends of the copy are on this machine, so no network carries it"},
		"--remote-rail r a x":   {exitUnsupported, "--remote-rail r: not supported here: both ends of the copy are on this machine, so no network carries it"},
		"- -":                   {exitUsage, "a copy of standard input to standard output does not need gdrcp: use cat"},
		"--max-memory 1M a x":   {exitUsage, "--max-memory 1MiB is too small: the smallest ring, of slots of 1MiB, takes 3.1 MiB here"},
	} {
		if r := gdrcp(t, strings.Fields(args)...); r.code != want.code || r.err != "gdrcp: "+want.line+"\n" {
			t.Errorf("gdrcp %s: exit code %d\n%swant %d\ngdrcp: %s", args, r.code, r.err, want.code, want.line)
		}
	}
	r := gdrcp(t, "-r", "d/.", "dl").want(t, exitPartial)
	if !strings.Contains(r.err, "source and destination are the same directory") {
		t.Errorf("a directory onto itself: %s", r.err)
	}
	wantFiles(t, dir, before)
	gdrcp(t, "-r", ".", "d/copy").want(t, exitOK)
	r = gdrcp(t, "-r", ".", "d/copy").want(t, exitOK)
	if !strings.Contains(r.err, "not copied: it is where this copy goes") {
		t.Errorf("a tree into itself: %s", r.err)
	}
	wantFiles(t, "d/copy", map[string]string{"a": "one", "d/in": "two", "d/a": "one", "e/a": "three"})
}

// If one of several sources is the same file as its destination, under any name, only
// that one fails and the others are copied, as with cp(1).
func TestCopyOnThisMachineOfOneThatIsTheSame(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"a": "one", "b": "two", "c": "three", "d/sub/x": "x", "s/y": "y"})
	for _, names := range [][2]string{{"a", "d/a"}, {"c", "d/c"}} {
		if err := os.Link(names[0], names[1]); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"l": "d/l", "d/l": "../b", "dl": "d"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	r := gdrcp(t, "a", "b", "dl/c", "d").want(t, exitPartial)
	for _, line := range []string{"a and d/a are the same file", "dl/c and d/c are the same file"} {
		if strings.Count(r.err, line) != 1 {
			t.Errorf("no line %q in\n%s", line, r.err)
		}
	}
	if !strings.Contains(r.err, "2 failed") {
		t.Errorf("it wrote\n%s", r.err)
	}
	wantFiles(t, "d", map[string]string{"a": "one", "b": "two", "c": "three", "l": "-> ../b", "sub/x": "x"})
	// A link does not replace its own target, and -n reports that, too.
	for _, dry := range []string{"-n", "--no-n"} {
		r = gdrcp(t, dry, "--json", "-rl", "l", "s", "d").want(t, exitPartial)
		for _, e := range r.events(t) {
			if e["event"] == "file" && e["outcome"] == "failed" && (e["path"] != "l" || e["text"] != "l and d/l are the same file") {
				t.Errorf("%v", e)
			}
		}
		if s := r.event(t, "summary"); s["failed"] != 1.0 || s["files"] != 1.0 {
			t.Errorf("%v", s)
		}
	}
	wantFiles(t, "d", map[string]string{"a": "one", "b": "two", "c": "three", "l": "-> ../b", "sub/x": "x", "s/y": "y"})
	if r := gdrcp(t, "--exclude", "a", "a", "b", "d").want(t, exitOK); strings.Contains(r.err, "same file") {
		t.Errorf("what is left out is told: %s", r.err)
	}
}

// No directory for partial files is created in a source, because that would change it.
func TestPartialDirInALocalSource(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"s/a": "one", "s/d/b": "two", "s/there/": "", "f": "three"})
	if err := os.Symlink(dir+"/s", dir+"/l"); err != nil {
		t.Fatal(err)
	}
	for _, partials := range []string{"/s/new", "/s/there", "/s", "/s/d/new", "/l/new"} {
		for _, sources := range [][]string{{dir + "/s"}, {dir + "/s/."}, {dir + "/f", dir + "/s"}, {dir + "/l/"}} {
			args := append([]string{"-a", "--partial-dir", dir + partials}, append(sources, dir+"/to/")...)
			makeFiles(t, dir, map[string]string{"to/": ""})
			if r := gdrcp(t, args...).want(t, exitError); !strings.Contains(r.err, ", which is copied: name a directory outside") {
				t.Errorf("gdrcp %q wrote %s", args, r.err)
			}
		}
	}
	wantFiles(t, dir+"/s", map[string]string{"a": "one", "d/b": "two", "there/": ""})
	gdrcp(t, "-a", "--partial-dir", dir+"/beside", dir+"/s", dir+"/f", dir+"/to/").want(t, exitOK)
	gdrcp(t, "--partial-dir", dir+"/s/there", dir+"/s/a", dir+"/to/").want(t, exitOK)
}

// One process is both ends, so it also knows how files were written.
func TestCopyOnThisMachineTellsBothEnds(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": strings.Repeat("x", 5000)})
	e := gdrcp(t, "--json", dir+"/a", dir+"/b").want(t, exitOK).event(t, "summary")
	for _, end := range []string{"read_io", "write_io"} {
		if n := e[end].(map[string]any)["buffered_bytes"]; n != 5000.0 {
			t.Errorf("%s has %v bytes that went through the page cache", end, n)
		}
	}
}

// Two ends in one process never time out for silence: after the process was stopped and
// continued, both still exist.
func TestCopyOnThisMachineAfterAPause(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": strings.Repeat("x", 3<<20)})
	p, _, errs := newProgram()
	p.timeouts = xfer.Timeouts{Handshake: 10 * time.Second, Heartbeat: 300 * time.Millisecond, Silence: 50 * time.Millisecond, Linger: time.Second}
	// It sends one chunk every half a second or so.
	args := []string{"gdrcp", "--slots", "1", "--bwlimit", "2M", dir + "/a", dir + "/b"}
	if code := p.run(t.Context(), args); code != exitOK {
		t.Errorf("exit code %d: %s", code, errs)
	}
}

// More processors move more chunks in parallel; an option overrides that.
func TestQueuePairsOnThisMachine(t *testing.T) {
	for processors, want := range map[int]int{1: 1, 2: 1, 3: 1, 4: 2, 7: 3, 8: 4, 192: 4} {
		if got := localQueuePairs(processors); got != want {
			t.Errorf("%d queue pairs of %d processors, want %d", got, processors, want)
		}
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	dir := t.TempDir()
	content := strings.Repeat("0123456789abcdef", 1<<20)
	makeFiles(t, dir, map[string]string{"a": content})
	for _, c := range []struct {
		options []string
		want    float64
	}{{nil, 4}, {[]string{"--qps", "2"}, 2}} {
		to := filepath.Join(dir, "b")
		e := gdrcp(t, append([]string{"--json"}, append(c.options, dir+"/a", to)...)...).want(t, exitOK).event(t, "summary")
		if e["qps"] != c.want {
			t.Errorf("%v: %v queue pairs, want %v", c.options, e["qps"], c.want)
		}
		if got, err := os.ReadFile(to); err != nil || string(got) != content {
			t.Errorf("%v: %d bytes arrived, which are not those of the source: %v", c.options, len(got), err)
		}
	}
}

// TestUnkeptAttributesAreTold: a time that cannot be sent does not prevent the copy of
// its file. A line, an event and the log report it, also with -q; the exit code is 3.
func TestUnkeptAttributesAreTold(t *testing.T) {
	t.Chdir(t.TempDir())
	makeFiles(t, ".", map[string]string{"src/a": "one", "src/b": "two"})
	late := unix.Timespec{Sec: 10e9} // in 2286
	for _, name := range []string{"src/a", "src/b"} {
		if err := unix.UtimesNanoAt(unix.AT_FDCWD, name, []unix.Timespec{late, late}, 0); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat("src/a"); err != nil || st.ModTime().Unix() != late.Sec {
		t.Skipf("needs a file system with times beyond 2262 for TMPDIR (%v)", err)
	}
	const line = "not kept: time of 2 entries, first a: it is before 1677 or after 2262, and cannot be sent"
	r := gdrcp(t, "-rtq", "--log-file", "log", "src", "dst").want(t, exitPartial)
	log, err := os.ReadFile("log")
	if err != nil || !strings.Contains(r.err, line) || !strings.Contains(string(log), line) {
		t.Errorf("%q, and the log %q, %v", r.err, log, err)
	}
	wantFiles(t, "dst", map[string]string{"a": "one", "b": "two"})
	s := gdrcp(t, "-rt", "--json", "src", "dst2").want(t, exitPartial).event(t, "summary")
	if list, _ := s["unkept"].([]any); len(list) != 1 || s["failed"] != 0.0 || s["verified"] != true {
		t.Errorf("%v", s)
	}
	gdrcp(t, "-rt", "--require-attributes", "src", "dst3").want(t, exitPartial)
	if _, err := os.Lstat("dst3/a"); err == nil {
		t.Error("--require-attributes published a file without its time")
	}
}
