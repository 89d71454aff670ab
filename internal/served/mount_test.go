package served

import (
	"errors"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// bind bind-mounts a directory.
func bind(t *testing.T, from, to string) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounts: needs root")
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(from, to, "", unix.MS_BIND, ""); err != nil {
		t.Skipf("mounts, and may not here: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(to, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
}

// The location of a directory does not depend on the mount through which it is reached.
func TestBindMounts(t *testing.T) {
	dir := tree(t, map[string]string{"data/b@": "DIR/out", "data/c/name": "C", "out/name": "O", "data/key": ""})
	bind(t, dir+"/data", dir+"/outer")
	bind(t, dir+"/out", dir+"/data/c/d")
	add(t, dir, map[string]string{"out/e@": "DIR/out", "out/key": ""})
	s := hold(t, wants(dir, "rw outer", "ro data/b", "ro data/c", "ro data/c/d", "ro data/c/d/e"), nil)
	for path, planted := range map[string]bool{"data/b": true, "data/c": false, "data/c/d": false, "data/c/d/e": true} {
		if err := s.Dir(dir + "/" + path).Err(); errors.Is(err, errPlanted) != planted || !planted && err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if n := len(s.Nested()); n != 2 {
		t.Errorf("%d directories lie below the outer one: %v", n, s.Nested())
	}
	for _, file := range []string{"data/key", "outer/key", "data/c/d/key"} {
		if _, err := s.Guard(dir + "/" + file); !errors.As(err, new(*ReachedError)) {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// If another mount now covers the path of a directory, it is another directory.
func TestHoldAnewByAnotherMount(t *testing.T) {
	dir := tree(t, map[string]string{"a/name": "A", "b/name": "B"})
	before := hold(t, wants(dir, "rw a"), nil)
	bind(t, dir+"/b", dir+"/a")
	if got := nameIn(before.Dir(dir + "/a")); got != "A" {
		t.Errorf("what is held became %q", got)
	}
	s := hold(t, wants(dir, "rw a"), before)
	if got := nameIn(s.Dir(dir + "/a")); got != "B" || s.Dir(dir+"/a") == before.Dir(dir+"/a") {
		t.Errorf("read anew it is %q", got)
	}
	bind(t, dir+"/b", dir+"/a") // the same directory through another mount, which may be read-only
	if hold(t, wants(dir, "rw a"), s).Dir(dir+"/a") == s.Dir(dir+"/a") {
		t.Error("the mount before stays in use")
	}
}

// A part of a directory that is mounted a second time is still a part of it,
// and mounts below a directory belong to it.
func TestPartsThatAreMounted(t *testing.T) {
	dir := tree(t, map[string]string{
		"a/sub dir/b@": "DIR/out", "a/sub dir/c/name": "C", "a/sub dir/key": "", "out/name": "O", "etc/keys/key": "", "a/etc/": "", "d/e/": "",
	})
	bind(t, dir+"/a/sub dir", dir+"/part")
	bind(t, dir+"/part/c", dir+"/d/e")
	bind(t, dir+"/etc/keys", dir+"/a/etc")
	s := hold(t, wants(dir, "rw a", "ro part/b", "ro part/c", "ro d/e", "ro out"), nil)
	if err := s.Dir(dir + "/part/b").Err(); !errors.Is(err, errPlanted) {
		t.Errorf("a link in the part: %v", err)
	}
	var got []string
	for _, n := range s.Nested() {
		got = append(got, n.Key+" in "+n.OuterKey)
	}
	if want := []string{"d/e in a", "part/c in a"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, file := range []string{"part/key", "etc/keys/key"} {
		if _, err := s.Guard(dir + "/" + file); !errors.As(err, new(*ReachedError)) {
			t.Errorf("%s: %v", file, err)
		}
	}
	if _, err := s.Guard(dir + "/" + "d/none"); errors.As(err, new(*ReachedError)) {
		t.Error(err)
	}
}

func TestUnescape(t *testing.T) {
	for s, want := range map[string]string{`/a\040b\134040`: `/a b\040`, `/a\04`: `/a\04`, `\011\012`: "\t\n", `/\999`: `/\999`} {
		if got := unescape(s); got != want {
			t.Errorf("%q: %q", s, got)
		}
	}
}
