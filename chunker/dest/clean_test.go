package dest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

func TestCleanTakesOnlyItsOwn(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	hex := strings.Repeat("0123456789abcdef", 2)
	stays := []string{
		".gdrcp-" + hex[1:] + "=", ".gdrcp-" + hex + "0=", ".gdrcp-" + strings.ToUpper(hex) + "=",
		"gdrcp-" + hex + "=", ".gdrcp-" + hex[:31] + "g=", "x.gdrcp-" + hex + "=",
		".gdrcp-" + strings.Repeat("a", 32) + ">target", ".gdrcp-" + strings.Repeat("b", 32) + "/",
		"target=", ".gdrcp-" + strings.Repeat("c", 32) + "=locked", "sub/",
	}
	treetest.MakeTree(t, dir, stays...)
	treetest.MakeTree(t, dir, ".gdrcp-"+hex+"=left", "sub/.gdrcp-"+hex+"=left")
	if os.Geteuid() == 0 { // root may have given it away before it was killed
		foreign := ".gdrcp-" + strings.Repeat("d", 32) + "=foreign"
		treetest.MakeTree(t, dir, foreign)
		if err := os.Chown(filepath.Join(dir, strings.TrimSuffix(foreign, "=foreign")), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	locked, err := os.Open(filepath.Join(dir, ".gdrcp-"+strings.Repeat("c", 32)))
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	s := sinkInto(t, dir, Options{})
	s.sweep(s.base)
	treetest.WantTree(t, dir, slices.Concat(stays, []string{"sub/.gdrcp-" + hex + "=left"})...)
	// The directory below is cleaned when the first file goes there.
	if err := put(s, fileEntry("sub/f", ""), ""); err != nil {
		t.Fatal(err)
	}
	treetest.WantTree(t, dir, slices.Concat(stays, []string{"sub/f="})...)
	// A link is a leftover once it is old.
	sweepDir(s.hosts.in(s.base.FD), time.Now().Add(leftoverLinkAge+time.Second))
	stays = slices.DeleteFunc(stays, func(spec string) bool { return strings.HasSuffix(spec, ">target") })
	treetest.WantTree(t, dir, slices.Concat(stays, []string{"sub/f="})...)
	locked.Close()
	s.Close()
}

// TestWhoseLeftovers: root may have made what anybody has, everybody else what
// is theirs.
func TestWhoseLeftovers(t *testing.T) {
	for _, c := range []struct {
		euid  int
		owner uint32
		want  bool
	}{{0, 0, true}, {0, 1000, true}, {1000, 1000, true}, {1000, 0, false}, {1000, 1001, false}} {
		if got := mayBeOf(c.euid, &unix.Stat_t{Uid: c.owner}); got != c.want {
			t.Errorf("%d takes what %d has: %v", c.euid, c.owner, got)
		}
	}
}

// TestCleanTakesMany: more than one read of the directory gives.
func TestCleanTakesMany(t *testing.T) {
	dir := t.TempDir()
	for range 3000 {
		treetest.MakeTree(t, dir, fileset.TempName()+"=left")
	}
	treetest.MakeTree(t, dir, "stays=")
	s := sinkInto(t, dir, Options{})
	s.sweep(s.base)
	treetest.WantTree(t, dir, "stays=")
}

// TestTemporaryNamesAreReserved: what has one would be swept away one day.
func TestTemporaryNamesAreReserved(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	if err := put(s, fileEntry(fileset.TempName(), "x"), "x"); !errors.Is(err, fileset.ErrReserved) {
		t.Errorf("file: %v", err)
	}
	if err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: fileset.TempName(), Target: "x"}, nil); !errors.Is(err, fileset.ErrReserved) {
		t.Errorf("link: %v", err)
	}
	if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: fileset.TempName(), Mode: 0o755}, nil); err != nil {
		t.Errorf("directory: %v", err)
	}
}

