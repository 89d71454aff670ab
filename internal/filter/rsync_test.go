package filter

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// names are names that are difficult for patterns.
var names = []string{
	"a", "b", "ab", "ba", "abc", "A", "1", "a1", "-", "a-b", "a.o", "b.c", ".x", "...", "a b", " ", "[a]", "[", "]", "a]", "*", "a*", "**", "?", "\\", "a\\b",
	"\\*", "!", "^", "#", "_", "foo", "foo.bar", "new\nline", "\xff", "ü",
}

// judge runs rsync on a tree, for comparison.
type judge struct {
	t    *testing.T
	rng  *rand.Rand
	root string
	// entries are the tree's paths, directories with a trailing slash.
	entries []string
}

// newJudge skips the test if rsync is not installed.
func newJudge(t *testing.T, seed uint64) *judge {
	t.Helper()
	if _, err := exec.LookPath("rsync"); err != nil {
		t.Skip("rsync, which is the judge here, is not installed")
	}
	j := &judge{t: t, rng: rand.New(rand.NewPCG(seed, 1)), root: t.TempDir()}
	j.grow(j.root+"/tree", "", 0)
	return j
}

func (j *judge) grow(dir, path string, depth int) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		j.t.Fatal(err)
	}
	for range 5 + j.rng.IntN(5) {
		name := names[j.rng.IntN(len(names))]
		at := dir + "/" + name
		if _, err := os.Lstat(at); err == nil {
			continue
		}
		if depth < 3 && j.rng.IntN(2) == 0 {
			j.entries = append(j.entries, path+name+"/")
			j.grow(at, path+name+"/", depth+1)
			continue
		}
		if err := os.WriteFile(at, nil, 0o644); err != nil {
			j.t.Fatal(err)
		}
		j.entries = append(j.entries, path+name)
	}
}

// pattern returns a pattern that is likely to match something.
func (j *judge) pattern() string {
	parts := strings.Split(strings.TrimSuffix(j.entries[j.rng.IntN(len(j.entries))], "/"), "/")
	if j.rng.IntN(3) == 0 {
		parts = parts[:1]
	}
	parts = parts[j.rng.IntN(len(parts)):]
	for i := range parts {
		parts[i] = j.wild(parts[i])
	}
	p := strings.Join(parts, "/")
	for _, around := range []struct{ before, behind string }{
		{"/", ""}, {"**/", ""}, {"**", ""}, {"*/", ""}, {"", "/"}, {"", "/**"}, {"", "/***"}, {"", "/*"}, {"tree/", ""}, {"/tree/", ""}, {"", "***"},
	} {
		if j.rng.IntN(6) == 0 {
			p = around.before + p + around.behind
		}
	}
	return p
}

// wild puts wildcards, valid and invalid ones, into a name.
func (j *judge) wild(name string) string {
	pieces := []string{
		"*", "?", "**", "[a-c]", "[!a]", "[^b-]", "[]a]", "[[:alpha:]]", "[[:punct:]x]", "[[:alnum:]-z]", "[\\]a]", "[", "[a", "[[:no:]]", "[[:]", "\\", "[a-", "[--0]", "/", "***",
	}
	b := []byte(name)
	for j.rng.IntN(2) == 0 {
		at := j.rng.IntN(len(b) + 1)
		until := min(len(b), at+j.rng.IntN(3))
		b = slices.Concat(b[:at], []byte(pieces[j.rng.IntN(len(pieces))]), b[until:])
	}
	return string(b)
}

func (j *judge) rules(receiver bool) []Rule {
	rules := make([]Rule, 1+j.rng.IntN(4))
	for i := range rules {
		r := Rule{Pattern: j.pattern(), Include: j.rng.IntN(3) == 0}
		r.Absolute, r.Negate, r.Perishable = j.rng.IntN(6) == 0, j.rng.IntN(8) == 0, j.rng.IntN(4) == 0
		r.Sender, r.Receiver = !receiver && j.rng.IntN(6) == 0, receiver || j.rng.IntN(6) == 0
		if r.Absolute && j.rng.IntN(2) == 0 {
			r.Pattern = j.root + "/" + strings.TrimLeft(r.Pattern, "/")
		}
		rules[i] = r
	}
	return rules
}

// ask runs rsync with the rules and returns the names that it lists, sorted.
func (j *judge) ask(rules []Rule, args ...string) []string {
	j.t.Helper()
	argv := []string{"-r"}
	for i := range rules {
		argv = append(argv, "-f", rules[i].String())
	}
	cmd := exec.Command("rsync", append(argv, args...)...)
	cmd.Dir = j.root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		j.t.Fatalf("rsync %q: %v\n%s", cmd.Args, err, stderr.Bytes())
	}
	var told []string
	for line := range strings.Lines(string(out)) {
		told = append(told, unescape(strings.TrimSuffix(line, "\n")))
	}
	slices.Sort(told)
	return told
}

var escaped = regexp.MustCompile(`\\#[0-7]{3}`)

// unescape undoes rsync's escaping of bytes that are not text.
func unescape(name string) string {
	return escaped.ReplaceAllStringFunc(name, func(s string) string {
		n, _ := strconv.ParseUint(s[2:], 8, 8) // three octal digits always parse
		return string([]byte{byte(n)})
	})
}

