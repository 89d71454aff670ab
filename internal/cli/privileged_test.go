package cli

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Attributes that give programs privileges leave a served root only if the key permits
// it, and a client keeps them only if its user asks for that. Set-ID bits of
// directories give no privileges.
func TestPrivilegedAttributes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root has attributes of the namespace trusted")
	}
	c := newAccess(t)
	roots := map[string]string{"plain": c.add(t, "plain"), "all": c.add(t, "all", "--all-attributes")}
	for _, root := range roots {
		for _, name := range []string{"user.u", "trusted.t"} {
			if err := unix.Setxattr(root+"/name", name, []byte("v"), 0); err != nil {
				t.Skipf("%s: %v", name, err)
			}
		}
		if err := os.Mkdir(root+"/d", 0o755); err != nil {
			t.Fatal(err)
		}
		for path, mode := range map[string]uint32{"/name": 0o4755, "/d": 0o2755} {
			if err := unix.Chmod(root+path, mode); err != nil {
				t.Fatal(err)
			}
		}
	}
	s := serveAccess(t, nil, "--access-file", c.file)
	for _, k := range []struct {
		key     string
		options []string
		trusted bool
		mode    uint32
	}{
		{"plain", nil, false, 0o755},
		{"all", nil, false, 0o755},
		{"plain", []string{"--privileged"}, false, 0o4755},
		{"all", []string{"--privileged"}, true, 0o4755},
	} {
		dst := t.TempDir()
		for range 2 { // an existing file is updated in the same way
			gdrcp(t, append(append([]string{"-aX", "--key-file", c.key(k.key)}, k.options...), s.url("."), dst)...).want(t, exitOK)
			var f, d unix.Stat_t
			if err := unix.Stat(dst+"/name", &f); err != nil {
				t.Fatal(err)
			}
			if err := unix.Stat(dst+"/d", &d); err != nil {
				t.Fatal(err)
			}
			_, user := unix.Getxattr(dst+"/name", "user.u", nil)
			_, trusted := unix.Getxattr(dst+"/name", "trusted.t", nil)
			if user != nil || (trusted == nil) != k.trusted || f.Mode&0o7777 != k.mode || d.Mode&0o7777 != 0o2755 {
				t.Errorf("key %s, %q: user %v, trusted %v, modes %o and %o", k.key, k.options, user, trusted, f.Mode&0o7777, d.Mode&0o7777)
			}
		}
	}
	// A host that the user logs in to is trusted.
	dst := t.TempDir()
	gdrcp(t, "-aX", roots["plain"]+"/.", dst).want(t, exitOK)
	if _, err := unix.Getxattr(dst+"/name", "trusted.t", nil); err != nil {
		t.Error(err)
	}
}
