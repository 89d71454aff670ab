package chunker

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// noLeaks fails the test if it ends with more open files than it began with.
func noLeaks(t *testing.T) {
	t.Helper()
	openFiles := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	before := openFiles()
	t.Cleanup(func() {
		if after := openFiles(); after > before {
			t.Errorf("%d files open, %d before the test", after, before)
		}
	})
}

// makeTree makes what the specs say in dir: "name/" a directory, "name=content" a
// file, "name>target" a link. Parents come first.
func makeTree(t *testing.T, dir string, specs ...string) {
	t.Helper()
	for _, spec := range specs {
		var err error
		if name, ok := strings.CutSuffix(spec, "/"); ok {
			err = os.Mkdir(filepath.Join(dir, name), 0o755)
		} else if name, target, ok := strings.Cut(spec, ">"); ok {
			err = os.Symlink(target, filepath.Join(dir, name))
		} else {
			name, content, _ := strings.Cut(spec, "=")
			err = os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// listTree is the inverse of makeTree, sorted.
func listTree(t *testing.T, dir string) []string {
	t.Helper()
	var specs []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || path == dir {
			return err
		}
		spec := strings.TrimPrefix(path, dir+"/")
		switch {
		case d.IsDir():
			spec += "/"
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(path)
			if err != nil {
				return err
			}
			spec += ">" + target
		default:
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			spec += "=" + string(content)
		}
		specs = append(specs, spec)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(specs)
	return specs
}

func wantTree(t *testing.T, dir string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if got := listTree(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func openLocal(t *testing.T, follow bool, sources ...Source) *Tree {
	t.Helper()
	tree, err := OpenLocal(sources, follow)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	return tree
}

func openRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

func openSink(t *testing.T, opt SinkOptions) *Sink {
	t.Helper()
	s, err := OpenSink(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

var topDir = manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}

// smallFileSystem returns a directory on a tmpfs of its own, of so many bytes, as mount's option
// size has them. The test fails if a file is still open there in the end, so close the sink by
// defer.
func smallFileSystem(t *testing.T, size string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("no small file system of its own, run as root: mount tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount, a file is still open: %v", err)
		}
	})
	return dir
}

// sinkInto returns a sink whose entries go into dir itself.
func sinkInto(t *testing.T, dir string, opt SinkOptions) *Sink {
	t.Helper()
	opt.Dest = dir
	s := openSink(t, opt)
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	return s
}

func fileEntry(path, content string) *manifest.Entry {
	return &manifest.Entry{Type: manifest.File, Path: path, Size: int64(len(content)), Mode: 0o644}
}

// begin creates, writes and finishes a file.
func begin(s *Sink, e *manifest.Entry, content string) (*Temp, error) {
	temp, err := s.Create(e, nil)
	if err != nil {
		return nil, err
	}
	_, err = temp.WriteAt([]byte(content), 0)
	if err == nil {
		err = temp.Finish()
	}
	if err != nil {
		return nil, errors.Join(err, temp.Discard())
	}
	return temp, nil
}

// put writes and publishes one file.
func put(s *Sink, e *manifest.Entry, content string) error {
	temp, err := begin(s, e, content)
	if err != nil {
		return err
	}
	return s.Publish([]*Temp{temp})[0]
}

// asNobody runs f without the rights of root, on a thread of its own whose file
// system user is another one (setfsuid(2)); that user owns dir.
func asNobody(t *testing.T, dir string, f func()) {
	t.Helper()
	if os.Geteuid() != 0 {
		f()
		return
	}
	const nobody = 65534
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	for d := dir; strings.HasPrefix(d, os.TempDir()+"/"); d = filepath.Dir(d) {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		defer close(done)
		if _, _, errno := syscall.RawSyscall(unix.SYS_SETFSUID, nobody, 0, 0); errno != 0 {
			done <- errno
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// walkAll returns the paths of a walk, and those that had a problem.
func walkAll(t *testing.T, tree *Tree, recursive bool) (paths []string, problems map[string]error) {
	t.Helper()
	w := tree.Walk(recursive)
	defer w.Close()
	return drain(t, w)
}

func drain(t *testing.T, w *Walker) (paths []string, problems map[string]error) {
	t.Helper()
	problems = make(map[string]error)
	for {
		f, err := w.Next()
		if errors.Is(err, io.EOF) {
			return paths, problems
		}
		if err != nil {
			t.Fatalf("Next: %v", err)
		}
		if f.Problem != nil {
			problems[f.Entry.Path] = f.Problem
			continue
		}
		paths = append(paths, f.Entry.Path)
	}
}