// matcher compiles rules after a round trip through their text.
func (j *judge) matcher(rules []Rule, at Place) *Matcher {
	j.t.Helper()
	var p Parser
	for i := range rules {
		if err := p.Filter(rules[i].String()); err != nil {
			j.t.Fatalf("%s: %v", &rules[i], err)
		}
	}
	if !slices.Equal(p.Rules(), rules) {
		j.t.Fatalf("%+v became %+v", rules, p.Rules())
	}
	compiled, err := Compile(p.Rules())
	if err != nil {
		j.t.Fatal(err)
	}
	return compiled.Matcher(at)
}

func cases() int {
	if os.Getenv("GDRCP_TEST_FULL") == "1" {
		return 5000
	}
	return 150
}

// differ reports the rules and the results, so that a case can be reproduced.
func differ(t *testing.T, seed uint64, rules []Rule, got, want []string) {
	t.Helper()
	if slices.Equal(got, want) {
		return
	}
	var text []string
	for i := range rules {
		text = append(text, fmt.Sprintf("%q", rules[i].String()))
	}
	for _, name := range want {
		if !slices.Contains(got, name) {
			t.Errorf("seed %d, rules %s: %q is missing", seed, strings.Join(text, " "), name)
		}
	}
	for _, name := range got {
		if !slices.Contains(want, name) {
			t.Errorf("seed %d, rules %s: %q is too many", seed, strings.Join(text, " "), name)
		}
	}
}

// TestHidesAsRsync compares what rsync and a Matcher copy of a tree.
func TestHidesAsRsync(t *testing.T) {
	const seed = 1
	j := newJudge(t, seed)
	for range cases() {
		rules := j.rules(false)
		source, at := "tree/", Place{Dir: j.root + "/tree"}
		if j.rng.IntN(2) == 0 {
			source, at.Name = "tree", "tree"
		}
		want := j.ask(rules, "-n", "--out-format=%n", source, j.root+"/nowhere/")
		m := j.matcher(rules, at)
		var got []string
		err := filepath.WalkDir(j.root+"/tree", func(path string, d fs.DirEntry, err error) error {
			path = strings.TrimPrefix(strings.TrimPrefix(path, j.root+"/tree"), "/")
			if path == "" {
				path = "."
			}
			if m.Hides(path, d.IsDir()) {
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			}
			name := string(appendPath(nil, at.Name, path))
			if name == "" {
				name = "."
			}
			if d.IsDir() {
				name += "/"
			}
			got = append(got, name)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(got)
		want = slices.DeleteFunc(want, func(s string) bool { return strings.HasPrefix(s, "created directory ") })
		differ(t, seed, rules, got, want)
	}
}

// TestProtectsAsRsync compares what rsync and a Matcher would delete from a
// tree whose source has only some of its directories.
func TestProtectsAsRsync(t *testing.T) {
	const seed = 2
	j := newJudge(t, seed)
	there := map[string]bool{"": true}
	for _, e := range j.entries {
		if dir := strings.TrimSuffix(e, "/"); dir != e && there[e[:strings.LastIndexByte("/"+dir, '/')]] && j.rng.IntN(3) > 0 {
			there[e] = true
			if err := os.MkdirAll(j.root+"/source/"+dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range cases() {
		rules := j.rules(true)
		// Not with -n, which considers directories deleted that are not empty.
		if out, err := exec.Command("cp", "-al", j.root+"/tree", j.root+"/copy").CombinedOutput(); err != nil {
			t.Fatalf("cp: %v\n%s", err, out)
		}
		want := j.ask(rules, "--delete", "--out-format=%i %n", "source/", "copy/")
		if err := os.RemoveAll(j.root + "/copy"); err != nil {
			t.Fatal(err)
		}
		want = slices.DeleteFunc(want, func(s string) bool { return !strings.HasPrefix(s, "*deleting") })
		for i := range want {
			want[i] = strings.TrimPrefix(want[i], "*deleting   ")
		}
		d := deletion{m: j.matcher(rules, Place{Dir: j.root + "/copy"}), j: j, there: there}
		d.dir("", false)
		slices.Sort(d.gone)
		differ(t, seed, rules, d.gone, want)
	}
}

// deletion computes what is deleted when a Matcher protects entries.
type deletion struct {
	m     *Matcher
	j     *judge
	there map[string]bool
	gone  []string
}

// dir deletes the contents of a directory and reports whether nothing is left.
func (d *deletion) dir(path string, doomed bool) bool {
	empty := true
	for _, e := range d.j.entries {
		name := strings.TrimSuffix(e, "/")
		if !strings.HasPrefix(e, path) || e == path || strings.Contains(name[len(path):], "/") {
			continue
		}
		isDir := name != e
		switch {
		case d.there[e]:
			d.dir(e, false)
			empty = false
		case d.m.Protects(name, isDir, doomed), isDir && !d.dir(e, true):
			empty = false
		default:
			d.gone = append(d.gone, e)
		}
	}
	return empty
}
