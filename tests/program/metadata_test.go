package program

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// needRsync skips a test that needs rsync as its reference.
func needRsync(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("rsync"); err != nil {
		t.Skip("needs rsync: install rsync")
	}
}

// rsync runs rsync and returns its output.
func rsync(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("rsync", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("rsync %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// metadataTree makes a random tree whose entries have random modes, times and, if root
// runs the test, owners.
type metadataTree struct {
	*rand.Rand
	t     *testing.T
	dir   string
	dirs  []string // below dir
	files []string
}

func makeMetadataTree(t *testing.T, dir string, seed uint64) *metadataTree {
	t.Helper()
	m := &metadataTree{Rand: rand.New(rand.NewPCG(seed, 5)), t: t, dir: dir, dirs: []string{""}}
	must(t, os.MkdirAll(dir, 0o755))
	for i := range 12 {
		name := filepath.Join(m.dirs[m.IntN(len(m.dirs))], fmt.Sprintf("d%d", i))
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		m.dirs = append(m.dirs, name)
	}
	for i := range 60 {
		name := filepath.Join(m.dirs[m.IntN(len(m.dirs))], fmt.Sprintf("f%d", i))
		makeFile(t, filepath.Join(dir, name), m.Int64N(3000), seed+uint64(i))
		m.files = append(m.files, name)
	}
	makeFile(t, filepath.Join(dir, "large"), 3<<20+17, seed)
	m.files = append(m.files, "large")
	for i := range 25 { // further names that sort before and after the first; several for one file
		name := filepath.Join(m.dirs[m.IntN(len(m.dirs))], fmt.Sprintf("%c%d", "ahz"[i%3], i))
		must(t, os.Link(filepath.Join(dir, m.files[m.IntN(8)*8]), filepath.Join(dir, name)))
	}
	must(t, os.Link(filepath.Join(dir, "large"), filepath.Join(dir, m.dirs[3], "larger")))
	must(t, os.Link(filepath.Join(dir, m.files[5]), dir+".elsewhere")) // a name that is not in the tree
	for i := range 10 {
		name := filepath.Join(m.dirs[m.IntN(len(m.dirs))], fmt.Sprintf("l%d", i))
		must(t, os.Symlink(fmt.Sprintf("f%d", i), filepath.Join(dir, name)))
		m.dress(name)
	}
	return m
}

// finish gives each entry its metadata, the contents of directories first.
func (m *metadataTree) finish() {
	for _, name := range m.files {
		m.dress(name)
	}
	for i := len(m.dirs) - 1; i >= 0; i-- {
		m.dress(m.dirs[i])
	}
}

func (m *metadataTree) dress(name string) {
	m.t.Helper()
	path := filepath.Join(m.dir, name)
	st, err := os.Lstat(path)
	must(m.t, err)
	if os.Getuid() == 0 {
		must(m.t, os.Lchown(path, m.IntN(4)*1001, m.IntN(4)*1002)) // some owners have a name here, most do not
	}
	m.dressXattrs(path, kind(st.Mode()) == "l")
	if kind(st.Mode()) != "l" {
		// Set the number by a system call: os.Chmod ignores set-ID bits in one.
		mode := uint32(m.IntN(0o10000)) | 0o400
		if st.IsDir() {
			mode |= 0o700
		}
		must(m.t, unix.Chmod(path, mode))
	}
	when := []unix.Timespec{{Nsec: unix.UTIME_NOW}, {Sec: 1e9 + m.Int64N(1e8), Nsec: m.Int64N(1e9)}}
	must(m.t, unix.UtimesNanoAt(unix.AT_FDCWD, path, when, unix.AT_SYMLINK_NOFOLLOW))
}

// dressXattrs sets random extended attributes. Links cannot have those of the user
// namespace, and only root may set others.
func (m *metadataTree) dressXattrs(path string, isLink bool) {
	m.t.Helper()
	names := []string{"user.a", "user.b", "user.c.d", "trusted.t", "trusted.u"}
	if os.Getuid() != 0 {
		names = names[:3]
	}
	if isLink {
		names = names[3:]
	}
	for _, name := range names {
		if err := unix.Lremovexattr(path, name); err != nil && !errors.Is(err, unix.ENODATA) {
			must(m.t, err)
		}
		if m.IntN(3) > 0 {
			continue
		}
		value := make([]byte, m.IntN(4)*m.IntN(300))
		for i := range value {
			value[i] = byte(m.Uint32())
		}
		must(m.t, unix.Lsetxattr(path, name, value, 0))
	}
}

// wantSame lets rsync report what is needed to make b equal to a: everything that it
// keeps with these options, modes and owners.
func wantSame(t *testing.T, options, a, b string) {
	t.Helper()
	if said := rsync(t, options, "-nic", "--delete", a+"/", b+"/"); said != "" {
		t.Errorf("rsync %s finds that %s is not what %s is:\n%s", options, b, a, said)
	}
}

// privileged returns the option with which a pull keeps set-ID bits, as rsync does.
func privileged(d direction) []string {
	if d.push {
		return nil
	}
	return []string{"--privileged"}
}

// clearSetIDs removes set-ID bits from everything below dir.
func clearSetIDs(t *testing.T, dir string) {
	t.Helper()
	for name, st := range namesBelow(t, dir) {
		if st.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			must(t, os.Chmod(filepath.Join(dir, name), st.Mode()&^(fs.ModeSetuid|fs.ModeSetgid)))
		}
	}
}

// TestMetadataAsRsync copies random trees with rsync and with gdrcp, to a new
// destination and then over that copy, and lets rsync look for differences.
func TestMetadataAsRsync(t *testing.T) {
	onHost(t)
	needRsync(t)
	umask := unix.Umask(0o027)
	defer unix.Umask(umask)
	for i, c := range []struct{ options, judge string }{
		{"-a", "-rlptog"}, {"-rl", "-rlpog"}, {"-rlt", "-rlptog"}, {"-rlp", "-rlpog"}, {"-rltog", "-rlptog"}, {"-rlptg", "-rlptog"},
		{"-aH", "-rlptogH"}, {"-rH", "-rlpogH"}, {"-aHX", "-rlptogHX"}, {"-rlpX", "-rlpogX"}, {"-a --numeric-ids", "-rlptog"}, {"-a --no-t --no-links", "-rlpog"},
	} {
		words, all := strings.Fields(c.options), strings.HasPrefix(c.options, "-a")
		t.Run(c.options, func(t *testing.T) {
			bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
				m := makeMetadataTree(t, from+"/tree", uint64(i))
				other := t.TempDir()
				for range 2 {
					m.finish()
					rsync(t, append(words, "-c", from+"/tree", other+"/")...)
					copied := append(s.operands(d, s.via(), "tree/.", "tree"), words...)
					s.copy(t, append(append(copied, "--no-fsync"), privileged(d)...)...).wantCode(0)
					if d.push || !all {
						clearSetIDs(t, other+"/tree")
					}
					clearRootsXattrs(t, other+"/tree") // a served root accepts, and sends, only the user namespace
					if !d.push && !all {               // set-group-ID bits may be there
						clearSetIDs(t, to+"/tree")
					}
					wantSame(t, c.judge, other+"/tree", to+"/tree")
					noTemps(t, to)
				}
			})
		})
	}
}

