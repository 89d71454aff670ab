package cli

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"gdrcp/rdma/rdmatest"

	"golang.org/x/sys/unix"
)

const autoLine = "gdrcp: using tcp: no RDMA device here: the kernel knows no RDMA device\n"

// targetCases follow the rules of cp and scp. Sources are below "s", which has
// sourceFiles, and destinations below "d", which has destinationFiles.
var sourceFiles = map[string]string{"a": "A", "b": "BB", "d/x": "X", "d/sub/y": "Y", "other/a": "another a"}
var destinationFiles = map[string]string{"file": "old content", "dir/": "", "full/a/": ""}

var targetCases = []struct {
	name    string
	options string
	sources []string
	dst     string
	code    int
	want    map[string]string // in addition to destinationFiles
	text    string            // in the error
}{
	{name: "a file to a new name", sources: []string{"a"}, dst: "new", want: map[string]string{"new": "A"}},
	{name: "a file over a file", sources: []string{"b"}, dst: "file", want: map[string]string{"file": "BB"}},
	{name: "a file into a directory", sources: []string{"a"}, dst: "dir", want: map[string]string{"dir/a": "A"}},
	{name: "a file into a directory with a slash", sources: []string{"d/x"}, dst: "dir/", want: map[string]string{"dir/x": "X"}},
	{name: "a file into the top", sources: []string{"a"}, dst: "", want: map[string]string{"a": "A"}},
	{name: "a file to a directory that is not there", sources: []string{"a"}, dst: "new/", code: exitError, text: "new"},
	{name: "a file to a name in a directory that is not there", sources: []string{"a"}, dst: "new/a", code: exitError, text: "new"},
	{name: "a file to a file with a slash", sources: []string{"a"}, dst: "file/", code: exitError, text: "not a directory"},
	{name: "a file over a directory", sources: []string{"a"}, dst: "full", code: exitPartial, text: "is a directory"},
	{name: "files into a directory", sources: []string{"a", "b"}, dst: "dir", want: map[string]string{"dir/a": "A", "dir/b": "BB"}},
	{name: "files to a new name", sources: []string{"a", "b"}, dst: "new", code: exitError, text: "new"},
	{name: "files to a file", sources: []string{"a", "b"}, dst: "file", code: exitError, text: "not a directory"},
	{name: "files of one name", sources: []string{"a", "other/a"}, dst: "dir", code: exitPartial, want: map[string]string{"dir/a": "A"}, text: "another source has the same name"},
	{name: "a missing file among others", sources: []string{"a", "none", "b"}, dst: "dir", code: exitPartial, want: map[string]string{"dir/a": "A", "dir/b": "BB"}, text: `"none"`},
	{name: "a missing file", sources: []string{"none"}, dst: "dir", code: exitError, text: "no such file or directory"},
	{name: "a directory without -r", sources: []string{"d"}, dst: "new", code: exitError, text: "is a directory (-r copies directories)"},
	{name: "a directory among files without -r", sources: []string{"a", "d"}, dst: "dir", code: exitPartial, want: map[string]string{"dir/a": "A"}, text: `"d": is a directory (-r copies directories)`},
	{name: "a directory to a new name", options: "-r", sources: []string{"d"}, dst: "new", want: map[string]string{"new/x": "X", "new/sub/y": "Y"}},
	{name: "a directory to a new name with a slash", options: "-r", sources: []string{"d/"}, dst: "new/", want: map[string]string{"new/x": "X", "new/sub/y": "Y"}},
	{name: "a directory into a directory", options: "-r", sources: []string{"d"}, dst: "dir", want: map[string]string{"dir/d/x": "X", "dir/d/sub/y": "Y"}},
	{name: "a directory with a slash into a directory", options: "-r", sources: []string{"d/"}, dst: "dir/", want: map[string]string{"dir/d/x": "X", "dir/d/sub/y": "Y"}},
	{name: "what is in a directory", options: "-r", sources: []string{"d/."}, dst: "dir", want: map[string]string{"dir/x": "X", "dir/sub/y": "Y"}},
	{name: "a directory over a file", options: "-r", sources: []string{"d"}, dst: "file", code: exitError, text: "not a directory"},
	{name: "directories and files", options: "-r", sources: []string{"a", "d", "b"}, dst: "dir", want: map[string]string{"dir/a": "A", "dir/b": "BB", "dir/d/x": "X", "dir/d/sub/y": "Y"}},
	{name: "directories to a new name", options: "-r", sources: []string{"d", "other"}, dst: "new", code: exitError, text: "new"},
}

