// Package treetest makes trees of files for tests, and looks at them.
package treetest

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
)

// NoLeaks fails the test if it ends with more open files than it began with.
func NoLeaks(t *testing.T) {
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

// MakeTree makes what the specs say in dir: "name/" a directory, "name=content" a
// file, "name>target" a link. Parents come first.
func MakeTree(t *testing.T, dir string, specs ...string) {
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

// ListTree is the inverse of MakeTree, sorted.
func ListTree(t *testing.T, dir string) []string {
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

func WantTree(t *testing.T, dir string, want ...string) {
	t.Helper()
	want = slices.Sorted(slices.Values(want))
	if got := ListTree(t, dir); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func OpenRoot(t *testing.T, dir string) *os.Root {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root
}

// AsNobody runs f without the rights of root, on a thread of its own whose file
// system user is another one (setfsuid(2)); that user owns dir.
func AsNobody(t *testing.T, dir string, f func()) {
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

// SwapForLinks swaps directories in dir for links to dir/outside and back,
// again and again until the function that it returns is called. It goes through no link
// itself, whatever it or others left where: else it would move what is outside.
func SwapForLinks(dir string, names ...string) (stop func()) {
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		link := filepath.Join(dir, "link")
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
			}
			above, name := filepath.Split(names[i%len(names)])
			fd, err := openBelow(dir, above)
			if err != nil {
				continue // somebody is deleting it
			}
			_ = os.Symlink(dir+"/outside", link)
			// RENAME_EXCHANGE leaves no moment without either.
			for range 2 {
				_ = unix.Renameat2(unix.AT_FDCWD, link, fd, name, unix.RENAME_EXCHANGE)
			}
			_ = os.RemoveAll(link)
			fsys.CloseQuietly(fd)
		}
	})
	return func() {
		close(done)
		swapper.Wait()
	}
}

// openBelow opens a directory by a path below dir that leads through no link.
func openBelow(dir, path string) (int, error) {
	fd, err := unix.Open(dir, fsys.DirFlags, 0)
	if err != nil {
		return -1, err
	}
	defer fsys.CloseQuietly(fd)
	return unix.Openat2(fd, filepath.Clean(path), &unix.OpenHow{Flags: fsys.DirFlags, Resolve: unix.RESOLVE_NO_SYMLINKS})
}

// FastDir is a directory in memory where there is one: what is measured is this
// package, not a disk.
func FastDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gdrcp-test-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// DirectDir returns a directory on a disk whose file system takes O_DIRECT: where TMPDIR
// is, or in /var/tmp.
func DirectDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	err := triesDirect(dir)
	if err == nil {
		return dir
	}
	if dir, other := os.MkdirTemp("/var/tmp", "gdrcp-test-"); other == nil {
		t.Cleanup(func() { os.RemoveAll(dir) })
		if triesDirect(dir) == nil {
			return dir
		}
	}
	t.Skipf("neither %s nor /var/tmp is on a disk that takes O_DIRECT: %v", dir, err)
	return ""
}

// triesDirect opens a file in a directory past the page cache.
func triesDirect(dir string) error {
	f, err := os.Create(filepath.Join(dir, "try"))
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	defer f.Close()
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return err
	}
	if fsys.IsMemory(int64(st.Type)) {
		return errors.New("it is in memory")
	}
	fd, _, err := fsys.OpenDirect(int(f.Fd()), unix.O_WRONLY)
	if err != nil {
		return err
	}
	fsys.CloseQuietly(fd)
	return nil
}

// Dropped takes a file out of the page cache, after a sync.
func Dropped(t *testing.T, path string) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)); err != nil {
		t.Fatal(err)
	}
}

func RandomBytes(n int) []byte {
	b := make([]byte, n)
	rng := rand.New(rand.NewPCG(7, uint64(n)))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// testBudget has room for so many descriptors.
type testBudget struct{ Left atomic.Int64 }

func BudgetOf(n int64) *testBudget {
	b := &testBudget{}
	b.Left.Store(n)
	return b
}

func (b *testBudget) Take(n int) bool {
	if b.Left.Add(int64(-n)) >= 0 {
		return true
	}
	b.Left.Add(int64(n))
	return false
}

func (b *testBudget) Give(n int) { b.Left.Add(int64(n)) }