// TestHardLinksInManifests: in roots and in manifests, a further name of a file counts
// as a file with its content, whether it is copied as a link or not.
func TestHardLinksInManifests(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		m := makeMetadataTree(t, from+"/tree", 77)
		m.finish()
		made, copied := t.TempDir()+"/made", t.TempDir()+"/copied"
		run(t, how{}, "manifest", "create", "-o", made, from+"/tree").wantCode(0)
		s.copy(t, append(append(s.operands(d, s.via(), "tree/.", "tree"), "-aH", "--write-manifest", copied), privileged(d)...)...).wantCode(0)
		run(t, how{}, "manifest", "diff", made, copied).wantCode(0)
		if !d.push { // a served root accepts no set-ID bits
			run(t, how{}, "manifest", "verify", "-p", made, to+"/tree").wantCode(0)
		}
		run(t, how{}, "manifest", "verify", copied, to+"/tree").wantCode(0)
		s.copy(t, append(s.operands(d, s.via(), "tree/.", "again"), append(privileged(d), "-aH", "--manifest", copied)...)...).wantCode(0)
		wantSame(t, "-rlptogH", to+"/tree", to+"/again")

		// If the manifest differs for one name, the file is not published under that
		// name.
		makeFile(t, from+"/tree/other", 100, 99)
		must(t, os.Link(from+"/tree/other", from+"/tree/d0/other"))
		s.copy(t, append(s.operands(d, s.via(), "tree/.", "third"), "-aH", "--manifest", copied)...).wantCode(4)
		if _, err := os.Lstat(to + "/third/d0/other"); err == nil {
			t.Error("what the manifest does not have was published")
		}
	})
}

