package program

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// reachable returns a new directory that other users can access.
func reachable(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.Chmod(filepath.Dir(dir), 0o755))
	must(t, os.Chmod(dir, 0o755))
	return dir
}

// TestBadOperands: an impossible copy, or one to an impossible destination, prints one
// line and changes nothing.
func TestBadOperands(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	for _, dir := range []string{s.here, s.there} {
		write(t, dir+"/file", "old")
		write(t, dir+"/folder/in", "old")
		must(t, os.Symlink("nowhere", dir+"/dangling"))
	}
	before := listing(t, s.here, s.there)
	for _, c := range []struct {
		name    string
		args    []string // H is the local directory, S the server
		code    int
		pattern string
	}{
		{"no source here", []string{"H/none", "S/x"}, 1, `none.*no such file`},
		{"no source there", []string{"S/none", "H/x"}, 1, `none.*no such file`},
		{"dangling link", []string{"H/dangling", "S/x"}, 1, `dangling.*no such file`},
		{"folder here without -r", []string{"H/folder", "S/x"}, 1, `folder.*-r`},
		{"folder there without -r", []string{"S/folder", "H/x"}, 1, `folder.*-r`},
		{"into a file here", []string{"S/file", "H/file/x"}, 1, `not a directory`},
		{"into a file there", []string{"H/file", "S/file/x"}, 1, `not a directory`},
		{"many onto a file", []string{"H/file", "H/dangling", "S/file", "-rl"}, 1, `(?i)not a directory`},
		{"folder onto a file", []string{"H/folder", "S/file", "-r"}, 1, `(?i)not a directory|non-directory|is a file`},
		{"folder onto a file here", []string{"S/folder", "H/file", "-r"}, 1, `(?i)not a directory|non-directory|is a file`},
		{"no folder there", []string{"H/file", "S/none/x"}, 1, `none" does not exist: make it first`},
		{"no folder here", []string{"S/file", "H/none/x"}, 1, `none" does not exist: make it first`},
		{"trailing slash of a new name", []string{"H/file", "S/none/"}, 1, `none`},
		{"one operand", []string{"H/file"}, 2, `SRC`},
		{"none", nil, 2, `SRC`},
		{"to itself", []string{"H/file", "H/file"}, 1, `same file`},
		{"both remote", []string{"S/file", "S/x"}, 2, `both remote`},
		{"an option that is none", []string{"--nonsense", "H/file", "S/x"}, 2, `--nonsense`},
		{"a bad value", []string{"--hash", "md5", "H/file", "S/x"}, 2, `--hash`},
		{"a bad size", []string{"--chunk-size", "0", "H/file", "S/x"}, 2, `--chunk-size`},
		{"too large a ring", []string{"--chunk-size", "64MiB", "--slots", "256", "H/file", "S/x"}, 2, `ring`},
		{"a bad port", []string{"H/file", "rdma://127.0.0.1:99999/x"}, 2, `port`},
		{"no such manifest", []string{"--manifest", "H/none", "H/file", "S/x"}, 1, `none.*no such file`},
		{"a manifest that cannot be written", []string{"--write-manifest", "H/none/m", "H/file", "S/x"}, 1, `none.*no such file`},
	} {
		t.Run(c.name, func(t *testing.T) {
			var args []string
			for _, a := range c.args {
				if rest, ok := strings.CutPrefix(a, "S/"); ok {
					a = s.url(rest)
				}
				if rest, ok := strings.CutPrefix(a, "H/"); ok {
					a = s.here + "/" + rest
				}
				args = append(args, a)
			}
			s.copy(t, args...).wantFailure(c.code, c.pattern)
			if after := listing(t, s.here, s.there); after != before {
				t.Errorf("something changed: %s\nwas: %s", after, before)
			}
		})
	}
	s.stop()
}

// listing returns everything below the directories as text.
func listing(t testing.TB, dirs ...string) string {
	t.Helper()
	var all strings.Builder
	for _, dir := range dirs {
		noTemps(t, dir)
		err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			text, _ := os.ReadFile(path) // of a file
			fmt.Fprintf(&all, "%q %v %q\n", strings.TrimPrefix(path, dir), d.Type(), text)
			return nil
		})
		must(t, err)
	}
	return all.String()
}

// TestOneOfManyMissing: the other sources are copied.
func TestOneOfManyMissing(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		write(t, from+"/file", "content")
		must(t, os.Mkdir(to+"/folder", 0o755))
		args := s.operands(d, s.via(), "none", "folder")
		args = append(s.operands(d, s.via(), "file", "folder")[:1], args...)
		p := s.copy(t, args...)
		p.wantCode(3)
		p.wantLines(`none.*no such file`)
		if why := differAt(from+"/file", to+"/folder/file"); why != "" {
			t.Errorf("the other source: %s", why)
		}
	})
}

