package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestDestinationDecides compares the reports of what is kept and deleted with what
// happens, after three dry runs.
func TestDestinationDecides(t *testing.T) {
	s := startServer(t)
	src, log := t.TempDir(), filepath.Join(t.TempDir(), "log")
	makeFiles(t, src, map[string]string{"a": "A", "b": "BB", "d/x": "X"})
	makeFiles(t, s.root, map[string]string{"a": "old", "d/y": "Y", "e/z": "Z"})
	args := []string{"-r", "--delete", "--ignore-existing", "--log-file", log, src + "/.", s.url("")}
	if r := gdrcp(t, append(args, "-nq")...).want(t, 0); r.err+r.out != "" {
		t.Errorf("said %q %q", r.err, r.out)
	}
	e := gdrcp(t, append(args, "-n", "--json")...).want(t, 0).event(t, "summary")
	if e["kept"] != 1.0 || e["dry_run"] != true || e["deleted"] != 3.0 || e["files"] != 2.0 {
		t.Errorf("%v", e)
	}
	r := gdrcp(t, append(args, "-nv")...).want(t, 0)
	wantLines(t, r.err, "deleting d/y", "deleting e/z", "deleting e/", "a: kept, exists", "b", "d/x")
	if last := lastLine(r.err); last != "dry run, nothing was changed: would copy 2 files, 2 directories, 3 B (tcp); 1 kept, not compared; 3 to be deleted" {
		t.Errorf("the last line is %q", last)
	}
	if _, err := os.Stat(filepath.Join(s.root, "e/z")); err != nil {
		t.Errorf("after a dry run: %v", err)
	}
	r = gdrcp(t, append(args, "-v")...).want(t, 0)
	wantLines(t, r.err, "deleting d/y", "deleting e/z", "deleting e/", "a: kept, exists", "b", "d/x")
	if last := lastLine(r.err); !strings.HasPrefix(last, "copied and verified 2 files, 2 directories, 3 B in ") || !strings.HasSuffix(last, "/s, tcp); 1 kept, not compared; 3 deleted") {
		t.Errorf("the last line is %q", last)
	}
	if _, err := os.Stat(filepath.Join(s.root, "e")); err == nil {
		t.Error("nothing was deleted")
	}
	text, err := os.ReadFile(log)
	at := "rdma://" + s.addr
	for _, want := range []string{
		"] would delete " + at + "/d/y\n", "] deleted " + at + "/e/z\n", "] kept " + at + "/a: exists\n", "/b to " + at + "/b, 2 bytes\n", "] would copy /", "] copied /",
	} {
		if err != nil || !strings.Contains(string(text), want) {
			t.Errorf("the log does not have %q: %v\n%s", want, err, text)
		}
	}
}

// A server with -v reports kept and deleted entries as the client does.
func TestServerTellsWhatItKeepsAndDeletes(t *testing.T) {
	s := startServer(t, "-v")
	src := t.TempDir()
	makeFiles(t, src, map[string]string{"a": "A"})
	makeFiles(t, s.root, map[string]string{"a": "old", "d/x": "", "d/y": "", "e": ""})
	args := []string{"-r", "--delete", "--ignore-existing", "--exclude=x", src + "/.", s.url("")}
	gdrcp(t, append(args, "-n")...).want(t, 0)
	gdrcp(t, args...).want(t, 0)
	for _, dry := range []string{"", "dry run: "} {
		for _, text := range []string{"a: kept, exists", "deleting d/y", "delete d/: .*", "deleting e"} {
			waitFor(t, s.errs, regexp.MustCompile("(?m)^gdrcp: 127.0.0.1:[0-9]+: "+dry+text+"$"))
		}
	}
}

