package program

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gdrcp/rdma/rdmatest"
)

// stages lists the staging trees in a directory.
func stages(t *testing.T, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(dir + "/.gdrcp-tree-*")
	must(t, err)
	return found
}

// noTreesLeft fails the test if a copy left staging trees or temporary files.
func noTreesLeft(t *testing.T, dir string) {
	t.Helper()
	if left := append(stages(t, dir), temps(dir)...); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// TestTreeAppearsAtOnce copies a tree over another one while it is watched: at any time
// either the complete old tree is there or the complete new one. Unchanged files are in
// both.
func TestTreeAppearsAtOnce(t *testing.T) {
	everyLink(t, func(t *testing.T, l link) {
		bothWays(t, func(t *testing.T, d direction) {
			if sampledOut(l, d) {
				return
			}
			s := newSides(t, l)
			from, to := s.ends(d)
			makeTree(t, from+"/tree", 60, 7)
			copyIt := func(args ...string) *process {
				t.Helper()
				return s.copy(t, append(append(s.operands(d, s.via(), "tree", "copy"), "-a", "--atomic-dir", "--json"), args...)...)
			}
			first := copyIt().wantCode(0)
			sameTree(t, from+"/tree", to+"/copy", true)
			first.wantSummary(map[string]any{"files": 60.0, "kept": 0.0, "verified": true})
			kept := lstat(t, to+"/copy/d1/s1/f1")
			write(t, to+"/copy/old", "old")
			write(t, from+"/tree/d0/new", "new")
			write(t, from+"/tree/d2/s2/f2", "changed")
			stop, wrong := make(chan struct{}), make(chan string, 1)
			go watchTree(to+"/copy", stop, wrong)
			second := copyIt()
			close(stop)
			if why := <-wrong; why != "" {
				t.Error(why)
			}
			second.wantCode(0)
			second.wantSummary(map[string]any{"files": 2.0, "kept": 59.0, "verified": true})
			sameTree(t, from+"/tree", to+"/copy", true)
			if !os.SameFile(kept, lstat(t, to+"/copy/d1/s1/f1")) {
				t.Error("a file that is the same was copied")
			}
			noTreesLeft(t, to)
			s.stop()
		})
	})
}

// watchTree looks for the files that only the old tree has, and for those that only the
// new one has, until stop is closed. It sends what is wrong, or "".
func watchTree(dir string, stop <-chan struct{}, wrong chan<- string) {
	there := func(top int, name string) bool {
		var st syscall.Stat_t
		fd, err := syscall.Openat(top, name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err != nil {
			return false
		}
		defer syscall.Close(fd)
		return syscall.Fstat(fd, &st) == nil
	}
	for {
		select {
		case <-stop:
			wrong <- ""
			return
		default:
		}
		top, err := syscall.Open(dir, syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
		if err != nil {
			wrong <- "the tree was not there: " + err.Error()
			return
		}
		// The old tree is removed after it was replaced, so only the new one counts.
		_, err = os.Lstat(dir + "/d0/new")
		isNew := err == nil
		if text, err := os.ReadFile(dir + "/d2/s2/f2"); isNew && (err != nil || string(text) != "changed") {
			wrong <- "a part of the new tree was there, and another was not"
			return
		}
		if both := there(top, "old") && there(top, "d0/new"); both {
			wrong <- "one directory had files of both trees"
		}
		syscall.Close(top)
	}
}

// TestTreeThatDidNotArrive: if one file fails, nothing is replaced. Then the same
// command resumes with what has arrived, and removes what the source no longer has.
func TestTreeThatDidNotArrive(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		if os.Getuid() == 0 {
			s.stop()
			shareWithNobody(t, s)
		}
		makeTree(t, from+"/tree", 20, 3)
		write(t, from+"/tree/secret", "not for everybody")
		write(t, from+"/tree/vanishes", "with the first copy")
		write(t, from+"/tree/becomes", "a pipe, which is not copied")
		write(t, to+"/copy/old", "old")
		own(t, s, from, to)
		must(t, os.Chmod(from+"/tree/secret", 0))
		args := append(s.operands(d, s.via(), "tree", "copy"), "-a", "--atomic-dir", "--force-replace")
		p := s.copy(t, args...).wantCode(3)
		awaitLetGo(s, d)
		lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
		p.wantOne(lines, `secret.*permission denied`)
		p.wantOne(lines, `^gdrcp: the tree is not in place`)
		p.wantOne(lines, `^NOT in place, but copied and verified 22 files.*; 1 failed$`)
		if text, err := os.ReadFile(to + "/copy/old"); string(text) != "old" {
			t.Errorf("the old tree: %q, %v", text, err)
		}
		if left := stages(t, to); len(left) != 1 {
			t.Fatalf("left: %q", left)
		}
		must(t, os.Chmod(from+"/tree/secret", 0o600))
		must(t, os.Remove(from+"/tree/vanishes"))
		must(t, os.Remove(from+"/tree/becomes"))
		must(t, syscall.Mkfifo(from+"/tree/becomes", 0o600))
		own(t, s, from)
		again := s.copy(t, append(args, "--json")...).wantCode(0)
		again.wantSummary(map[string]any{"files": 1.0, "kept": 20.0})
		must(t, os.Remove(from+"/tree/becomes"))
		sameTree(t, from+"/tree", to+"/copy", false)
		noTreesLeft(t, to)
		s.stop()
	})
}

// awaitLetGo waits until the server has unlocked the tree that the first push to "copy"
// left, which is after its client has ended.
func awaitLetGo(s *sides, d direction) {
	if d.push {
		s.waitLog(1, `: push "/copy": `)
	}
}

// shareWithNobody starts the server, and later clients, as a user to whom file modes
// apply.
func shareWithNobody(t *testing.T, s *sides) {
	t.Helper()
	s.as = how{uid: nobody}
	own(t, s, s.here, s.there)
	s.server = serveAs(t, s.as, s.link, s.there)
}

// own gives everything below the directories to the user of both ends.
func own(t *testing.T, s *sides, dirs ...string) {
	t.Helper()
	if s.as.uid == 0 {
		return
	}
	for _, dir := range dirs {
		for at := filepath.Dir(dir); strings.Contains(at, t.Name()[:4]); at = filepath.Dir(at) {
			must(t, os.Chmod(at, 0o755))
		}
		must(t, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
			return errors.Join(err, os.Lchown(path, int(s.as.uid), int(s.as.uid)))
		}))
	}
}