func TestTargets(t *testing.T) {
	s := startServer(t)
	for _, push := range []bool{true, false} {
		for _, c := range targetCases {
			way := map[bool]string{true: "push", false: "pull"}[push]
			t.Run(way+" "+c.name, func(t *testing.T) {
				rdmatest.SkipUnlessPicked(t)
				local := t.TempDir()
				below, err := os.MkdirTemp(s.root, "case")
				if err != nil {
					t.Fatal(err)
				}
				src, dst := local, below
				srcName, dstName := local+"/", s.url(filepath.Base(below))+"/"
				if !push {
					src, dst = below, local
					srcName, dstName = dstName, srcName
				}
				makeFiles(t, src, sourceFiles)
				makeFiles(t, dst, destinationFiles)
				args := strings.Fields(c.options)
				for _, name := range c.sources {
					args = append(args, srcName+name)
				}
				r := gdrcp(t, append(args, dstName+c.dst)...).want(t, c.code)
				if c.code != exitOK && (!strings.Contains(r.err, c.text) || !regexp.MustCompile(`(?m)^gdrcp: `).MatchString(r.err)) {
					t.Errorf("it wrote %q, without %q", r.err, c.text)
				}
				want := withDirs(destinationFiles, c.want)
				if got := listFiles(t, dst); !maps.Equal(got, want) {
					t.Errorf("got %v\nwant %v", got, want)
				}
			})
		}
	}
}

// withDirs merges maps into the form of listFiles, which has no entries for directories
// that are not empty.
func withDirs(all ...map[string]string) map[string]string {
	files := make(map[string]string)
	for _, m := range all {
		maps.Copy(files, m)
	}
	for name := range files {
		for dir := filepath.Dir(strings.TrimSuffix(name, "/")); dir != "."; dir = filepath.Dir(dir) {
			delete(files, dir+"/")
		}
	}
	return files
}

func TestWhatIsTold(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/sub/b": strings.Repeat("b", 3000)})
	if err := os.Symlink("a", dir+"/t/link"); err != nil {
		t.Fatal(err)
	}
	last := `copied 2 files, 2 directories, 1 link, 2\.9 KiB in \d+\.\d\d s \(\d+(\.\d)? .?i?B/s, tcp\), verified\n`
	root := `gdrcp: root xxh3 [0-9a-f]{64}, meta root [0-9a-f]{64}\n`
	cost := `gdrcp: CPU \d+\.\d\d s here, \d+\.\d\d s there(; waited here for [^;\n]*)?(; waited there for .*)?\n` +
		`gdrcp: read by buffered 2\.9 KiB\n`
	for _, c := range []struct{ options, out, err string }{
		{"", "", last},
		{"--transport tcp", "", last},
		{"-q", "", ""},
		{"-v --transport tcp --qps 2", "", `gdrcp: from 127\.0\.0\.1:\d+ to 127\.0\.0\.1:\d+, 2 queue pairs, 16 slots of 1MiB(, write-with-imm)?\n` +
			`\.\na\nlink\nsub\nsub/b\n` + root +
			`gdrcp: over tcp \(tcp, write-with-imm\), \S+ .?i?B on the wire, 0 repairs, first byte after \d+ ms\n` + cost + last},
		{"-v --encrypt", "", regexp.QuoteMeta(autoLine) + `gdrcp: from .*\n\.\na\nlink\nsub\nsub/b\n` + root +
			`gdrcp: over tcp \(tcp, write-with-imm\), encrypted, .* on the wire, .*\n` + cost + strings.Replace(last, "tcp", "tcp, encrypted", 1)},
	} {
		r := gdrcp(t, append(strings.Fields(c.options), "-rl", dir+"/t", s.url("copy"+strings.ReplaceAll(c.options, " ", "")))...).want(t, exitOK)
		if !regexp.MustCompile("^"+c.err+"$").MatchString(r.err) || r.out != c.out {
			t.Errorf("%s wrote %q and\n%s\nwant\n%s", c.options, r.out, r.err, c.err)
		}
	}
	// The server logs every session in one line, with the same root.
	r := gdrcp(t, "-rlv", s.url("copy"), dir+"/back").want(t, exitOK)
	if !regexp.MustCompile(`\ngdrcp: over tcp \(tcp, write-with-imm\), \S+ .?i?B on the wire, 0 repairs\n`).MatchString(r.err) {
		t.Errorf("an end that sent nothing told of its first byte:\n%s", r.err)
	}
	proof := `.*, verified: root ` + rootIn(t, r.err) + `\n`
	waitFor(t, s.errs, regexp.MustCompile(`gdrcp: test@127\.0\.0\.1:\d+: push "/copy": 2 files, 2 directories, 1 link, `+proof))
	waitFor(t, s.errs, regexp.MustCompile(`gdrcp: test@127\.0\.0\.1:\d+: pull "/copy": 2 files, 2 directories, 1 link, `+proof))
}