// TestServeRefusals: a server that cannot serve reports why.
func TestServeRefusals(t *testing.T) {
	onHost(t)
	dir := t.TempDir()
	write(t, dir+"/file", "")
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer taken.Close()
	for _, c := range []struct {
		name    string
		args    []string
		code    int
		pattern string
	}{
		{"port taken", []string{"--root", dir, "--listen", taken.Addr().String()}, 1, `(?s)in use.*hint: `},
		{"no root", nil, 2, `--root`},
		{"root is missing", []string{"--root", dir + "/none"}, 1, `none.*no such file`},
		{"root is a file", []string{"--root", dir + "/file"}, 1, `not a directory`},
		{"an address of somebody else", []string{"--root", dir, "--listen", "192.0.2.1:0"}, 1, `192\.0\.2\.1.*assign`},
		{"no address", []string{"--root", dir, "--listen", "nonsense"}, 2, `--listen`},
		{"an operand", []string{"--root", dir, "file"}, 2, `operand`},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, how{}, append([]string{"serve"}, c.args...)...).wantFailure(c.code, c.pattern)
		})
	}
}

// TestNoServer: there is no server.
func TestNoServer(t *testing.T) {
	onHost(t)
	dir := t.TempDir()
	write(t, dir+"/file", "content")
	for _, c := range []struct{ name, host, pattern string }{
		{"refused", rdmatest.DeafAddr(t).String(), `(?s)refused.*hint: .*serve`},
		{"a name that nobody has", "no-such-host.invalid:7473", `no-such-host\.invalid`},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, how{}, "--transport", "tcp", dir+"/file", "rdma://"+c.host+"/x").wantFailure(1, c.pattern)
			run(t, how{}, "--transport", "tcp", "rdma://"+c.host+"/x", dir+"/copy").wantFailure(1, c.pattern)
			if _, err := os.Lstat(dir + "/copy"); err == nil {
				t.Error("a failed copy left a file")
			}
		})
	}
}

// TestClosedDirectoryInAnAudit: entries in an unreadable directory do not count as
// missing.
func TestClosedDirectoryInAnAudit(t *testing.T) {
	onHost(t)
	asRoot(t)
	dir := reachable(t)
	for _, name := range []string{"closed/x", "closed/y/z", "closed-not", "else"} {
		write(t, dir+"/tree/"+name, name)
	}
	run(t, how{}, "manifest", "create", "-o", dir+"/m", dir+"/tree").wantCode(0)
	must(t, os.Chmod(dir+"/tree/closed", 0o700))
	verify := func() *process { return run(t, how{uid: nobody}, "manifest", "verify", dir+"/m", dir+"/tree") }
	p := verify().wantCode(3)
	if text := p.stdout.String() + p.stderr.String(); strings.Contains(text, "missing") || !strings.Contains(text, `"closed/y/z": not compared: its directory could not be read`) {
		t.Errorf("it says %s", text)
	}
	must(t, os.Remove(dir+"/tree/closed-not"))
	verify().wantCode(4)
}

// TestNotWritable copies as a user who may not write to the destination.
func TestNotWritable(t *testing.T) {
	onHost(t)
	asRoot(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := &sides{here: reachable(t), there: reachable(t)}
		s.server = serveAs(t, how{uid: nobody}, tcpLink(), s.there)
		from, to := s.ends(d)
		write(t, from+"/file", "new")
		write(t, to+"/file", "old")
		must(t, os.Mkdir(to+"/folder", 0o755))
		for _, name := range []string{"file", "copy", "folder", "folder/"} {
			p := run(t, how{uid: nobody}, append(s.operands(d, s.via(), "file", name), "--transport", "tcp")...)
			if p.cmd.ProcessState.ExitCode() != 1 {
				t.Errorf("exit code %d, want 1: %s", p.cmd.ProcessState.ExitCode(), p)
				continue
			}
			p.wantFailure(1, `permission denied`)
		}
		write(t, from+"/tree/file", "new")
		p := run(t, how{uid: nobody}, append(s.operands(d, s.via(), "tree", "tree"), "-rl", "--transport", "tcp")...)
		p.wantFailure(1, `permission denied`)
		if text, _ := os.ReadFile(to + "/file"); string(text) != "old" {
			t.Errorf("the file that could not be replaced holds %q", text)
		}
		s.stop()
	})
	t.Run("read-only server", func(t *testing.T) {
		s := newSides(t, tcpLink(), "--read-only")
		write(t, s.here+"/file", "new")
		s.copy(t, s.here+"/file", s.url("copy")).wantFailure(1, `read-only`)
		write(t, s.there+"/file", "new")
		s.copy(t, s.url("file"), s.here+"/copy").wantCode(0)
	})
}

