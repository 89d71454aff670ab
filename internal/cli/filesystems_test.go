package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// mountTree makes a tree below dir in which another file system is mounted at
// dir/t/mount, with a directory of the first one on both sides of it.
func mountTree(t *testing.T, dir string) {
	t.Helper()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/mount/": "", "t/mount-b": "B", "t/z/deep/c": "C"})
	if err := unix.Mount("tmpfs", dir+"/t/mount", "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir+"/t/mount", unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	makeFiles(t, dir, map[string]string{"t/mount/in": "I", "t/mount/sub/x": "X"})
	for link, to := range map[string]string{"t/tomount": "mount/sub", "t/tofile": "mount/in", "t/todir": "z"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
}

// -x leaves out what rsync leaves out: with links, with lists, and of several sources,
// pushed and pulled.
func TestOneFileSystem(t *testing.T) {
	rsync := rsyncHere(t)
	s := startServer(t)
	dir := t.TempDir()
	mountTree(t, dir)
	served := s.root + "/src"
	makeFiles(t, s.root, map[string]string{"src/": ""})
	mountTree(t, served)
	makeFiles(t, dir, map[string]string{"list": "a\nmount/sub/x\nz/\n", "dirs": "mount\nz\n"})
	for i, c := range []struct {
		options string
		sources []string // below dir
		files   int
	}{
		{"-a", []string{"t"}, 8},
		{"-ax", []string{"t"}, 7},
		{"-rLx", []string{"t"}, 7},
		{"-ax", []string{"t/mount"}, 2},
		{"-ax", []string{"t/mount", "t/z", "t/a"}, 4},
		{"-ax --no-x", []string{"t"}, 8},
		{"-arx --files-from " + dir + "/list", []string{"t"}, 3},
		{"-arx --files-from " + dir + "/dirs", []string{"t"}, 3},
	} {
		name := "case" + string(rune('a'+i))
		theirs, pulled := dir+"/theirs"+name, dir+"/pulled"+name
		makeFiles(t, "/", map[string]string{theirs + "/": "", pulled + "/": "", s.root + "/" + name + "/": ""})
		options := strings.Fields(c.options)
		args, push, pull := slices.Clone(options), slices.Clone(options), slices.Clone(options)
		for _, source := range c.sources {
			args, push, pull = append(args, dir+"/"+source), append(push, dir+"/"+source), append(pull, s.url("src/"+source))
		}
		rsync(append(args, theirs)...)
		gdrcp(t, append(push, s.url(name))...).want(t, exitOK)
		gdrcp(t, append(pull, pulled)...).want(t, exitOK)
		want := listFiles(t, theirs)
		if len(want) != c.files {
			t.Errorf("%s %s: rsync copied %v", c.options, c.sources, want)
		}
		for what, got := range map[string]map[string]string{"pushed": listFiles(t, s.root+"/"+name), "pulled": listFiles(t, pulled)} {
			if !maps.Equal(got, want) {
				t.Errorf("%s %s: %s %v, rsync %v", c.options, c.sources, what, got, want)
			}
		}
	}
}

// --delete leaves alone what -x does not look at, as rsync's does: what the destination
// has where the source has another file system mounted, what lies on another one at
// the destination, and directories there that have one mounted below them.
func TestDeleteOnOneFileSystem(t *testing.T) {
	rsync := rsyncHere(t)
	s := startServer(t)
	dir := t.TempDir()
	mountTree(t, dir)
	makeFiles(t, s.root, map[string]string{"src/": ""})
	mountTree(t, s.root+"/src")
	for i, c := range []struct {
		options string
		sources []string
		gone    string // below the destination, one of what is deleted
	}{
		{"-ax --delete", []string{"t"}, "t/old"},
		{"-ax --delete", []string{"t/."}, "old"},
		{"-ax --delete", []string{"t/mount", "t/z"}, "mount/old"}, // each on its own
		{"-axn --delete", []string{"t"}, ""},
	} {
		name := "case" + string(rune('a'+i))
		theirs, pushed, pulled := dir+"/theirs"+name, s.root+"/"+name, dir+"/pulled"+name
		for _, dst := range []string{theirs, pushed, pulled} {
			destinationWithMounts(t, dst, len(c.sources) == 1 && c.sources[0] == "t")
		}
		before := listFiles(t, theirs)
		options := strings.Fields(c.options)
		args, push, pull := slices.Clone(options), slices.Clone(options), slices.Clone(options)
		for _, source := range c.sources {
			args, push, pull = append(args, dir+"/"+source), append(push, dir+"/"+source), append(pull, s.url("src/"+source))
		}
		rsync(append(args, theirs)...)
		want := listFiles(t, theirs)
		if _, kept := want[c.gone]; c.gone != "" && kept || before[c.gone] == "" && c.gone != "" {
			t.Errorf("%s %s: rsync kept %s: %v", c.options, c.sources, c.gone, want)
		}
		gdrcp(t, append(push, s.url(name))...).want(t, exitOK)
		gdrcp(t, append(pull, pulled)...).want(t, exitOK)
		for what, got := range map[string]map[string]string{"pushed": listFiles(t, pushed), "pulled": listFiles(t, pulled)} {
			if !maps.Equal(got, want) {
				t.Errorf("%s %s: %s\n%v\nrsync\n%v", c.options, c.sources, what, got, want)
			}
		}
	}
}

// destinationWithMounts makes a destination that has more than mountTree, in part on
// file systems of their own.
func destinationWithMounts(t *testing.T, dst string, under bool) {
	t.Helper()
	top := dst
	if under {
		top = dst + "/t"
	}
	makeFiles(t, "/", map[string]string{
		top + "/old": "O", top + "/mount/old": "O", top + "/mount/sub/old": "O", top + "/z/": "", top + "/gone/x": "X", top + "/gone/m/": "", top + "/m/": "", top + "/away/x": "X",
	})
	for _, at := range []string{"/z", "/gone/m", "/m"} {
		if err := unix.Mount("tmpfs", top+at, "tmpfs", 0, "size=1m"); err != nil {
			t.Skipf("cannot mount a file system: %v", err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(top+at, unix.MNT_DETACH); err != nil {
				t.Error(err)
			}
		})
		makeFiles(t, top, map[string]string{at[1:] + "/old": "O", at[1:] + "/deep/old": "O"})
	}
}