// TestAtomicKilled kills either end in the middle of a tree, at several moments: the
// name leads to the old tree until it leads to the new one, and the same command
// resumes.
func TestAtomicKilled(t *testing.T) {
	rdmatest.BesideOthers(t)
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTree(t, from+"/tree", 100, 7)
		makeFile(t, from+"/tree/d3/big", 24*mib, 1)
		write(t, to+"/copy/old", "old")
		old := func() {
			t.Helper()
			if text, err := os.ReadFile(to + "/copy/old"); string(text) != "old" {
				t.Errorf("the old tree: %q, %v", text, err)
			}
		}
		arrived := int64(0)
		for n := range 2 {
			args := append(s.operands(d, s.slowDown(t), "tree", "copy"), "-a", "--atomic-dir", "--force-replace")
			client := start(t, s.as, append(s.copyArgs(), args...)...)
			arrived = awaitBytes(to, arrived+8*mib, client)
			if n == 0 {
				client.signal(syscall.SIGKILL)
				<-client.ended
				awaitUnlocked(t, to)
			} else {
				s.signal(syscall.SIGKILL)
				<-s.ended
				client.wantFailure(1, `.`)
				s.again(t)
			}
			old()
		}
		p := s.copy(t, append(s.operands(d, s.via(), "tree", "copy"), "-a", "--atomic-dir", "--force-replace", "--json")...).wantCode(0)
		// Writes in progress when the server died may have completed the large file.
		e := p.event("summary")
		if counted := e["resumed_bytes"].(float64) + e["skipped_bytes"].(float64); counted < 8*mib {
			t.Errorf("%v bytes counted: %s", counted, p)
		}
		if kept := e["kept"].(float64); kept < 20 {
			t.Errorf("%v files were kept: %s", kept, p)
		}
		sameTree(t, from+"/tree", to+"/copy", true)
		noTreesLeft(t, to)
		s.stop()
	})
}