// TestPartialFilesInTime: a sweep leaves a partial file for a week, as long as it and its
// journal belong together. Clean does not wait.
func TestPartialFilesInTime(t *testing.T) {
	dir := t.TempDir()
	f, g := newPartialFile("f", 8), newPartialFile("sub/g", 4)
	if err := os.Mkdir(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	f.cutOff(t, s, 3, 6)
	g.cutOff(t, s, 0, 2)
	for _, age := range []time.Duration{0, leftoverPartialAge - time.Hour} {
		sweepDir(s.hosts.in(s.base.FD), time.Now().Add(age))
		if names := namesIn(t, dir); len(names) != 3 {
			t.Fatalf("after %v there are %q", age, names)
		}
	}
	sweepDir(s.hosts.in(s.base.FD), time.Now().Add(leftoverPartialAge+time.Hour))
	treetest.WantTree(t, dir, append([]string{"sub/"}, listed(t, dir, "sub")...)...)

	f.cutOff(t, s, 3, 6)
	using, err := s.CreatePartial(newPartialFile("h", 3).entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	var removed []string
	bytes := int64(0)
	if err := Clean(t.Context(), dir, func(path string, _, n int64) { removed, bytes = append(removed, path), bytes+n }); err != nil {
		t.Fatal(err)
	}
	// Two partial files and their journals.
	if len(removed) != 4 || bytes < 8*partialPiece || !strings.HasPrefix(removed[2], "sub/") {
		t.Errorf("removed %q, %d bytes", removed, bytes)
	}
	if names := namesIn(t, dir); len(names) != 3 || len(namesIn(t, filepath.Join(dir, "sub"))) != 0 {
		t.Errorf("there are %q", names)
	}
	if err := using.Discard(); err != nil {
		t.Fatal(err)
	}
	if err := Clean(t.Context(), filepath.Join(dir, "none"), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("cleaning what is not there: %v", err)
	}
}

// listed lists a directory below dir in ListTree's words.
func listed(t *testing.T, dir, sub string) (specs []string) {
	t.Helper()
	for _, spec := range treetest.ListTree(t, dir) {
		if strings.HasPrefix(spec, sub+"/") && spec != sub+"/" {
			specs = append(specs, spec)
		}
	}
	return specs
}

// TestCleanEnds: a command that is interrupted removes nothing more.
func TestCleanEnds(t *testing.T) {
	dir := t.TempDir()
	name := ".gdrcp-" + strings.Repeat("0", 32)
	treetest.MakeTree(t, dir, name+"=left")
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	if err := Clean(ctx, dir, func(path string, _, _ int64) { t.Errorf("removed %s", path) }); !errors.Is(err, enough) {
		t.Errorf("%v", err)
	}
	treetest.WantTree(t, dir, name+"=left")
}

// TestCleanOfNoDirectory: what is no directory is an error at once, a fifo too.
func TestCleanOfNoDirectory(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "file=")
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{fifo: unix.ENOTDIR, filepath.Join(dir, "file"): unix.ENOTDIR, filepath.Join(dir, "none"): unix.ENOENT, "": unix.ENOENT} {
		done := make(chan error, 1)
		go func() { done <- Clean(t.Context(), path, func(string, int64, int64) {}) }()
		select {
		case err := <-done:
			if !errors.Is(err, want) {
				t.Errorf("%q: %v", path, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%q: it still waits", path)
		}
	}
}

// TestCleanDeep: the time that Clean takes grows with the number of directories, and not with
// its square, if they lie in each other.
func TestCleanDeep(t *testing.T) {
	took := func(depth int) time.Duration {
		dir := t.TempDir()
		fd, err := fsys.Openat(unix.AT_FDCWD, dir, fsys.DirFlags, 0)
		for i := 0; i < depth && err == nil; i++ {
			var next int
			if err = unix.Mkdirat(fd, "d", 0o755); err == nil {
				next, err = fsys.Openat(fd, "d", fsys.DirFlags, 0)
				fsys.CloseQuietly(fd)
				fd = next
			}
		}
		fsys.CloseQuietly(fd)
		start := time.Now()
		if err = errors.Join(err, Clean(t.Context(), dir, func(string, int64, int64) {})); err != nil {
			t.Fatal(err)
		}
		return time.Since(start)
	}
	var ratios []float64
	for range 5 { // others may use the processors meanwhile
		few, many := took(400), took(1600)
		ratio := float64(many) / float64(few)
		if ratio < 9 {
			return
		}
		ratios = append(ratios, ratio)
	}
	t.Errorf("four times as many directories took %.0f times as long", ratios)
}

// TestKilledRightBeforeTheName: what is left has its final mode, which may let not even its owner
// read it. The next copy to the directory and Clean remove it.
func TestKilledRightBeforeTheName(t *testing.T) {
	for _, mode := range []uint32{0o000, 0o200, 0o044, 0o444} {
		for _, clean := range []bool{false, true} {
			dir := t.TempDir()
			treetest.AsNobody(t, dir, func() {
				s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}, NoFsync: true})
				defer s.Close()
				e := fileEntry("f", "x")
				e.Mode = mode
				temp, err := begin(s, e, "x")
				if err == nil {
					err = temp.close() // as a kill does
				}
				if err != nil {
					t.Error(err)
					return
				}
				next := sinkInto(t, dir, Options{NoFsync: true})
				defer next.Close()
				if clean {
					err = Clean(t.Context(), dir, func(string, int64, int64) {})
				} else {
					err = put(next, fileEntry("g", "x"), "x")
				}
				if err != nil {
					t.Error(err)
				}
			})
			if left := slices.DeleteFunc(namesIn(t, dir), func(name string) bool { return name == "g" }); len(left) > 0 {
				t.Errorf("mode %o, clean %v: left %q", mode, clean, left)
			}
		}
	}
}

// TestFilesInUseKeepTheirMode: who looks for leftovers leaves what a copy is about to publish as it is.
func TestFilesInUseKeepTheirMode(t *testing.T) {
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}, NoFsync: true})
		defer s.Close()
		temp, err := begin(s, &manifest.Entry{Type: manifest.File, Path: "f", Size: 1}, "x")
		if err == nil {
			err = Clean(t.Context(), dir, func(string, int64, int64) {})
		}
		if err == nil {
			err = s.Publish([]*Temp{temp})[0]
		}
		if err != nil {
			t.Error(err)
		}
	})
	wantMode(t, filepath.Join(dir, "f"), 0)
}

// TestEmptyStages: a kill leaves directories for trees that nothing was put into. A copy of a tree
// to that directory removes them, unless somebody uses them, and what else killed copies left.
func TestEmptyStages(t *testing.T) {
	dir := t.TempDir()
	empty, full, used := fileset.RandomStage(), fileset.RandomStage(), fileset.RandomStage()
	treetest.MakeTree(t, dir, empty+"/", full+"/", full+"/f=", used+"/", fileset.TempName()+"=left")
	lock, err := os.Open(filepath.Join(dir, used))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	wholeSink(t, dir, "tree", fileset.NewStageID()).Close()
	treetest.WantTree(t, dir, empty+"/", full+"/", full+"/f=", used+"/")
	top, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	in := newOtherHosts().in(int(top.Fd()))
	sweepDir(in, time.Now().Add(leftoverLinkAge-time.Second))
	treetest.WantTree(t, dir, empty+"/", full+"/", full+"/f=", used+"/")
	sweepDir(in, time.Now().Add(leftoverLinkAge+time.Second))
	treetest.WantTree(t, dir, full+"/", full+"/f=", used+"/")
}
