package xfer_test

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// whenRead takes a lease on a file, so that an open of the file waits until do has returned
// (fcntl(2)).
func whenRead(t *testing.T, path string, do func() error) {
	t.Helper()
	opened := make(chan os.Signal, 1)
	signal.Notify(opened, unix.SIGUSR1)
	holder, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	set := func(command, value int) error {
		_, err := unix.FcntlInt(holder.Fd(), command, value)
		return err
	}
	if err := errors.Join(set(unix.F_SETSIG, int(unix.SIGUSR1)), set(unix.F_SETLEASE, unix.F_WRLCK)); err != nil {
		t.Skipf("no lease can be had on the temporary directory: %v", err)
	}
	done, stop := make(chan error, 1), make(chan struct{})
	go func() {
		var err error
		select {
		case <-opened:
			err = do()
		case <-stop:
			err = errors.New("the file was not opened")
		}
		done <- errors.Join(err, set(unix.F_SETLEASE, unix.F_UNLCK), holder.Close())
	}()
	t.Cleanup(func() {
		close(stop)
		if err := <-done; err != nil {
			t.Error(err)
		}
		signal.Stop(opened)
	})
}

// A file that vanishes while the copy runs is reported, remains at the destination, and does not
// keep the rest from being deleted.
func TestVanishedIsNoReasonNotToDelete(t *testing.T) {
	xfer.OnHost(t)
	// The walk has listed all entries, and waits for the first file to be settled: there are more
	// entries than the window admits.
	src := t.TempDir()
	for i := range 8300 {
		if err := os.Symlink("z", fmt.Sprintf("%s/dir-%04d", src, i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name string
		gone []string // below the source
	}{
		{"announced file", []string{"a2"}},
		{"listed file", []string{"file"}},
		{"listed directory", []string{"later"}},
		{"announced directory", []string{"dir"}},
		{"all of them", []string{"a2", "dir", "file", "later"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			fill := func(dst string) {
				for _, name := range []string{"a", "a2", "dir/sub/x", "dir/y", "file", "later/y", "z"} {
					write(t, filepath.Join(src, name), []byte("new"))
					write(t, filepath.Join(dst, name), []byte("old"))
				}
				for _, name := range []string{"dir/more", "later/more", "surplus", "zz/surplus"} {
					write(t, filepath.Join(dst, name), []byte("old"))
				}
				whenRead(t, filepath.Join(src, "a"), func() (err error) {
					for _, name := range c.gone {
						err = errors.Join(err, os.RemoveAll(filepath.Join(src, name)))
					}
					return err
				})
			}
			o := xfer.Options{Delete: true, NoFsync: true}
			contentsInto(t, tcpWay(t), src, o, fill, func(t *testing.T, dst string, sum *xfer.Summary, l *told) {
				if sum.NotDeleted || sum.Changed != int64(len(c.gone)) || sum.Failed != 0 {
					t.Errorf("%+v", sum)
				}
				if got := l.paths(ended(xfer.Changed)); !slices.Equal(got, c.gone) {
					t.Errorf("told as changed: %q", got)
				}
				for _, name := range []string{"a2", "dir/sub/x", "dir/y", "file", "later/y"} {
					got, err := os.ReadFile(filepath.Join(dst, name))
					want := "new"
					if slices.Contains(c.gone, name) || slices.Contains(c.gone, filepath.Dir(name)) || slices.Contains(c.gone, filepath.Dir(filepath.Dir(name))) {
						want = "old"
					}
					if err != nil || string(got) != want {
						t.Errorf("%s: %q, %v", name, got, err)
					}
				}
				wantGone := []string{"surplus", "zz/", "zz/surplus"}
				for _, dir := range []string{"dir", "later"} {
					if !slices.Contains(c.gone, dir) {
						wantGone = append(wantGone, dir+"/more")
					}
				}
				slices.Sort(wantGone)
				if got := l.paths(wasDeleted); !slices.Equal(got, wantGone) {
					t.Errorf("deleted %q, want %q", got, wantGone)
				}
			})
		})
	}
}

// But then a source that must match a manifest no longer does.
func TestVanishedIsNotAsTheManifestSays(t *testing.T) {
	xfer.OnHost(t)
	src := t.TempDir()
	fill := func(dst string) {
		for _, name := range []string{"a", "b"} {
			write(t, filepath.Join(src, name), []byte("new"))
		}
		write(t, filepath.Join(dst, "b"), []byte("old"))
		write(t, filepath.Join(dst, "surplus"), nil)
		whenRead(t, filepath.Join(src, "a"), func() error { return os.Remove(filepath.Join(src, "b")) })
	}
	for _, name := range []string{"a", "b"} {
		write(t, filepath.Join(src, name), []byte("new"))
	}
	o := xfer.Options{Delete: true, Manifest: filepath.Join(t.TempDir(), "m")}
	createIn(t, o.Manifest, src)
	contentsInto(t, tcpWay(t), src, o, fill, func(t *testing.T, dst string, sum *xfer.Summary, _ *told) {
		if !sum.NotDeleted || sum.Files != 1 || sum.Failed+sum.Changed != 1 {
			t.Errorf("%+v", sum)
		}
		for _, name := range []string{"b", "surplus"} {
			if _, err := os.Lstat(filepath.Join(dst, name)); err != nil {
				t.Error(err)
			}
		}
	})
}