// TestLinkToWhatWasNotCopied: if the first name of a file cannot be created, the others
// fail too, and their errors name it.
func TestLinkToWhatWasNotCopied(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/tree/first", 100, 1)
		must(t, os.Link(from+"/tree/first", from+"/tree/second"))
		must(t, os.MkdirAll(to+"/tree/first", 0o755))
		p := s.copy(t, append(s.operands(d, s.via(), "tree/.", "tree"), "-aH")...)
		p.wantCode(3)
		p.wantLines(`"first": is a directory`, `"second": it is another name of "first", which was not copied`)
		if _, err := os.Lstat(to + "/tree/second"); err == nil {
			t.Error("the second name was made")
		}
		noTemps(t, to)
	})
}

// TestMetadataWithoutRights: a user who may not change owners keeps his own, and gets
// only extended attributes of the user namespace. Nothing fails because of that.
func TestMetadataWithoutRights(t *testing.T) {
	onHost(t)
	asRoot(t)
	needRsync(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := &sides{here: reachable(t), there: reachable(t), as: how{uid: nobody}}
		s.server = serveAs(t, s.as, tcpLink(), s.there)
		from, to := s.ends(d)
		must(t, os.Chmod(to, 0o777))
		m := makeMetadataTree(t, from+"/tree", 5)
		m.finish()
		for name := range namesBelow(t, from+"/tree") { // all readable, with other owners and root's attributes
			if path := filepath.Join(from, "tree", name); kind(lstat(t, path).Mode()) != "l" {
				must(t, os.Chmod(path, lstat(t, path).Mode()|0o555))
			}
		}
		s.copy(t, append(s.operands(d, s.via(), "tree/.", "tree"), "-aHX")...).wantCode(0)
		for name := range namesBelow(t, to+"/tree") {
			var st unix.Stat_t
			must(t, unix.Lstat(filepath.Join(to, "tree", name), &st))
			if st.Uid != nobody || st.Gid != nobody {
				t.Errorf("%s is of %d:%d", name, st.Uid, st.Gid)
			}
		}
		// As root sees it, everything is the same except owners, root's attributes, and
		// set-ID bits, which would give an owner's rights.
		clearSetIDs(t, from+"/tree")
		clearRootsXattrs(t, from+"/tree")
		wantSame(t, "-rlptHX", from+"/tree", to+"/tree")
		noTemps(t, to)
	})
}

func lstat(t *testing.T, path string) fs.FileInfo {
	t.Helper()
	st, err := os.Lstat(path)
	must(t, err)
	return st
}

// clearRootsXattrs removes the attributes that makeMetadataTree set in root's
// namespaces.
func clearRootsXattrs(t *testing.T, dir string) {
	t.Helper()
	for name := range namesBelow(t, dir) {
		for _, attr := range []string{"trusted.t", "trusted.u"} {
			if err := unix.Lremovexattr(filepath.Join(dir, name), attr); err != nil && !errors.Is(err, unix.ENODATA) {
				t.Error(err)
			}
		}
	}
}

// TestManyXattrs copies more extended attributes than may be in flight together, for
// files, directories and files that are not copied.
func TestManyXattrs(t *testing.T) {
	onHost(t)
	needRsync(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		value := make([]byte, 60<<10)
		for i := range 200 {
			name := fmt.Sprintf("%s/tree/d%d/f%d", from, i%20, i)
			makeFile(t, name, 10, uint64(i))
			rand.NewChaCha8([32]byte{byte(i)}).Read(value)
			if err := unix.Setxattr(name, "user.large", value, 0); err != nil {
				t.Skipf("needs a file system with large extended attributes for TMPDIR: %v", err)
			}
			must(t, unix.Setxattr(filepath.Dir(name), "user.large", value, 0))
		}
		must(t, os.MkdirAll(to+"/tree/d3/f3", 0o755)) // in the way
		s.copy(t, append(s.operands(d, s.via(), "tree/.", "tree"), "-aX")...).wantCode(3)
		must(t, os.Remove(to+"/tree/d3/f3"))
		must(t, os.Remove(from+"/tree/d3/f3"))
		s.copy(t, append(s.operands(d, s.via(), "tree/d3/.", "tree/d3"), "-aX")...).wantCode(0) // its time differs
		wantSame(t, "-rlptX", from+"/tree", to+"/tree")
	})
}