// TestAtomicServerComesBack: a copy with --atomic-dir retries by itself, too, and
// counts each file once.
func TestAtomicServerComesBack(t *testing.T) {
	rdmatest.BesideOthers(t)
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTree(t, from+"/tree", 100, 7)
		makeFile(t, from+"/tree/d3/big", 24*mib, 1)
		write(t, to+"/copy/old", "old")
		client := start(t, s.as, append(s.retrying("4"), append(s.operands(d, s.slowDown(t), "tree", "copy"), "-rl", "--atomic-dir", "--force-replace", "--json")...)...)
		awaitBytes(to, 8*mib, client)
		s.signal(syscall.SIGKILL)
		<-s.ended
		if _, err := os.Lstat(to + "/copy/old"); err != nil {
			t.Error(err)
		}
		s.again(t)
		client.wantCode(0)
		client.wantSummary(map[string]any{"files": 101.0, "links": 2.0, "kept": 0.0, "resumed_bytes": 0.0, "verified": true})
		sameTree(t, from+"/tree", to+"/copy", false)
		noTreesLeft(t, to)
		s.stop()
	})
}

// TestTwoTreesAtOnce: two copies to one name both succeed, and one of them is there,
// complete.
func TestTwoTreesAtOnce(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTree(t, from+"/one", 60, 1)
		makeTree(t, from+"/two", 60, 2)
		var both []*process
		for _, name := range []string{"one", "two"} {
			both = append(both, start(t, s.as, append(s.copyArgs(), append(s.operands(d, s.via(), name, "copy"), "-a", "--atomic-dir")...)...))
		}
		for _, p := range both {
			p.wantCode(0)
		}
		one, _ := os.ReadFile(to + "/copy/d1/s1/f1")
		is, _ := os.ReadFile(from + "/one/d1/s1/f1")
		winner := "two"
		if string(one) == string(is) {
			winner = "one"
		}
		sameTree(t, from+"/"+winner, to+"/copy", true)
		noTreesLeft(t, to)
		s.stop()
	})
}

// TestAtomicRefusals: invalid combinations are refused in one line, and change nothing.
func TestAtomicRefusals(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTree(t, from+"/tree", 3, 1)
		write(t, from+"/file", "no tree")
		write(t, to+"/file", "in the way")
		must(t, os.MkdirAll(to+"/real", 0o755))
		must(t, os.Symlink("real", to+"/link"))
		ops := func(from, to string, more ...string) []string {
			return append(s.operands(d, s.via(), from, to), more...)
		}
		for name, c := range map[string]struct {
			args []string
			code int
			want string
		}{
			"a file":           {ops("file", "new", "-r"), 2, `--atomic-dir copies a directory`},
			"without -r":       {ops("tree", "new"), 2, `-r`},
			"--delete":         {ops("tree", "new", "-r", "--delete"), 2, `--delete does not go with --atomic-dir`},
			"--update":         {ops("tree", "new", "-ru"), 2, `--update`},
			"--max-size":       {ops("tree", "new", "-r", "--max-size", "1M"), 2, `--max-size`},
			"--checksum":       {ops("tree", "new", "-rc"), 2, `--checksum`},
			"--inplace":        {ops("tree", "new", "-r", "--inplace"), 2, `--inplace`},
			"--append-verify":  {ops("tree", "new", "-r", "--append-verify"), 2, `--append-verify`},
			"--files-from":     {ops("tree", "new", "-r", "--files-from", "/dev/null"), 2, `--files-from`},
			"nothing of it":    {ops("tree", "new", "-r", "--exclude", "*"), 1, `not even the directory: no tree gets the name`},
			"a slash":          {ops("tree", "real/", "-r"), 2, `without a slash at the end`},
			"over a file":      {ops("tree", "file", "-r"), 1, `cannot be replaced by a tree: it is not a directory`},
			"over a link":      {ops("tree", "link", "-r"), 1, `cannot be replaced by a tree: it is a symbolic link`},
			"nothing above it": {ops("tree", "none/new", "-r"), 1, `the directory ".*none" does not exist: make it first`},
		} {
			s.copy(t, append(c.args, "--atomic-dir")...).wantFailure(c.code, c.want)
			if t.Failed() {
				t.Fatal(name)
			}
		}
		s.copy(t, ops("tree", "new", "-r", "--force-replace")...).wantFailure(2, `--force-replace goes with --atomic-dir only`)
		if d.push {
			s.copy(t, s.here+"/tree", s.here+"/file", s.url("new"), "-r", "--atomic-dir").wantFailure(2, `copies one directory`)
			s.copy(t, s.here+"/tree", s.url("."), "-r", "--atomic-dir").wantFailure(1, `no name of its own`)
			run(t, how{}, "-", s.url("new"), "--atomic-dir").wantFailure(2, `stream`)
		}
		noTreesLeft(t, to)
		if _, err := os.Lstat(to + "/new"); err == nil {
			t.Error("something was made")
		}
		s.stop()
	})
}