func TestEvents(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "B"})
	r := gdrcp(t, "--json", "-r", dir+"/t", dir+"/none", s.url("")).want(t, exitPartial)
	if r.err != "" {
		t.Errorf("it wrote %q to standard error", r.err)
	}
	connected := r.event(t, "connected")
	for field, want := range map[string]any{
		"transport": "tcp", "device": "tcp", "family": "TCP", "imm": "write-with-imm", "remote": s.addr, "qps": 1.0, "slots": 16.0,
		"chunk_bytes": 1048576.0, "why": "no RDMA device here: the kernel knows no RDMA device",
	} {
		if connected[field] != want && field != "imm" { // the kind of immediate is known after one was sent
			t.Errorf("connected: %s is %v, want %v", field, connected[field], want)
		}
	}
	file := r.event(t, "file")
	if file["outcome"] != "failed" || !strings.Contains(file["text"].(string), "no such file or directory") {
		t.Errorf("file event %v", file)
	}
	summary := r.event(t, "summary")
	for field, want := range map[string]any{
		"files": 2.0, "dirs": 1.0, "links": 0.0, "bytes": 2.0, "failed": 1.0, "skipped": 0.0, "changed": 0.0, "corrupt": 0.0, "missing": 0.0,
		"repairs": 0.0, "hash": "xxh3", "piece_bytes": 1048576.0, "verified": true, "transport": "tcp", "imm": "write-with-imm",
	} {
		if summary[field] != want {
			t.Errorf("summary: %s is %v, want %v", field, summary[field], want)
		}
	}
	for _, field := range []string{"seconds", "bytes_per_second", "first_byte_ms"} {
		if n, ok := summary[field].(float64); !ok || n <= 0 {
			t.Errorf("summary: %s is %v", field, summary[field])
		}
	}
	for _, end := range []string{"local_cost", "remote_cost"} {
		if c := summary[end].(map[string]any); c["cpu_seconds"].(float64) <= 0 || c["cpu_seconds_per_gib"].(float64) <= 0 {
			t.Errorf("summary: %s is %v", end, c)
		}
	}
	r = gdrcp(t, "--json", "-v", "-r", dir+"/t", s.url("again")).want(t, exitOK)
	if n := strings.Count(r.out, `"event":"file"`); n != 3 {
		t.Errorf("-v told %d entries, want 3:\n%s", n, r.out)
	}
	r = gdrcp(t, "--json", dir+"/none", s.url("again")).want(t, exitError)
	if e := r.event(t, "error"); e["exit_code"] != 1.0 || !strings.Contains(e["text"].(string), "no such file") || r.err == "" {
		t.Errorf("error event %v, and %q", e, r.err)
	}
}

