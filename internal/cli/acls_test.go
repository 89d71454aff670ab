package cli

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	accessACL  = "system.posix_acl_access"
	defaultACL = "system.posix_acl_default"
)

// aclFor returns an ACL in which user 12 has an entry of its own.
func aclFor(owner, user, group, mask, others uint16) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 2)
	for _, e := range [][3]uint32{{1, uint32(owner), 1<<32 - 1}, {2, uint32(user), 12}, {4, uint32(group), 1<<32 - 1}, {16, uint32(mask), 1<<32 - 1}, {32, uint32(others), 1<<32 - 1}} {
		b = binary.LittleEndian.AppendUint16(b, uint16(e[0]))
		b = binary.LittleEndian.AppendUint16(b, uint16(e[1]))
		b = binary.LittleEndian.AppendUint32(b, e[2])
	}
	return b
}

func setACL(t *testing.T, path, name string, acl []byte) {
	t.Helper()
	if err := unix.Setxattr(path, name, acl, 0); err != nil {
		t.Skipf("no file system with ACLs: %v", err)
	}
}

// rightsOf returns the mode and the ACLs of a path.
func rightsOf(t *testing.T, path string) (is [3]string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	is[0] = os.FileMode(st.Mode & 0o777).String()
	for i, name := range []string{accessACL, defaultACL} {
		b := make([]byte, 1024)
		if n, err := unix.Getxattr(path, name, b); err == nil {
			is[1+i] = string(b[:n])
		}
	}
	return is
}

var aclNames = []string{"named", "plain", "denied", "d", "d/f", "e"}

// aclTree makes files and directories with and without ACLs.
func aclTree(t *testing.T, dir string) {
	t.Helper()
	for _, d := range []string{"/d", "/e"} {
		if err := os.MkdirAll(dir+d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	makeFiles(t, dir, map[string]string{"named": "n", "plain": "p", "denied": "x", "d/f": "f"})
	for name, mode := range map[string]os.FileMode{"named": 0o600, "plain": 0o640, "denied": 0o644, "d/f": 0o604, "e": 0o750} {
		if err := os.Chmod(dir+"/"+name, mode); err != nil {
			t.Fatal(err)
		}
	}
	setACL(t, dir+"/named", accessACL, aclFor(6, 6, 0, 6, 0))
	setACL(t, dir+"/denied", accessACL, aclFor(6, 0, 4, 4, 4))
	setACL(t, dir+"/d", accessACL, aclFor(7, 7, 5, 7, 0))
	setACL(t, dir+"/d", defaultACL, aclFor(7, 7, 0, 7, 0))
}

// -A copies ACLs from the source, including default ACLs of directories, and removes
// ACLs that the source lacks. Correct ACLs are not touched.
func TestACLsAreKept(t *testing.T) {
	s := startServer(t)
	for name, way := range map[string]func(src, dst string) (from, to string){
		"local": func(src, dst string) (string, string) { return src + "/.", dst },
		"push":  func(src, dst string) (string, string) { return src + "/.", s.url(strings.TrimPrefix(dst, s.root+"/")) },
		"pull":  func(src, dst string) (string, string) { return s.url(strings.TrimPrefix(src, s.root+"/") + "/."), dst },
	} {
		t.Run(name, func(t *testing.T) {
			src, dst := s.root+"/"+name+"-from", s.root+"/"+name+"-to"
			aclTree(t, src)
			for _, d := range []string{dst, dst + "/e"} { // the existing directories have other ACLs
				if err := os.MkdirAll(d, 0o755); err != nil {
					t.Fatal(err)
				}
				setACL(t, d, defaultACL, aclFor(7, 7, 7, 7, 7))
			}
			makeFiles(t, dst, map[string]string{"plain": "old"})
			setACL(t, dst+"/plain", accessACL, aclFor(6, 6, 6, 6, 6))
			var before unix.Stat_t
			for again := range 3 {
				from, to := way(src, dst)
				gdrcp(t, "-rtA", from, to).want(t, exitOK)
				for _, name := range aclNames {
					if got, want := rightsOf(t, dst+"/"+name), rightsOf(t, src+"/"+name); got != want {
						t.Errorf("run %d, %s: %q, want %q", again, name, got, want)
					}
				}
				var now unix.Stat_t
				if err := unix.Stat(dst+"/named", &now); err != nil {
					t.Fatal(err)
				}
				if again == 1 && now.Ctim != before.Ctim {
					t.Error("a file that has all was changed")
				}
				before = now
				if again == 1 { // the third run repairs only the permissions
					setACL(t, dst+"/named", accessACL, aclFor(6, 7, 7, 7, 7))
					setACL(t, dst+"/e", defaultACL, aclFor(7, 7, 7, 7, 7))
					setACL(t, dst+"/d/f", accessACL, aclFor(6, 7, 7, 7, 7))
				}
			}
		})
	}
}

// If ACLs cannot be set, the content is still copied, and nobody gets more permissions
// than at the source: neither a user to whom an ACL gives fewer rights than to others,
// nor users who are limited only by a mask.
func TestACLsThatCannotBeSet(t *testing.T) {
	src, dst := t.TempDir(), t.TempDir()
	aclTree(t, src)
	if err := unix.Mount("ramfs", dst, "ramfs", 0, ""); err != nil {
		t.Skipf("a file system without ACLs: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(dst, unix.MNT_DETACH) })
	r := gdrcp(t, "-rtA", src+"/.", dst).want(t, exitPartial)
	if !strings.Contains(r.err, "ACL") || strings.Count(r.err, "ACL") > 2 {
		t.Errorf("it wrote %q", r.err)
	}
	for name, mode := range map[string]string{"named": "-rw-------", "plain": "-rw-r-----", "denied": "-rw-------", "d": "-rwxr-x---", "d/f": "-rw----r--", "e": "-rwxr-x---"} {
		if got := rightsOf(t, dst+"/"+name); got != [3]string{mode} {
			t.Errorf("%s: %q, want %s", name, got, mode)
		}
	}
	if got := listFiles(t, dst); got["denied"] != "x" || got["named"] != "n" || got["d/f"] != "f" {
		t.Errorf("content: %v", got)
	}
	gdrcp(t, "-rtA", "--require-attributes", src+"/named", dst+"/again").want(t, exitPartial)
	if _, err := os.Lstat(dst + "/again"); err == nil {
		t.Error("a file was made without the ACL that is required")
	}
}