// TestAtomicInterrupted: a signal leaves the name unchanged.
func TestAtomicInterrupted(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/tree/big", 32*mib, 1)
		client := start(t, s.as, append(s.copyArgs(), append(s.operands(d, s.slowDown(t), "tree", "new"), "-a", "--atomic-dir")...)...)
		awaitBytes(to, 8*mib, client)
		client.signal(syscall.SIGINT)
		client.wantCode(130)
		if _, err := os.Lstat(to + "/new"); err == nil {
			t.Error("a part of a tree bears its name")
		}
		awaitUnlocked(t, to)
		run(t, how{}, "clean", to).wantCode(0)
		if left := append(stages(t, to), temps(to)...); len(left) > 0 {
			t.Errorf("gdrcp clean left %q", left)
		}
		s.stop()
	})
}

// TestAtomicWithoutAFile: if the source has lost a file, a resumed copy does not put
// the arrived part of that file into the tree.
func TestAtomicWithoutAFile(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/tree/d/big", 32*mib, 1)
		write(t, from+"/tree/z", "z")
		args := func(via string) []string {
			return append(s.copyArgs(), append(s.operands(d, via, "tree", "new"), "-a", "--atomic-dir")...)
		}
		client := start(t, s.as, args(s.slowDown(t))...)
		awaitBytes(to, 8*mib, client)
		client.signal(syscall.SIGINT)
		client.wantCode(130)
		awaitUnlocked(t, to)
		must(t, os.Remove(from+"/tree/d/big"))
		run(t, s.as, args(s.via())...).wantCode(0)
		sameTree(t, from+"/tree", to+"/new", true)
		noTreesLeft(t, to)
		s.stop()
	})
}

// TestMountInTheOldTree: a file system mounted in the replaced tree is not touched, and
// the rest of that tree is reported. The next copy does not resume in it.
func TestMountInTheOldTree(t *testing.T) {
	onHost(t)
	asRoot(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTree(t, from+"/tree", 3, 1)
		write(t, from+"/tree/mount/new", "new")
		write(t, to+"/precious/file", "precious")
		must(t, os.MkdirAll(to+"/copy/mount", 0o755))
		must(t, syscall.Mount(to+"/precious", to+"/copy/mount", "", syscall.MS_BIND, ""))
		args := append(s.operands(d, s.via(), "tree", "copy"), "-a", "--atomic-dir")
		p := s.copy(t, args...)
		awaitLetGo(s, d)
		again := s.copy(t, args...)
		left := stages(t, to)
		for _, dir := range append(left, to+"/copy") {
			_ = syscall.Unmount(dir+"/mount", 0) // it is in one of them
		}
		p.wantCode(3)
		again.wantCode(0)
		p.wantOne(strings.Split(p.stderr.String(), "\n"), `remove what was at .*copy.*: not all of it could be removed; gdrcp clean tries again`)
		if text, err := os.ReadFile(to + "/precious/file"); string(text) != "precious" || len(left) != 1 {
			t.Errorf("left %q, %q, %v", left, text, err)
		}
		if there, err := os.ReadDir(to + "/precious"); err != nil || len(there) != 1 {
			t.Errorf("what is mounted has %v, %v", there, err)
		}
		sameTree(t, from+"/tree", to+"/copy", true)
		s.stop()
	})
}
