package dest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// removals collects what a sink tells of deleting.
type removals struct {
	mu   sync.Mutex
	gone []string // directories end in a slash
	errs map[string]error
}

func (r *removals) told(x Removal) {
	r.mu.Lock()
	defer r.mu.Unlock()
	path := x.Path
	if x.Dir {
		path += "/"
	}
	if x.Err == nil {
		r.gone = append(r.gone, path)
		return
	}
	if r.errs == nil {
		r.errs = make(map[string]error)
	}
	r.errs[path] = x.Err
}

func (r *removals) want(t *testing.T, paths ...string) {
	t.Helper()
	slices.Sort(r.gone)
	if want := slices.Sorted(slices.Values(paths)); !slices.Equal(r.gone, want) {
		t.Errorf("deleted %q, want %q", r.gone, want)
	}
}

// deletingSink is a sink into dir that may delete.
func deletingSink(t *testing.T, dir string, opt Options, rules DeleteRules) (*Sink, *removals) {
	t.Helper()
	told := &removals{}
	if rules.Most == 0 {
		rules.Most = -1
	}
	rules.Told = told.told
	opt.Dest = dir
	s := openSink(t, opt)
	s.AllowDelete(rules)
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	return s, told
}

// removeSurplus tells the sink of the source's entries, in order and in
// MakeTree's words, makes directories as a copy does, and removes what is not
// among them.
func removeSurplus(t *testing.T, s *Sink, entries ...string) {
	t.Helper()
	u := s.Surplus()
	defer u.Close()
	for _, spec := range append([]string{"./"}, entries...) {
		path, isDir := strings.CutSuffix(spec, "/")
		if err := u.Has(path, isDir); err != nil {
			t.Fatal(err)
		}
		if isDir && path != "." && !s.deletes.DryRun {
			if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := errors.Join(u.End(), u.Remove()); err != nil {
		t.Fatal(err)
	}
}

// randomTree makes up to n entries with names that are awkward for the order of
// paths, in MakeTree's words.
func randomTree(rng *rand.Rand, n int) []string {
	names := []string{"a", "a-b", "a.b", "ab", "a0", "b", "A", "\xff"}
	dirs, have := []string{""}, map[string]bool{}
	var specs []string
	for range n {
		path := dirs[rng.IntN(len(dirs))] + names[rng.IntN(len(names))]
		if have[path] {
			continue
		}
		have[path] = true
		if rng.IntN(2) == 0 {
			specs = append(specs, path+"/")
			dirs = append(dirs, path+"/")
		} else {
			specs = append(specs, path+"=")
		}
	}
	return specs
}

// TestSurplusOfRandomTrees: what stays is what has the name of a source's entry,
// in the directories of the source, and what is below a name that is no
// directory there.
func TestSurplusOfRandomTrees(t *testing.T) {
	treetest.NoLeaks(t)
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 1))
		src, dst := t.TempDir(), t.TempDir()
		treetest.MakeTree(t, src, randomTree(rng, 40)...)
		treetest.MakeTree(t, dst, randomTree(rng, 40)...)
		s, _ := deletingSink(t, dst, Options{}, DeleteRules{})
		u := s.Surplus()
		if seed%2 == 1 { // every directory's names go to a file
			u.names.Budget, u.names.MinRun = 0, 0
		}
		isDir := map[string]bool{}
		paths, _ := walked(t, treeAt(t, src, false))
		for _, path := range paths {
			info, err := os.Lstat(filepath.Join(src, path))
			if err != nil {
				t.Fatal(err)
			}
			isDir[path] = info.IsDir()
			if err := u.Has(path, info.IsDir()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		var want []string
		for _, spec := range treetest.ListTree(t, dst) {
			path := strings.TrimRight(spec, "/=")
			if stays(path, isDir) {
				want = append(want, spec)
			}
		}
		if err := errors.Join(u.End(), u.Remove(), u.Close()); err != nil {
			t.Fatal(err)
		}
		s.Close()
		if got := treetest.ListTree(t, dst); !slices.Equal(got, slices.Sorted(slices.Values(want))) {
			t.Fatalf("seed %d: source %q left %q, want %q", seed, paths, got, want)
		}
	}
}

// stays tells what of the destination stays, by what the source has.
func stays(path string, isDir map[string]bool) bool {
	for dir := path; dir != "."; {
		if _, known := isDir[dir]; known {
			return dir == path || !isDir[dir]
		}
		parent, _ := fileset.SplitPath(dir)
		if isDir[parent] {
			return false
		}
		dir = parent
	}
	return false
}

// TestSurplusGone: of an entry that vanished at the source everything stays, also
// where its contents come behind those of names that begin alike.
func TestSurplusGone(t *testing.T) {
	treetest.NoLeaks(t)
	for _, spill := range []bool{false, true} {
		dst := t.TempDir()
		treetest.MakeTree(t, dst, "d/", "d/in/", "d/in/x=", "d/y=", "d-x/", "d-x/old=", "e/", "e/f=", "g=", "old=")
		s, told := deletingSink(t, dst, Options{}, DeleteRules{})
		u := s.Surplus()
		if spill {
			u.names.Budget, u.names.MinRun = 0, 0
		}
		err := errors.Join(u.Has(".", true), u.Has("d", true), u.Has("d-x", true), u.Gone("d"), u.Gone("e"), u.Gone("g"), u.Has("z", false))
		if err := errors.Join(err, u.End(), u.Remove(), u.Close()); err != nil {
			t.Fatal(err)
		}
		told.want(t, "d-x/old", "old")
		treetest.WantTree(t, dst, "d/", "d/in/", "d/in/x=", "d/y=", "d-x/", "e/", "e/f=", "g=")
	}
	s, _ := deletingSink(t, t.TempDir(), Options{}, DeleteRules{})
	u := s.Surplus()
	defer u.Close()
	if err := errors.Join(u.Has(".", true), u.Has("d", false), u.Has("f", false)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"c", "d", "f"} {
		if err := u.Gone(path); !errors.Is(err, ErrOrder) {
			t.Errorf("%q, which is no directory whose contents are due: %v", path, err)
		}
	}
}

func TestSurplusWantsOrder(t *testing.T) {
	treetest.NoLeaks(t)
	for _, entries := range [][]string{
		{"./", "b", "a"}, {"./", "a", "a"}, {"./", "."}, {"./", "a/x"}, {"./", "a", "a/x"}, {"./", "a/", "b/", "a/x"},
		{"a/", "."}, {"a/x"}, {"a/", "a/b/c"}, {"./", "../x"}, {"./", "/x"}, {"./", "a/", "a/x/y"},
	} {
		s, told := deletingSink(t, t.TempDir(), Options{}, DeleteRules{})
		u := s.Surplus()
		var err error
		for _, spec := range entries {
			path, isDir := strings.CutSuffix(spec, "/")
			if err = u.Has(path, isDir); err != nil && spec != entries[len(entries)-1] {
				t.Errorf("%q: %q: %v", entries, spec, err)
			}
		}
		if !errors.Is(err, ErrOrder) && !errors.Is(err, fsys.ErrEscape) {
			t.Errorf("%q: got %v", entries, err)
		}
		told.want(t)
		u.Close()
		s.Close()
	}
}

// TestSurplusBesideSources: of several sources, or a file, nothing is deleted
// beside them.
func TestSurplusBesideSources(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/old=", "d/x=", "other/", "other/x=", "z=")
	s := openSink(t, Options{Dest: dir})
	told := &removals{}
	s.AllowDelete(DeleteRules{Most: -1, Told: told.told})
	if err := s.Place(nil, ""); err != nil {
		t.Fatal(err)
	}
	u := s.Surplus()
	defer u.Close()
	for _, path := range []string{"a", "d", "d/x"} {
		if err := u.Has(path, path == "d"); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(u.End(), u.Remove()); err != nil {
		t.Fatal(err)
	}
	told.want(t, "d/old")
	treetest.WantTree(t, dir, "d/", "d/x=", "other/", "other/x=", "z=")
}

// TestDeletingLeavesWhatIsInUse: files with names of this program's own stay
// while somebody has them locked, and so does what they are in.
func TestDeletingLeavesWhatIsInUse(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	inUse, idle := ".gdrcp-"+strings.Repeat("a", 32), ".gdrcp-"+strings.Repeat("b", 32)
	treetest.MakeTree(t, dir, "d/", "d/"+inUse+"=", "d/"+idle+"=", "d/x=", inUse+"=", ".gdrcp-manifest-1=", ".gdrcp-manifest-2=", ".gdrcp-x>x", ".gdrcp-y/")
	for _, name := range []string{"d/" + inUse, inUse, ".gdrcp-manifest-1"} {
		f, err := os.Open(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
	}
	s, told := deletingSink(t, dir, Options{}, DeleteRules{})
	removeSurplus(t, s)
	s.Close()
	told.want(t, "d/"+idle, "d/x", ".gdrcp-manifest-2", ".gdrcp-x", ".gdrcp-y/")
	if len(told.errs) != 1 || !errors.Is(told.errs["d/"], ErrNotEmpty) {
		t.Errorf("told %v", told.errs)
	}
	treetest.WantTree(t, dir, "d/", "d/"+inUse+"=", inUse+"=", ".gdrcp-manifest-1=")
}

func TestProtectedStays(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/keep=", "d/x/", "d/x/y=", "keep/", "keep/x=", "z=", "file=")
	looked := 0
	s, told := deletingSink(t, dir, Options{}, DeleteRules{Looked: func() { looked++ }, Protects: func(path string, isDir, doomed bool) bool {
		return path == "d/keep" && !isDir && doomed || path == "keep" && isDir && !doomed
	}})
	removeSurplus(t, s, "file")
	if looked != 4+6 { // the names beside the source's, and those that were to go, in directories too
		t.Errorf("looked at %d names", looked)
	}
	told.want(t, "d/x/y", "d/x/", "z")
	if len(told.errs) != 1 || !errors.Is(told.errs["d/"], ErrNotEmpty) {
		t.Errorf("told %v", told.errs)
	}
	treetest.WantTree(t, dir, "d/", "d/keep=", "keep/", "keep/x=", "file=")
	// In the way of an entry the name itself is not protected, as in rsync.
	if err := put(s, fileEntry("keep", "x"), "x"); err != nil {
		t.Errorf("a file for a protected directory: %v", err)
	}
	if err := put(s, fileEntry("d", "x"), "x"); !errors.Is(err, fileset.ErrIsDir) {
		t.Errorf("a file for a directory with something protected: %v", err)
	}
}

// Where the source may have more than it told, only what is empty makes room.
func TestUnsureOfTheSource(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "empty/", "full/", "full/x=", "file=", "link>x")
	unsure := DeleteRules{Unsure: func() bool { return true }}
	for _, unsure.DryRun = range []bool{true, false} {
		s, told := deletingSink(t, dir, Options{}, unsure)
		try := func(e *manifest.Entry) error {
			if unsure.DryRun {
				return s.Try(e)
			}
			if e.Type == manifest.Dir {
				return s.Mkdir(e, nil)
			}
			return put(s, e, "x")
		}
		if err := try(fileEntry("full", "x")); !errors.Is(err, fileset.ErrIsDir) {
			t.Errorf("a file for a directory with something in it: %v", err)
		}
		dir := func(path string) *manifest.Entry { return &manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755} }
		if err := errors.Join(try(fileEntry("empty", "x")), try(dir("file")), try(dir("link"))); err != nil {
			t.Error(err)
		}
		told.want(t, "empty/", "file", "link")
		if len(told.errs) != 1 || !errors.Is(told.errs["full/"], ErrNotEmpty) {
			t.Errorf("told %v", told.errs)
		}
	}
	if got := treetest.ListTree(t, dir+"/full"); len(got) != 1 {
		t.Errorf("left %q", got)
	}
}

// TestDryRemoval: a dry run tells what the real one does, and changes nothing.
func TestDryRemoval(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/e/", "d/e/f=", "d/g>x", "k/", "k/old=", "z=")
	before := treetest.ListTree(t, dir)
	want := []string{"d/e/f", "d/e/", "d/g", "d/", "k/old", "z"}
	s, told := deletingSink(t, dir, Options{}, DeleteRules{DryRun: true})
	removeSurplus(t, s, "k/", "new/", "new/x")
	told.want(t, want...)
	treetest.WantTree(t, dir, before...)
	s, told = deletingSink(t, dir, Options{}, DeleteRules{})
	removeSurplus(t, s, "k/", "new/", "new/x")
	told.want(t, want...)
	treetest.WantTree(t, dir, "k/", "new/")
}

func TestDeletingIsBounded(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	for i := range 10 {
		treetest.MakeTree(t, dir, fmt.Sprint(i, "="))
	}
	s, told := deletingSink(t, dir, Options{}, DeleteRules{Most: 4})
	removeSurplus(t, s)
	if left := treetest.ListTree(t, dir); len(left) != 6 || len(told.gone) != 4 || len(told.errs) != 6 {
		t.Errorf("left %q, told %q and %v", left, told.gone, told.errs)
	}
	for path, err := range told.errs {
		if !errors.Is(err, ErrTooMany) {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestDeletingStops(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "a=", "d/", "d/x=", "z=")
	stop := make(chan struct{})
	close(stop)
	s, told := deletingSink(t, dir, Options{}, DeleteRules{Stop: stop})
	removeSurplus(t, s)
	told.want(t)
	treetest.WantTree(t, dir, "a=", "d/", "d/x=", "z=")
}

// TestDeletingKeepsTimesAndModes: directories that something is deleted from
// have the times and modes that the copy gave them.
func TestDeletingKeepsTimesAndModes(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "d/", "d/old/", "d/old/x=", "d/x=")
		if err := errors.Join(os.Chmod(dir+"/d/old/x", 0o400), os.Chmod(dir+"/d/old", 0o500)); err != nil {
			t.Error(err)
		}
		s, told := deletingSink(t, dir, Options{Keep: Keep{Modes: true, Times: true}}, DeleteRules{})
		u := s.Surplus()
		d := manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o555, MtimeNs: 1e18}
		err := errors.Join(u.Has(".", true), u.Has("d", true), s.Mkdir(&d, nil), u.Has("d/x", false), u.End(), s.SettleDirs("e"))
		wantMode(t, dir+"/d", 0o555)
		if err := errors.Join(err, u.Remove(), u.Close(), s.Close()); err != nil {
			t.Error(err)
		}
		told.want(t, "d/old/x", "d/old/")
	})
	wantMode(t, dir+"/d", 0o555)
	if info, err := os.Lstat(dir + "/d"); err != nil || !info.ModTime().Equal(time.Unix(1e9, 0)) {
		t.Errorf("time %v, %v", info.ModTime(), err)
	}
	treetest.WantTree(t, dir, "d/", "d/x=")
}

// TestDeletingClosedDirectories: what its owner may not read or search is
// deleted all the same.
func TestDeletingClosedDirectories(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		treetest.MakeTree(t, dir, "a/", "a/b/", "a/b/c=", "a/d/")
		for _, name := range []string{"a/d", "a/b", "a"} {
			if err := os.Chmod(filepath.Join(dir, name), 0); err != nil {
				t.Error(err)
			}
		}
		s, told := deletingSink(t, dir, Options{}, DeleteRules{})
		removeSurplus(t, s)
		s.Close()
		told.want(t, "a/b/c", "a/b/", "a/d/", "a/")
		if len(told.errs) > 0 {
			t.Errorf("told %v", told.errs)
		}
	})
	treetest.WantTree(t, dir)
}
