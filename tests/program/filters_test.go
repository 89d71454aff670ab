package program

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// thicket makes random trees, and rules that are likely to match.
type thicket struct {
	t     *testing.T
	rng   *rand.Rand
	paths []string // of the entries made
}

// growth has names that are difficult for patterns.
var growth = []string{
	"a", "b", "ab", "abc", "x1", "A", "a.o", "b.c", ".x", "...", "a b", "[a]", "[", "]", "*", "a*", "?", `a\b`, "!", "#x", ";y", "-", "a-b", "foo", "foo.bar",
	"new\nline", "\xff", "ü", "- a", "+ b",
}

func newThicket(t *testing.T, seed uint64) *thicket {
	return &thicket{t: t, rng: rand.New(rand.NewPCG(seed, 7))}
}

func (g *thicket) pick(list []string) string { return list[g.rng.IntN(len(list))] }

// grow fills a directory, and gives each entry its own time.
func (g *thicket) grow(dir, below string, depth int) {
	must(g.t, os.MkdirAll(dir, 0o755))
	for range 3 + g.rng.IntN(6) {
		name := g.pick(growth)
		at, path := dir+"/"+name, below+name
		if _, err := os.Lstat(at); err == nil {
			continue
		}
		switch kind := g.rng.IntN(10); {
		case kind < 4 && depth < 4:
			g.grow(at, path+"/", depth+1)
		case kind < 5:
			must(g.t, os.Symlink(g.pick(growth), at))
		default:
			write(g.t, at, path)
			must(g.t, os.Chmod(at, 0o600|os.FileMode(g.rng.IntN(64))))
		}
		g.paths = append(g.paths, path)
		if st, err := os.Lstat(at); err == nil && st.Mode()&os.ModeSymlink == 0 {
			when := time.Unix(1e9+g.rng.Int64N(1e8), 0)
			must(g.t, os.Chtimes(at, when, when))
		}
	}
}

// pattern returns an existing path, or the end of one, with wildcards in it.
func (g *thicket) pattern() string {
	parts := strings.Split(g.pick(g.paths), "/")
	if g.rng.IntN(3) > 0 {
		parts = parts[g.rng.IntN(len(parts)):]
	}
	for i, part := range parts {
		b := []byte(part)
		if g.rng.IntN(3) == 0 {
			at := g.rng.IntN(len(b))
			wild := g.pick([]string{"*", "?", "**", "[a-c]", "[!a]", "[[:alpha:]]", "[", "\\"})
			b = slices.Concat(b[:at], []byte(wild), b[min(len(b), at+g.rng.IntN(3)):])
		}
		parts[i] = string(b)
	}
	p := strings.Join(parts, "/")
	switch g.rng.IntN(8) {
	case 0, 1:
		p = "/" + strings.TrimPrefix(p, "/")
	case 2:
		p += "/"
	case 3:
		p += "/" + g.pick([]string{"*", "**", "***"})
	case 4:
		p = g.pick([]string{"**/", "*/"}) + p
	}
	return p
}

// rules returns options that gdrcp and rsync share.
func (g *thicket) rules(dir string) []string {
	var args []string
	for i := range 1 + g.rng.IntN(5) {
		switch p := g.pattern(); g.rng.IntN(8) {
		case 0, 1, 2:
			args = append(args, "--exclude", p)
		case 3:
			args = append(args, "--include", p)
		case 4:
			args = append(args, "-f", g.pick([]string{"- ", "+ ", "-! ", "H ", "show ", "exclude,s_", "P ", "-p ", "-/ "})+p)
		case 5:
			args = append(args, "--filter=hide,! */", "--include="+g.pick(growth))
		default:
			file := fmt.Sprintf("%s/rules%d", dir, i)
			lines := []string{"# rules", p, "- " + g.pattern(), "; more", "+ " + g.pattern(), ""}
			g.rng.Shuffle(len(lines), func(i, k int) { lines[i], lines[k] = lines[k], lines[i] })
			text := strings.Join(lines, "\n")
			option := g.pick([]string{"--exclude-from=", "--include-from=", "--filter=merge,- ", "--filter=.s+ "})
			write(g.t, file, text)
			args = append(args, option+file)
		}
	}
	return args
}

// judged is the number of random cases in a test with rsync.
func judged(few, many int) int {
	if full() {
		return many
	}
	return few
}

