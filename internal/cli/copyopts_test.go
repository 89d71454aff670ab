package cli

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gdrcp/rdma/rdmatest"

	"golang.org/x/sys/unix"
)

// With any options for the transport and the ring, the same content arrives, with the
// same root.
func TestTransferOptions(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	files := map[string]string{"big": strings.Repeat("compressible ", 300_000), "small": "s", "empty": "", "sub/x": "x"}
	makeFiles(t, dir+"/t", files)
	var root string
	for i, options := range []string{
		"", "--qps 4", "--slots 1", "--slots 2 --chunk-size 2MiB", "--chunk-size 64M --slots 2", "--imm send", "--imm auto", "--no-fsync",
		"--compress zstd", "--compress s2", "--compress auto", "--compress off", "-p", "-L", "-a", "-a --no-o --no-times", "-og --numeric-ids",
	} {
		if !rdmatest.Picked(t, options) {
			continue
		}
		name := filepath.Join("case", string(rune('a'+i)))
		makeFiles(t, s.root, map[string]string{"case/": ""})
		r := gdrcp(t, append([]string{"--json", "-r", "--transport", "tcp", dir + "/t", s.url(name)}, strings.Fields(options)...)...).want(t, exitOK)
		summary := r.event(t, "summary")
		if got := summary["root"].(string); root != "" && got != root {
			t.Errorf("%s: root %s, elsewhere %s", options, got, root)
		} else {
			root = got
		}
		if got := listFiles(t, filepath.Join(s.root, name)); !maps.Equal(got, files) {
			t.Errorf("%s: other files arrived", options)
		}
		shrunk := summary["wire_bytes"].(float64) < summary["bytes"].(float64)/2
		if compressed := strings.Contains(options, "compress") && !strings.Contains(options, "off"); shrunk != compressed {
			t.Errorf("%s: %v bytes took %v on the wire", options, summary["bytes"], summary["wire_bytes"])
		}
		if sent := summary["imm"] == "write+send"; sent != (options == "--imm send") {
			t.Errorf("%s: immediates by %v", options, summary["imm"])
		}
	}
}

func TestFollowLinks(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"blobs/x": "content", "t/": ""})
	if err := os.Symlink("../blobs/x", dir+"/t/model"); err != nil {
		t.Fatal(err)
	}
	gdrcp(t, "-rl", dir+"/t", s.url("links")).want(t, exitOK)
	gdrcp(t, "-rL", dir+"/t", s.url("files")).want(t, exitOK)
	gdrcp(t, dir+"/t/model", s.url("file")).want(t, exitOK)
	want := map[string]string{"links/model": "-> ../blobs/x", "files/model": "content", "file": "content"}
	if got := listFiles(t, s.root); !maps.Equal(got, want) {
		t.Errorf("got %v", got)
	}
}

// Files that do not match the given manifest are not published; the others are.
func TestCopyThatMustMeetAManifest(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "t/b": "B", "t/c": "C", "t/gone": "G"})
	gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/m").want(t, exitOK)
	gdrcp(t, "-r", "--manifest", dir+"/m", dir+"/t", s.url("good")).want(t, exitOK)
	makeFiles(t, dir, map[string]string{"t/b": "X", "t/new": "N"})
	if err := os.Remove(dir + "/t/gone"); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"a": "A", "c": "C"}
	r := gdrcp(t, "-r", "--manifest", dir+"/m", dir+"/t", s.url("pushed")).want(t, exitIntegrity)
	for _, text := range []string{`"b": `, `"new": `, `"gone": `, "; 2 corrupt; 1 missing\n"} {
		if !strings.Contains(r.err, text) {
			t.Errorf("it did not write %q but\n%s", text, r.err)
		}
	}
	if got := listFiles(t, s.root+"/pushed"); !maps.Equal(got, want) {
		t.Errorf("pushed: got %v", got)
	}
	if err := os.Rename(dir+"/t", s.root+"/t"); err != nil {
		t.Fatal(err)
	}
	gdrcp(t, "-r", "--manifest", dir+"/m", s.url("t"), dir+"/pulled").want(t, exitIntegrity)
	if got := listFiles(t, dir+"/pulled"); !maps.Equal(got, want) {
		t.Errorf("pulled: got %v", got)
	}
	gdrcp(t, "-r", "--manifest", dir+"/m", "--hash", "blake3", s.url("good"), dir+"/other").want(t, exitUsage)
	gdrcp(t, "-r", "--manifest", dir+"/none", s.url("good"), dir+"/other").want(t, exitError)
}