// In events, a directory that remains is not reported as deleted, and events of a dry
// run are marked.
func TestDeletionInEvents(t *testing.T) {
	s := startServer(t)
	src := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(src, "fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	makeFiles(t, s.root, map[string]string{"d/x": "", "d/y": ""})
	r := gdrcp(t, "-rn", "--json", "--delete", "--exclude=x", src+"/.", s.url("")).want(t, 0)
	for kind, path := range map[string]string{"deleted": "d/y", "not_deleted": "d/"} {
		e := r.event(t, kind)
		if text, _ := e["text"].(string); e["path"] != path || e["dry_run"] != true || (text == "") != (kind == "deleted") {
			t.Errorf("%v", e)
		}
	}
	if !slices.ContainsFunc(r.events(t), func(e map[string]any) bool {
		return e["outcome"] == "skipped" && e["path"] == "fifo" && e["dry_run"] == true
	}) {
		t.Errorf("no skipped fifo of a dry run in\n%s", r.out)
	}
}

func TestDestinationUsage(t *testing.T) {
	s := startServer(t)
	src := t.TempDir()
	for _, c := range []struct{ options, text string }{
		{"--delete", "--recursive (-r)"}, {"--delete-excluded", "--recursive (-r)"}, {"-r --delete --max-delete=x", "--max-delete"}, {"-r -u --write-manifest m", "manifest"},
		{"-rn --manifest m", "manifest"},
	} {
		r := gdrcp(t, append(strings.Fields(c.options), src, s.url(""))...).want(t, exitUsage)
		if !strings.Contains(r.err, c.text) || strings.Count(r.err, "\n") != 1 {
			t.Errorf("%s: %q", c.options, r.err)
		}
	}
}

func TestNothingDeletedIsTold(t *testing.T) {
	s := startServer(t)
	src := t.TempDir()
	makeFiles(t, src, map[string]string{"d/x": "X"})
	makeFiles(t, s.root, map[string]string{"d/y": "Y"})
	r := gdrcp(t, "-r", "--delete", src+"/d", src+"/none", s.url("")).want(t, exitPartial)
	wantLines(t, r.err, "gdrcp: nothing is deleted: the source could not be listed or read whole, or is not what the manifest says")
	if _, err := os.Stat(s.root + "/d/y"); err != nil {
		t.Error(err)
	}
}

func TestMaxDelete(t *testing.T) {
	s := startServer(t)
	src := t.TempDir()
	old := map[string]string{"a": "", "b": "", "c": "", "d/x": ""}
	for _, c := range []struct {
		most string
		left int
		code int
		told string
	}{
		{"0", 4, exitPartial, "kept 4 entries from deletion"}, {"-1", 4, exitPartial, "kept 4 entries from deletion"}, {"2", 2, exitPartial, "kept 2 entries from deletion"},
		{"4", 1, exitPartial, "kept 1 entry from deletion"}, {"5", 0, 0, ""},
	} {
		below, err := os.MkdirTemp(s.root, "case")
		if err != nil {
			t.Fatal(err)
		}
		makeFiles(t, below, old)
		r := gdrcp(t, "-r", "--delete", "--max-delete", c.most, src+"/.", s.url(filepath.Base(below))).want(t, c.code)
		left, err := os.ReadDir(below)
		if err != nil || len(left) != c.left || strings.Contains(r.err, "--max-delete") != (c.code != 0) || !strings.Contains(r.err, c.told) {
			t.Errorf("at most %s: %d are left, %v: %s", c.most, len(left), err, r.err)
		}
	}
}

// Of --delete, its synonyms, --delete-excluded and their negations, the last one wins.
// --max-delete alone deletes nothing.
func TestLastDeleteWins(t *testing.T) {
	s := startServer(t)
	src := t.TempDir()
	for _, c := range []struct {
		options string
		deletes bool
	}{
		{"--delete --no-delete", false}, {"--delete-excluded --no-delete", false}, {"--no-delete --delete-excluded", true},
		{"--delete-excluded --no-delete-excluded", false}, {"--delete --no-delete-excluded", true}, {"--delete-excluded --no-delete --delete", true},
		{"--del", true}, {"--delete-before", true}, {"--delete-during", true}, {"--delete-delay", true}, {"--delete-after", true},
		{"--max-delete 3", false}, {"--delete-excluded --max-delete 3 --no-del", false},
	} {
		below, err := os.MkdirTemp(s.root, "case")
		if err != nil {
			t.Fatal(err)
		}
		makeFiles(t, below, map[string]string{"old": ""})
		gdrcp(t, append(strings.Fields(c.options), "-r", src+"/.", s.url(filepath.Base(below)))...).want(t, 0)
		if _, err := os.Stat(filepath.Join(below, "old")); err == nil == c.deletes {
			t.Errorf("%s: %v", c.options, err)
		}
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// wantLines fails the test unless the text contains all of the lines.
func wantLines(t *testing.T, text string, lines ...string) {
	t.Helper()
	have := strings.Split(text, "\n")
	for _, line := range lines {
		if !slices.Contains(have, line) {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}
