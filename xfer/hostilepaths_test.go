package xfer

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// swapping makes dir alternately a directory and a link to outside, until stop.
func swapping(t *testing.T, dir, outside string) (stop func()) {
	t.Helper()
	kept := dir + ".kept"
	end := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-end:
				return
			default:
			}
			// A copy may be in the way of one of these, and the next round repairs it.
			_ = os.Rename(dir, kept)
			_ = os.Symlink(outside, dir)
			_ = os.Remove(dir)
			_ = os.Rename(kept, dir)
		}
	})
	return sync.OnceFunc(func() {
		close(end)
		swapper.Wait()
	})
}

// While a directory of what is served is swapped for a link that leaves it, a push writes nothing
// outside, and a pull reads nothing from there, whatever name the client asks for.
func TestSwappedWhileServed(t *testing.T) {
	OnHost(t)
	root, addr, _ := hostileServer(t)
	outside := t.TempDir()
	const secret = "what nobody is to see"
	for _, name := range []string{"f", "secret"} {
		if err := os.WriteFile(filepath.Join(outside, name), []byte(secret), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "a", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a/f", "a/b/f", "a/secret"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte("open"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	src := t.TempDir()
	if err := os.MkdirAll(filepath.Join(src, "tree", "b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tree/f", "tree/b/f", "tree/secret"} {
		if err := os.WriteFile(filepath.Join(src, name), []byte("pushed"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stop := swapping(t, filepath.Join(root, "a"), outside)
	defer stop()
	const least = 1500 * time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(5*least))
	defer cancel()
	c := Client{TCP: tcp.New()}
	pulled, pushed := 0, 0
	start := time.Now()
	for i := 0; ctx.Err() == nil && (time.Since(start) < least || pulled == 0 || pushed == 0); i++ {
		o := *byTCP().options()
		o.NoFsync = true
		if i%2 == 0 {
			o.Follow = i%4 == 0
			path := []string{"a", "a/", "a/secret", "a/b/../secret", "/a/f"}[i/2%5]
			dst := t.TempDir()
			_, err := c.Pull(ctx, endpointAt(addr), []string{path}, dst, o)
			if err == nil {
				pulled++
			}
			noSecret(t, dst, secret)
			continue
		}
		dst := []string{"a/", "a", "a/b/", "a/f"}[i/2%4]
		source := filepath.Join(src, "tree") + []string{"/.", "/.", "/b/.", "/f"}[i/2%4]
		if _, err := c.Push(ctx, []string{source}, endpointAt(addr), dst, o); err == nil {
			pushed++
		}
	}
	stop()
	if pulled == 0 || pushed == 0 {
		t.Errorf("%d pulls and %d pushes were whole: nothing was tried", pulled, pushed)
	}
	t.Logf("%d pulls and %d pushes were whole", pulled, pushed)
	names, err := os.ReadDir(outside)
	if err != nil || len(names) != 2 {
		t.Errorf("outside has %v: %v", names, err)
	}
	for _, name := range []string{"f", "secret"} {
		if b, err := os.ReadFile(filepath.Join(outside, name)); err != nil || string(b) != secret {
			t.Errorf("%s outside is %q: %v", name, b, err)
		}
	}
}

// noSecret searches all files that a pull wrote.
func noSecret(t *testing.T, dir, secret string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err != nil || !e.Type().IsRegular() {
			return err
		}
		b, err := os.ReadFile(path)
		if strings.Contains(string(b), secret) {
			t.Errorf("%s is of outside", path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A client's path leads only below the root.
func TestHostilePaths(t *testing.T) {
	OnHost(t)
	root, addr, _ := hostileServer(t)
	outside := t.TempDir()
	const secret = "what nobody is to see"
	if err := os.WriteFile(filepath.Join(outside, "secret"), []byte(secret), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, target := range map[string]string{"out": outside, "up": "..", "file": filepath.Join(outside, "secret"), "rel": "../../../../../../.." + outside} {
		if err := os.Symlink(target, filepath.Join(root, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(root, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	src := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(src, []byte("pushed"), 0o644); err != nil {
		t.Fatal(err)
	}
	c := Client{TCP: tcp.New()}
	up := strings.Repeat("../", 20)
	for _, path := range []string{
		outside, outside + "/secret", up + outside + "/secret", "d/" + up + outside + "/secret", "out", "out/", "out/secret", "out/.", "out/../out/secret", "up" + outside + "/secret",
		"rel/secret", "file", "file/", "d/../out/secret", "./out/./secret", "//out//secret", "d/\x00/../../out", strings.Repeat("a/", 2500), strings.Repeat("n", 300), "..", "/..", "../", "up/..", "",
	} {
		o := *byTCP().options()
		for _, follow := range []bool{false, true} {
			dst := t.TempDir()
			o.Follow = follow
			_, _ = c.Pull(t.Context(), endpointAt(addr), []string{path}, dst, o)
			noSecret(t, dst, secret)
		}
		_, _ = c.Push(t.Context(), []string{src}, endpointAt(addr), path, o)
		if b, err := os.ReadFile(filepath.Join(outside, "secret")); err != nil || string(b) != secret {
			t.Fatalf("%q reached outside: %q, %v", path, b, err)
		}
		if names, _ := os.ReadDir(outside); len(names) != 1 {
			t.Fatalf("%q made %v outside", path, names)
		}
	}
}