func TestUnwritableDestinations(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	makeFiles(t, s.root, map[string]string{"a": "A"})
	// Nobody can write there, not even root.
	r := gdrcp(t, s.url("a"), "/proc/self/gdrcp-test").want(t, exitPartial)
	if !strings.HasPrefix(r.err, "gdrcp: ") || strings.Count(r.err, "\n") != 2 {
		t.Errorf("it wrote %q", r.err)
	}
	r = gdrcp(t, dir+"/a", s.url("a"), "--write-manifest", dir+"/none/m").want(t, exitError)
	if !strings.Contains(r.err, "no such file or directory") {
		t.Errorf("it wrote %q", r.err)
	}
	if os.Geteuid() == 0 {
		return // root may read and write what the rest of this test forbids
	}
	for _, path := range []string{dir + "/locked", s.root + "/locked"} {
		if err := os.Mkdir(path, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{dir + "/a", s.url("locked/")}, {s.url("a"), dir + "/locked"}} {
		if r := gdrcp(t, args...); r.code != exitPartial && r.code != exitError || !strings.Contains(r.err, "permission denied") {
			t.Errorf("%v: exit code %d, and it wrote %q", args, r.code, r.err)
		}
	}
	if err := os.Chmod(dir+"/a", 0); err != nil {
		t.Fatal(err)
	}
	makeFiles(t, dir, map[string]string{"b": "B"})
	if r := gdrcp(t, dir+"/a", dir+"/b", s.url("")).want(t, exitPartial); !strings.Contains(r.err, "permission denied") {
		t.Errorf("an unreadable file: it wrote %q", r.err)
	}
}

// A destination without enough space is reported before anything is copied.
func TestFullDisk(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	small := dir + "/small"
	makeFiles(t, dir, map[string]string{"big": strings.Repeat("x", 4<<20), "small/": ""})
	makeFiles(t, s.root, map[string]string{"big": strings.Repeat("x", 4<<20)})
	if err := unix.Mount("tmpfs", small, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("cannot mount a small file system: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(small, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	r := gdrcp(t, s.url("big"), small).want(t, exitError)
	if !strings.Contains(r.err, "no space left") || !strings.Contains(r.err, "hint: make room at the destination") || strings.Count(r.err, "gdrcp: ") != 1 {
		t.Errorf("it wrote %q", r.err)
	}
	if got := listFiles(t, small); len(got) != 0 {
		t.Errorf("there is %v", got)
	}
	// Directories created by then are removed; existing ones are not.
	makeFiles(t, small, map[string]string{"old/": ""})
	makeFiles(t, s.root, map[string]string{"t/big": strings.Repeat("x", 4<<20), "t/sub/deep/big": strings.Repeat("x", 4<<20)})
	makeFiles(t, dir, map[string]string{"names": "big\nsub/deep/big\n"})
	for _, args := range [][]string{{"-r"}, {"-a"}, {"-rp"}, {"--files-from", dir + "/names"}} {
		for _, dst := range []string{"/new", "/old", ""} {
			r = gdrcp(t, append(args, s.url("t"), small+dst)...).want(t, exitError)
			if got := listFiles(t, small); !maps.Equal(got, map[string]string{"old/": ""}) || !strings.Contains(r.err, "no space left") || strings.Count(r.err, "\n") != 2 {
				t.Errorf("%v to %q left %v, and it wrote %q", args, dst, got, r.err)
			}
		}
	}
	// So are links: a link would keep the new directory from being removed, and the
	// same command would then copy into it.
	makeFiles(t, s.root, map[string]string{"l/big": strings.Repeat("x", 4<<20), "l/sub/": ""})
	for _, link := range []string{"/l/a", "/l/sub/z"} {
		if err := os.Symlink("big", s.root+link); err != nil {
			t.Fatal(err)
		}
	}
	r = gdrcp(t, "-a", s.url("l"), small+"/new").want(t, exitError)
	if got := listFiles(t, small); !maps.Equal(got, map[string]string{"old/": ""}) || !strings.Contains(r.err, "no space left") {
		t.Errorf("a tree with links left %v, and it wrote %q", got, r.err)
	}
}

// mountTree makes a tree below dir with another file system mounted at dir/t/mount,
// between two directories of the first file system.
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

// -x excludes what rsync excludes: with links, with lists, with several sources, when
// pushing and when pulling.
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

// As in rsync, --delete does not touch what -x does not visit: entries of the
// destination at the place of a mount in the source, entries on another file system at
// the destination, and directories that contain a mount.
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
		gone    string // paths of deleted entries, relative to the destination
	}{
		{"-ax --delete", []string{"t"}, "t/old"},
		{"-ax --delete", []string{"t/."}, "old"},
		{"-ax --delete", []string{"t/mount", "t/z"}, "mount/old"}, // each separately
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

// destinationWithMounts makes a destination with more entries than mountTree, some of
// them on other file systems.
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
