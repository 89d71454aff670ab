package chunker

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

func TestOtherCase(t *testing.T) {
	for name, want := range map[string]string{"xt_MARK.h": "XT_mark.H", "123._": "123._", "@[`{é": "@[`{é", "": ""} {
		if got := otherCase(name); got != want {
			t.Errorf("%q became %q, want %q", name, got, want)
		}
	}
}

// TestFoldingIsFoundOut: a directory that does not fold is known as such once
// something is in it.
func TestFoldingIsFoundOut(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "abc=", "ABD=")
	if _, err := os.Stat(filepath.Join(dir, "ABC")); err == nil {
		t.Skip("the temporary directory folds case: set TMPDIR to one that does not")
	}
	s := sinkInto(t, dir, SinkOptions{})
	if err := put(s, fileEntry("123", ""), ""); err != nil {
		t.Fatal(err)
	}
	if got := s.base.folding.Load(); got != foldNo || len(s.claims) > 0 {
		t.Errorf("folding is %d, with %d claims", got, len(s.claims))
	}
}

// foldingSink is a sink into a directory that is taken for one that folds case.
// What the file system does not do the tests do by links and by renaming.
func foldingSink(t *testing.T, dir string) *Sink {
	s := sinkInto(t, dir, SinkOptions{})
	s.base.folding.Store(foldYes)
	return s
}

func TestNamesThatFoldDoNotReplaceEachOther(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "old=old")
	s := foldingSink(t, dir)
	link := func(from, to string) {
		t.Helper()
		if err := os.Link(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"FILE", "old"} {
		if err := put(s, fileEntry(name, "first"), "first"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: "LINK", Target: "first"}, nil); err != nil {
		t.Fatal(err)
	}
	link("FILE", "file")
	link("old", "Old")
	link("LINK", "link")
	for _, name := range []string{"file", "Old", "link"} {
		if err := put(s, fileEntry(name, "second"), "second"); !errors.Is(err, ErrTaken) {
			t.Errorf("file %s: %v", name, err)
		}
		err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: name, Target: "second"}, nil)
		if !errors.Is(err, ErrTaken) {
			t.Errorf("link %s: %v", name, err)
		}
	}
	wantTree(t, dir, "FILE=first", "file=first", "old=first", "Old=first", "LINK>first", "link>first")
}

func TestDirectoriesThatFoldAreNotMerged(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "was/")
	s := foldingSink(t, dir)
	entry := func(path string) *manifest.Entry { return &manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755} }
	for _, name := range []string{"DIR", "was"} {
		if err := s.Mkdir(entry(name), nil); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if err := os.Rename(filepath.Join(dir, "DIR"), filepath.Join(dir, "dir")); err != nil {
		t.Fatal(err)
	}
	// One that was there is taken, too.
	if err := os.Rename(filepath.Join(dir, "was"), filepath.Join(dir, "Was")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"dir", "Was"} {
		if err := s.Mkdir(entry(name), nil); !errors.Is(err, ErrTaken) {
			t.Errorf("second %s: %v", name, err)
		}
	}
}

func TestWhatIsKeptIsTakenWhereNamesFold(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	makeTree(t, dir, "kept=kept", "other=other")
	s := foldingSink(t, dir)
	for _, path := range []string{"kept", "none", "none/x", tempName()} {
		s.NoteKept(path)
	}
	for path, want := range map[string]error{"kept": ErrTaken, "other": nil, "none": nil} {
		if err := put(s, fileEntry(path, "new"), "new"); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", path, err, want)
		}
	}
	s.Close()
	wantTree(t, dir, "kept=kept", "other=new", "none=new")
}

// hardLink gives a file in dir another name.
func hardLink(t *testing.T, dir, name, other string) {
	t.Helper()
	if err := os.Link(filepath.Join(dir, name), filepath.Join(dir, other)); err != nil {
		t.Fatal(err)
	}
}

// TestHardLinksDoNotFold: two names of a file may differ only in case. They are two
// where the directory lists both.
func TestHardLinksDoNotFold(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	makeTree(t, dir, "A=x")
	hardLink(t, dir, "A", "a")
	s, told := deletingSink(t, dir, SinkOptions{}, DeleteRules{})
	removeSurplus(t, s, "a")
	told.want(t, "A")
	wantTree(t, dir, "a=x")
	s.Close()

	dir = t.TempDir()
	makeTree(t, dir, "a=x")
	hardLink(t, dir, "a", "A")
	s = sinkInto(t, dir, SinkOptions{})
	s.NoteKept("a")
	if err := put(s, fileEntry("A", "new"), "new"); err != nil {
		t.Error(err)
	}
	wantTree(t, dir, "A=new", "a=x")
	s.Close()
}

// TestHardLinksWhereNamesFold: a file with several names has one of them by a name that
// is not listed only where names fold.
func TestHardLinksWhereNamesFold(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "A=x")
	hardLink(t, dir, "A", "b")
	s := sinkInto(t, dir, SinkOptions{})
	var st unix.Stat_t
	if err := fstatat(s.base.fd, "A", &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		t.Fatal(err)
	}
	// A directory that folds finds A by this name, and lists it as A.
	if s.base.areHardLinks(&st, "a", "A") || s.base.areHardLinks(&st, "A", "a") {
		t.Error("a name that is not listed counts")
	}
	if !s.base.areHardLinks(&st, "A", "b") {
		t.Error("two names that are listed do not count as two")
	}
}

// The manifest's name is spared in the other case where names fold, and only there.
func TestSparedNamesFold(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "other=x")
	s := sinkInto(t, dir, SinkOptions{Spare: filepath.Join(dir, "Sums")})
	for _, c := range []struct {
		name   string
		known  folding
		spared bool
	}{
		{"Sums", foldUnknown, true}, {"sums", foldUnknown, false}, {"sums", foldYes, true}, {"sums", foldNo, false},
		{"other", foldYes, false}, {"none/Sums", foldYes, false},
	} {
		s.base.folding.Store(c.known)
		if got := s.Spares(c.name); got != c.spared {
			t.Errorf("%s with folding %d: spared is %v", c.name, c.known, got)
		}
	}
}
