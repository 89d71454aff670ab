package program

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// aged turns a tree into what a destination may have had before: some entries are the
// same, some are newer, older, or of another size or kind, some are missing, and some
// do not exist in the source.
func (g *thicket) aged(dir string) {
	g.t.Helper()
	for _, path := range slices.Clone(g.paths) {
		at := dir + "/" + path
		st, err := os.Lstat(at)
		if err != nil {
			continue // removed with its directory
		}
		switch kind := g.rng.IntN(9); {
		case kind < 2:
			must(g.t, os.RemoveAll(at))
		case kind == 2:
			must(g.t, os.RemoveAll(at))
			g.other(at)
		case kind < 6 && st.Mode().IsRegular():
			write(g.t, at, strings.Repeat("x", g.rng.IntN(20))+path)
			when := st.ModTime().Add(time.Duration(g.rng.IntN(5)-2) * time.Second)
			must(g.t, os.Chtimes(at, when, when))
		}
	}
	g.grow(dir, "", 3)
	g.age(dir)
}

// other creates an entry of any kind at a path.
func (g *thicket) other(at string) {
	switch g.rng.IntN(5) {
	case 0:
		must(g.t, os.Symlink(g.pick(growth), at))
	case 1, 2:
		g.grow(at, "", 3)
	case 3:
		must(g.t, unix.Mkfifo(at, 0o600))
	default:
		write(g.t, at, "other")
	}
}

// clearForDirs removes entries of a destination that have the name of a source
// directory and are not directories.
func (g *thicket) clearForDirs(src, dst string) {
	for name, st := range namesBelow(g.t, src) {
		at := filepath.Join(dst, name)
		if old, err := os.Lstat(at); err == nil && st.IsDir() && !old.IsDir() {
			must(g.t, os.Remove(at))
		}
	}
}

// age gives every directory a time that no copy gave it.
func (g *thicket) age(dir string) {
	for name, st := range namesBelow(g.t, dir) {
		if st.IsDir() {
			when := time.Unix(1.2e9+g.rng.Int64N(1e6), 0)
			must(g.t, os.Chtimes(filepath.Join(dir, name), when, when))
		}
	}
}

// TestDestinationAsRsync copies random trees over an existing destination, with rsync
// and with the program in both directions, and lets rsync look for differences.
func TestDestinationAsRsync(t *testing.T) {
	onHost(t)
	needRsync(t)
	rdmatest.BesideOthers(t)
	s := newSides(t, tcpLink())
	options := []string{
		"--delete", "--delete -u", "--delete --ignore-existing", "--delete --existing", "--delete --existing --ignore-existing",
		"--delete RULES", "--delete-excluded RULES", "--delete -u RULES",
	}
	for seed := range uint64(judged(24, 240)) {
		g := newThicket(t, seed)
		name := fmt.Sprintf("case%d", seed)
		g.grow(s.here+"/"+name, "", 0)
		must(t, exec.Command("cp", "-a", s.here+"/"+name, s.there+"/"+name).Run())
		old := t.TempDir() + "/old"
		must(t, exec.Command("cp", "-a", s.here+"/"+name, old).Run())
		g.aged(old)
		if option := options[seed%uint64(len(options))]; strings.Contains(option, "--ignore-existing") {
			g.clearForDirs(s.here+"/"+name, old)
		}
		args := []string{"-a"}
		for _, word := range strings.Fields(options[seed%uint64(len(options))]) {
			if word == "RULES" {
				args = append(args, g.rules(t.TempDir())...)
			} else {
				args = append(args, word)
			}
		}
		want := t.TempDir() + "/want"
		must(t, exec.Command("cp", "-a", old, want).Run())
		code := rsyncCode(t, append(slices.Clone(args), s.here+"/"+name+"/", want+"/")...)
		for _, d := range []direction{{true}, {false}} {
			from, to := s.ends(d)
			must(t, exec.Command("cp", "-a", old, to+"/copy").Run())
			dry := append(slices.Clone(args), "-nv")
			words := []string{from + "/" + name + "/.", s.url("copy")}
			if !d.push {
				words = []string{s.url(name + "/."), to + "/copy"}
			}
			would := s.copy(t, append(dry, words...)...)
			if left := rsync(t, "-nica", "--delete", old+"/", to+"/copy/"); left != "" {
				t.Fatalf("seed %d, %v, %q: a dry run changed\n%s", seed, d, args, left)
			}
			p := s.copy(t, append(slices.Clone(args), append(words, "-v")...)...)
			if got := p.wait(launch.Slow(time.Minute)); got != code {
				t.Fatalf("seed %d, %v, %q: exit code %d, want %d: %s", seed, d, args, got, code, p)
			}
			if was, will := deletions(p), deletions(would); !slices.Equal(was, will) && code == 0 {
				t.Errorf("seed %d, %v, %q: deleted and not told by a dry run: %q, or the other way around: %q", seed, d, args, without(was, will), without(will, was))
			}
			sameNow(t, want, to+"/copy")
			if left := rsync(t, "-nica", "--delete", want+"/", to+"/copy/"); left != "" {
				t.Errorf("seed %d, %v, %q: rsync finds differences:\n%s%s", seed, d, args, left, p)
			}
			noTemps(t, to)
			must(t, os.RemoveAll(to+"/copy"))
		}
		if t.Failed() {
			return
		}
	}
}

// sameNow gives one time to all directories with a recent time: something was deleted
// in them, and they are not part of the copy.
func sameNow(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		for name, st := range namesBelow(t, dir) {
			if st.IsDir() && time.Since(st.ModTime()) < time.Hour {
				must(t, os.Chtimes(filepath.Join(dir, name), time.Unix(1e9, 0), time.Unix(1e9, 0)))
			}
		}
	}
}