func TestModesAndTimes(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	when := time.Unix(1_600_000_000, 123_456_789)
	if err := os.Chmod(dir+"/t/a", 0o751); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"t/a", "t"} {
		if err := os.Chtimes(filepath.Join(dir, name), when, when); err != nil {
			t.Fatal(err)
		}
	}
	gdrcp(t, dir+"/t", s.url("kept"), "-rpt").want(t, exitOK)
	gdrcp(t, s.url("kept"), "-r", dir+"/plain").want(t, exitOK)
	for name, preserved := range map[string]bool{s.root + "/kept": true, dir + "/plain": false} {
		for _, path := range []string{name, name + "/a"} {
			st, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if st.ModTime().Equal(when) != preserved {
				t.Errorf("%s has time %v", path, st.ModTime())
			}
		}
		if st, _ := os.Stat(name + "/a"); preserved && st.Mode().Perm() != 0o751 {
			t.Errorf("%s/a has mode %v", name, st.Mode())
		}
	}
}

// Names may contain any bytes in both directions, and are printed safely.
func TestNames(t *testing.T) {
	s := startServer(t, "--verbose")
	dir := t.TempDir()
	names := map[string]string{"new\nline": "1", "\xff\xfe": "2", "\x1b[2J": "3", "a b": "4", "%41": "5", strings.Repeat("n", 255): "6", "-r": "7", "c,d": "8"}
	makeFiles(t, dir+"/t", names)
	r := gdrcp(t, "-rv", dir+"/t", s.url("t")).want(t, exitOK)
	if !utf8.ValidString(r.err) || strings.Contains(r.err, "\x1b") || !strings.Contains(r.err, `"new\nline"`) {
		t.Errorf("it wrote %q", r.err)
	}
	gdrcp(t, "-r", s.url("t"), dir+"/back").want(t, exitOK)
	if got := listFiles(t, dir+"/back"); !maps.Equal(got, names) {
		t.Errorf("got %v", got)
	}
	gdrcp(t, s.url("t/new%0aline"), s.url("t/%ff%FE"), s.url("t/c,d"), dir).want(t, exitOK)
	if got := listFiles(t, dir); got["new\nline"] != "1" || got["\xff\xfe"] != "2" || got["c,d"] != "8" {
		t.Errorf("got %v", got)
	}
	r = gdrcp(t, s.url("t/no\x1bne\n"), dir).want(t, exitError)
	if strings.Count(r.err, "\n") != 1 || strings.Contains(r.err, "\x1b") {
		t.Errorf("it wrote %q", r.err)
	}
}

func TestSpecialFilesAreSkipped(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	if err := unix.Mkfifo(dir+"/t/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	r := gdrcp(t, "-r", dir+"/t", s.url("t")).want(t, exitOK)
	if !strings.Contains(r.err, "gdrcp: read \"fifo\": special file skipped: fifo (here)\n") || !strings.Contains(r.err, "; 1 skipped\n") {
		t.Errorf("it wrote %q", r.err)
	}
}

// A pattern in a server's path is expanded by the server, below what the key opens. As
// with scp, a pattern without a match is an error.
func TestPatternsOfAServer(t *testing.T) {
	s := startServer(t, "--require-encrypt", "--max-sessions", "1")
	makeFiles(t, s.root, map[string]string{"d/a.pt": "one", "d/b.pt": "two", "d/c": "no", "e/f/x.pt": "three", "lit[1].pt": "four", "lit1.pt": "no"})
	here := t.TempDir()
	gdrcp(t, "--encrypt", s.url("d/*.pt"), s.url("lit[1].pt"), here+"/").want(t, exitOK)
	gdrcp(t, "--encrypt", "-r", s.url("e*"), here+"/").want(t, exitOK)
	r := gdrcp(t, "--encrypt", s.url("e/?/*.pt"), here+"/one").want(t, exitOK)
	wantFiles(t, here, map[string]string{"a.pt": "one", "b.pt": "two", "lit[1].pt": "four", "e/f/x.pt": "three", "one": "three"})
	if !strings.Contains(r.err, "copied 1 file") {
		t.Errorf("it says %s", r.err)
	}
	r = gdrcp(t, "--encrypt", s.url("d/*.txt"), here+"/").want(t, exitError)
	if !strings.HasSuffix(r.err, `gdrcp: `+s.addr+`: "/d/*.txt": no such file or directory`+"\n") {
		t.Errorf("of nothing it says %s", r.err)
	}
	gdrcp(t, "--encrypt", s.url("../*"), here+"/").want(t, exitError)
}