// TestUnreadable copies a tree with an unreadable file and an unreadable directory:
// everything else is copied.
func TestUnreadable(t *testing.T) {
	onHost(t)
	asRoot(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := &sides{here: reachable(t), there: reachable(t)}
		s.server = serveAs(t, how{uid: nobody}, tcpLink(), s.there)
		from, to := s.ends(d)
		must(t, os.Chmod(to, 0o777))
		write(t, from+"/tree/good", "good")
		write(t, from+"/tree/a/secret", "secret")
		write(t, from+"/tree/z/good", "good")
		write(t, from+"/tree/locked/in", "in")
		must(t, os.Chmod(from+"/tree/a/secret", 0o600))
		must(t, os.Chmod(from+"/tree/locked", 0o700))
		p := run(t, how{uid: nobody}, append(s.operands(d, s.via(), "tree", "copy"), "-rl", "--transport", "tcp")...)
		p.wantCode(3)
		p.wantLines(`a/secret.*permission denied`, `locked.*permission denied`)
		for _, name := range []string{"good", "z/good"} {
			if why := differAt(from+"/tree/"+name, to+"/copy/"+name); why != "" {
				t.Errorf("%s: %s", name, why)
			}
		}
		if _, err := os.Lstat(to + "/copy/a/secret"); err == nil {
			t.Error("a file that cannot be read was published")
		}
		s.stop()
	})
}

// wantLines fails the test unless the program printed a line for each pattern, in any
// order, a summary, and nothing else.
func (p *process) wantLines(patterns ...string) {
	p.t.Helper()
	var lines []string
	for line := range strings.Lines(p.stderr.String()) {
		line = strings.TrimSuffix(line, "\n")
		if !note.MatchString(line) && !strings.HasPrefix(line, "copied ") {
			lines = append(lines, line)
		}
	}
	for _, pattern := range patterns {
		p.wantOne(lines, pattern)
	}
	if len(lines) != len(patterns) {
		p.t.Errorf("%d lines, want %d: %s", len(lines), len(patterns), p)
	}
	p.checkText(p.stderr.String())
}

// TestSpecialFiles: sockets, FIFOs and devices are skipped with a line each.
func TestSpecialFiles(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		write(t, from+"/tree/good", "good")
		must(t, syscall.Mkfifo(from+"/tree/fifo", 0o600))
		l, err := net.Listen("unix", from+"/tree/socket")
		must(t, err)
		defer l.Close()
		patterns := []string{`fifo`, `socket`}
		if err := syscall.Mknod(from+"/tree/device", syscall.S_IFCHR|0o600, 1<<8|3); err == nil {
			patterns = append(patterns, `device`)
		}
		p := s.copy(t, append(s.operands(d, s.via(), "tree", "copy"), "-rl")...)
		p.wantCode(0)
		p.wantLines(patterns...)
		if names := namesBelow(t, to+"/copy"); len(names) != 2 {
			t.Errorf("%d names arrived, want the folder and its file", len(names))
		}
		s.stop()
	})
}

// TestChanging copies files that grow, and one that is truncated, while they are read:
// they are reported and not published.
func TestChanging(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	for _, c := range []struct {
		name   string
		change func(f *os.File, size int64) error
	}{
		{"growing", func(f *os.File, size int64) error { _, err := f.WriteAt([]byte("more"), size); return err }},
		{"cut", func(f *os.File, _ int64) error { return f.Truncate(3 * mib) }},
		{"rewritten", func(f *os.File, size int64) error { _, err := f.WriteAt([]byte("x"), size-2); return err }},
		{"replaced", func(f *os.File, _ int64) error { return os.Rename(filepath.Dir(f.Name())+".new", f.Name()) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
				const size = 40 * mib
				makeFile(t, from+"/tree/moving", size, 1)
				makeFile(t, from+"/tree.new", size, 3)
				makeFile(t, from+"/tree/zzz", 3*mib, 2)
				x := holdsData(d, 8*mib).start(t, s.addr())
				p := start(t, how{}, append(s.operands(d, x.addr(), "tree", "copy"), "-rl", "--transport", "tcp", "--retries", "0")...)
				awaitPartial(t, to, p)
				f, err := os.OpenFile(from+"/tree/moving", os.O_WRONLY, 0)
				must(t, err)
				defer f.Close()
				must(t, c.change(f, size))
				x.release()
				p.wantCode(3)
				p.wantLines(`moving.*changed`)
				if _, err := os.Lstat(to + "/copy/moving"); err == nil {
					t.Error("a file that changed while it was read was published")
				}
				if why := differAt(from+"/tree/zzz", to+"/copy/zzz"); why != "" {
					t.Errorf("the other file: %s", why)
				}
				noTemps(t, to)
				s.stop()
			})
		})
	}
}

// bounded is how long a stranger may make either end wait.
func bounded() time.Duration { return silence() + launch.Slow(lastWord) }

// TestCleanThatMayNot: an unused leftover that cannot be removed is reported, and fails
// the command.
func TestCleanThatMayNot(t *testing.T) {
	onHost(t)
	asRoot(t)
	dir := reachable(t)
	left := dir + "/.gdrcp-" + strings.Repeat("0a", 16)
	write(t, left, "left")
	must(t, os.Chown(left, nobody, nobody))
	must(t, os.Chmod(dir, 0o755)) // owned by root
	p := run(t, how{uid: nobody}, "clean", dir).wantCode(1)
	p.wantOne(strings.Split(strings.TrimSpace(p.stderr.String()), "\n"), `^gdrcp: remove "\.gdrcp-.*permission denied`)
	if _, err := os.Lstat(left); err != nil {
		t.Error(err)
	}
}
