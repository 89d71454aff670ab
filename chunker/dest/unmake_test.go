package dest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"gdrcp/manifest"
)

// What the sink has made goes again, links too, but for what has got something in it, and
// what is somebody else's by then; what was there stays. After StayMade all does.
func TestUnmake(t *testing.T) {
	for _, stays := range []bool{false, true} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "top/old"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := openSink(t, Options{Dest: dir, Keep: Keep{Modes: true, Times: true}})
		top := manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}
		if err := s.Place(&top, "top"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("old", filepath.Join(dir, "top/oldlink")); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{".", "empty", "empty/deep", "full", "linked", "old", "replaced"} {
			if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755}, nil); err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"linked/link", "newlink", "oldlink"} {
			if err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: path, Target: "nowhere"}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if stays {
			s.StayMade()
		}
		at := func(name string) string { return filepath.Join(dir, "top", name) }
		for _, err := range []error{
			os.WriteFile(at("full/file"), nil, 0o600), os.Rename(at("replaced"), at("away")), os.Mkdir(at("replaced"), 0o755),
			os.Rename(at("newlink"), at("awaylink")), os.Symlink("another", at("newlink")), s.Unmake(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]bool{
			"full/file": true, "old": true, "replaced": true, "away": true, "empty": stays, "empty/deep": stays, "linked": stays, "linked/link": stays, "newlink": true, "awaylink": true, "oldlink": true,
		} {
			if _, err := os.Lstat(at(name)); (err == nil) != want {
				t.Errorf("stays %v: %s: %v", stays, name, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Directories with long paths that a peer makes do not fill the memory. Those that were
// noted before there were too many go again.
func TestMadeDirectoriesAreBounded(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{NoFsync: true})
	deep := strings.Repeat("d", 255)
	mkdirs(t, s, "first", deep)
	for range 14 {
		deep += "/" + strings.Repeat("d", 255)
		mkdirs(t, s, deep)
	}
	const more = maxMadeBytes/(15*256) + 1
	for i := range more {
		mkdirs(t, s, deep+"/"+strconv.Itoa(i))
	}
	held := 0
	for _, d := range s.made {
		held += len(d.target)
	}
	if held > maxMadeBytes || held < maxMadeBytes*9/10 {
		t.Errorf("%d bytes of paths are held", held)
	}
	if err := s.Unmake(); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(dir, deep, "*"))
	if _, first := os.Stat(filepath.Join(dir, "first")); err != nil || first == nil || len(left) == 0 || len(left) >= more/10 {
		t.Errorf("of %d directories %d are left, %v, %v", more, len(left), first, err)
	}
}