// TestFiltersAsRsync copies random trees with random rules, with rsync and with the
// program in both directions, and lets rsync look for differences.
func TestFiltersAsRsync(t *testing.T) {
	onHost(t)
	needRsync(t)
	rdmatest.BesideOthers(t)
	s := newSides(t, tcpLink())
	for seed := range uint64(judged(15, 400)) {
		g := newThicket(t, seed)
		name := fmt.Sprintf("case%d", seed)
		g.grow(s.here+"/"+name, "", 0)
		rules := g.rules(t.TempDir())
		source, top := name+"/", name+"/."
		if g.rng.IntN(2) == 0 {
			source, top = name, name
		}
		must(t, exec.Command("cp", "-a", s.here+"/"+name, s.there+"/"+name).Run())
		want := t.TempDir()
		rsync(t, append(slices.Clone(rules), "-a", s.here+"/"+source, want+"/")...)
		for _, d := range []direction{{true}, {false}} {
			from, to := s.ends(d)
			must(t, os.Mkdir(to+"/copy", 0o755))
			args := append(slices.Clone(rules), "-a")
			if d.push {
				args = append(args, from+"/"+top, s.url("copy"))
			} else {
				args = append(args, s.url(top), to+"/copy")
			}
			p := s.copy(t, args...)
			if p.wait(launch.Slow(time.Minute)) != 0 {
				t.Fatalf("seed %d, %v, rules %q: %s", seed, d, rules, p)
			}
			if top == name { // the parent directory is not part of the copy
				now := time.Now()
				must(t, os.Chtimes(want, now, now))
				must(t, os.Chtimes(to+"/copy", now, now))
			}
			if left := rsync(t, "-nica", "--delete", want+"/", to+"/copy/"); left != "" {
				t.Errorf("seed %d, %v, rules %q: rsync finds differences:\n%s", seed, d, rules, left)
			}
			must(t, os.RemoveAll(to+"/copy"))
		}
	}
	s.stop()
}

// names returns a list for --files-from, in which some names are missing from the tree.
// They are spelled in different ways that mean the same.
func (g *thicket) names(dir string) (list []string, missing int) {
	for range 1 + g.rng.IntN(8) {
		name := g.pick(g.paths)
		if name[0] == '#' || name[0] == ';' || strings.ContainsAny(name, "\n\r") {
			continue
		}
		switch g.rng.IntN(8) {
		case 0:
			name = "/" + name
		case 1:
			// rsync follows a link that is named like this.
			if st, err := os.Lstat(dir + "/" + name); err == nil && st.Mode()&os.ModeSymlink == 0 {
				name += "/"
			}
		case 2:
			name = "x1/../" + strings.ReplaceAll(name, "/", "//")
		case 3:
			name = "../" + name
		}
		list = append(list, name)
	}
	if g.rng.IntN(4) == 0 {
		list, missing = append(list, "not there"), 1
	}
	return list, missing
}

// TestFilesFromAsRsync copies the listed names of random trees, with and without rules,
// and lets rsync look for differences.
func TestFilesFromAsRsync(t *testing.T) {
	onHost(t)
	needRsync(t)
	rdmatest.BesideOthers(t)
	s := newSides(t, tcpLink())
	for seed := range uint64(judged(15, 400)) {
		g := newThicket(t, seed)
		name := fmt.Sprintf("case%d", seed)
		g.grow(s.here+"/"+name, "", 0)
		must(t, exec.Command("cp", "-a", s.here+"/"+name, s.there+"/"+name).Run())
		names, missing := g.names(s.here + "/" + name)
		list, want, end := t.TempDir()+"/list", t.TempDir(), "\n"
		args := []string{"-a", "--files-from=" + list}
		if g.rng.IntN(2) == 0 {
			args, end = append(args, "-0"), "\x00"
		}
		write(t, list, "# a list"+end+strings.Join(names, end)+end+end)
		if g.rng.IntN(2) == 0 {
			args = append(args, "-r")
		}
		if g.rng.IntN(2) == 0 {
			args = append(args, g.rules(t.TempDir())...)
		}
		code := map[int]int{0: 0, 23: 3}
		judge := exec.Command("rsync", append(slices.Clone(args), s.here+"/"+name, want+"/")...)
		out, _ := judge.CombinedOutput() // its exit code reports missing names
		wantCode, known := code[judge.ProcessState.ExitCode()]
		if !known || (missing > 0) != (wantCode == 3) {
			t.Fatalf("seed %d: rsync %q: %v\n%s", seed, args, judge.ProcessState, out)
		}
		for _, d := range []direction{{true}, {false}} {
			from, to := s.ends(d)
			operands := []string{from + "/" + name, s.url("copy")}
			if !d.push {
				operands = []string{s.url(name), to + "/copy"}
			}
			p := s.copy(t, append(slices.Clone(args), operands...)...)
			if p.wait(launch.Slow(time.Minute)) != wantCode {
				t.Fatalf("seed %d, %v, %q of %q: %s", seed, d, args, names, p)
			}
			if n := strings.Count(p.stderr.String(), "no such file or directory"); n != missing {
				t.Errorf("seed %d, %v: %d names are told to be missing, %d are:\n%s", seed, d, n, missing, &p.stderr)
			}
			must(t, os.MkdirAll(to+"/copy", 0o755)) // it exists only if something was copied
			now := time.Now()
			must(t, os.Chtimes(want, now, now))
			must(t, os.Chtimes(to+"/copy", now, now))
			if left := rsync(t, "-nica", "--delete", want+"/", to+"/copy/"); left != "" {
				t.Errorf("seed %d, %v, %q of %q: rsync finds differences:\n%s", seed, d, args, names, left)
			}
			must(t, os.RemoveAll(to+"/copy"))
		}
	}
	s.stop()
}