// rsyncCode runs rsync and returns the exit code that the program should have: 3 for
// rsync's 23, some files were not copied.
func rsyncCode(t *testing.T, args ...string) int {
	t.Helper()
	cmd := exec.Command("rsync", args...)
	out, err := cmd.CombinedOutput()
	switch code := cmd.ProcessState.ExitCode(); code {
	case 0:
		return 0
	case 23:
		return 3
	default:
		t.Fatalf("rsync %q: %v\n%s", args, err, out)
		return code
	}
}

// without returns the lines of a that are not in b.
func without(a, b []string) []string {
	return slices.DeleteFunc(slices.Clone(a), func(line string) bool { return slices.Contains(b, line) })
}

// deletions returns the sorted lines that report deletions.
func deletions(p *process) (lines []string) {
	for line := range strings.Lines(p.stderr.String()) {
		if strings.HasPrefix(line, "deleting ") {
			lines = append(lines, line)
		}
	}
	slices.Sort(lines)
	return lines
}

// TestClosedDirectoriesAgain: a user other than root copies a read-only directory, and
// then its changes, as with rsync.
func TestClosedDirectoriesAgain(t *testing.T) {
	onHost(t)
	asRoot(t)
	for _, options := range []string{"-r", "-rt", "-rp", "-ru", "-r --delete"} {
		bothWays(t, func(t *testing.T, d direction) {
			s := &sides{here: reachable(t), there: reachable(t), as: how{uid: nobody}}
			s.server = serveAs(t, s.as, tcpLink(), s.there)
			from, to := s.ends(d)
			must(t, os.Chmod(to, 0o777))
			write(t, from+"/tree/closed/in/file", "old")
			args := append(s.operands(d, s.via(), "tree/.", "tree"), strings.Fields(options)...)
			for run, text := range []string{"old", "new and longer"} {
				for _, path := range []string{"/tree/closed", "/tree/closed/in"} {
					must(t, os.Chmod(from+path, 0o555))
				}
				must(t, os.WriteFile(from+"/tree/closed/in/file", []byte(text), 0o444))
				write(t, fmt.Sprintf("%s/tree/closed/another%d", from, run), text)
				s.copy(t, args...).wantCode(0)
				sameTree(t, from+"/tree", to+"/tree", false)
				for _, path := range []string{"/tree/closed", "/tree/closed/in"} {
					if mode := lstat(t, to+path).Mode().Perm(); mode != 0o555 {
						t.Errorf("%s: the copy of %s has mode %o", options, path, mode)
					}
				}
				if strings.Contains(options, "--delete") {
					must(t, os.Remove(fmt.Sprintf("%s/tree/closed/another%d", from, run)))
				}
			}
		})
	}
}

// TestFileInAClosedDirectory: a user who may not write to a file's directory can copy
// to that file itself, or keep it. Everything else is refused before data is sent.
func TestFileInAClosedDirectory(t *testing.T) {
	onHost(t)
	asRoot(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := &sides{here: reachable(t), there: reachable(t), as: how{uid: nobody}}
		s.server = serveAs(t, s.as, tcpLink(), s.there)
		from, to := s.ends(d)
		write(t, from+"/file", "new")
		must(t, os.Mkdir(to+"/closed", 0o755))
		for _, tc := range []struct {
			options, stands string
			code            int
			is              string
		}{
			{"--inplace", "of old", 0, "new"},
			{"-n --inplace", "of old", 0, "of old"},
			{"-a", "new", 0, "new"},
			{"-n -a", "new", 0, "new"},
			{"-c", "new", 0, "new"},
			{"-n -c", "new", 0, "new"},
			{"--size-only", "old", 0, "old"},
			{"--ignore-existing", "of old", 0, "of old"},
			{"-a", "of old", 1, "of old"},
			{"-n -a", "of old", 1, "of old"},
			{"-a -I", "new", 1, "new"},
			{"-u", "of old", 1, "of old"},
		} {
			there := to + "/closed/file"
			write(t, there, tc.stands)
			must(t, os.Chown(there, nobody, nobody))
			for _, path := range []string{from + "/file", there} {
				must(t, os.Chtimes(path, time.Time{}, time.Unix(1.2e9+int64(len(tc.stands)), 0)))
			}
			p := s.copy(t, append(s.operands(d, s.via(), "file", "closed/file"), strings.Fields(tc.options)...)...).wantCode(tc.code)
			if tc.code != 0 {
				p.wantFailure(1, `write to .*permission denied`)
			}
			if now, err := os.ReadFile(there); string(now) != tc.is || err != nil {
				t.Errorf("%s: the file that held %q holds %q: %v", tc.options, tc.stands, now, err)
			}
		}
	})
}

// TestNoPlaceForTheTop: if a copied directory cannot be created, nothing in it can, and
// that is reported once.
func TestNoPlaceForTheTop(t *testing.T) {
	onHost(t)
	dir := t.TempDir()
	for i := range 20 {
		write(t, fmt.Sprintf("%s/tree/%d", dir, i), "x")
	}
	must(t, os.Symlink("nowhere", dir+"/tonowhere"))
	write(t, dir+"/in/tree", "a file")
	for _, tc := range []struct{ to, want string }{
		{dir + "/tonowhere", `^gdrcp: copy a directory to ".*/tonowhere": not a directory`},
		{dir + "/in", `^gdrcp: copy a directory to ".*/in/tree": not a directory`},
		{"/proc/gdrcp-test", `^gdrcp: (make directory|write to) "/proc/gdrcp-test": `}, // for root, and for others
	} {
		run(t, how{}, "-r", dir+"/tree", tc.to).wantFailure(1, tc.want)
	}
}
