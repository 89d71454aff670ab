package chunker

import (
	"os"
	"path/filepath"
	"testing"

	"gdrcp/manifest"
)

// What the sink has made goes again, but for what has got something in it, and
// what is somebody else's by then; what was there stays. After StayMade all does.
func TestUnmake(t *testing.T) {
	for _, stays := range []bool{false, true} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "top/old"), 0o755); err != nil {
			t.Fatal(err)
		}
		s := openSink(t, SinkOptions{Dest: dir, Keep: Keep{Modes: true, Times: true}})
		top := manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}
		if err := s.Place(&top, "top"); err != nil {
			t.Fatal(err)
		}
		for _, path := range []string{".", "empty", "empty/deep", "full", "old", "replaced"} {
			if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: path, Mode: 0o755}, nil); err != nil {
				t.Fatal(err)
			}
		}
		if stays {
			s.StayMade()
		}
		at := func(name string) string { return filepath.Join(dir, "top", name) }
		for _, err := range []error{
			os.WriteFile(at("full/file"), nil, 0o600), os.Rename(at("replaced"), at("away")), os.Mkdir(at("replaced"), 0o755), s.Unmake(),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, want := range map[string]bool{"full/file": true, "old": true, "replaced": true, "away": true, "empty": stays, "empty/deep": stays} {
			if _, err := os.Stat(at(name)); (err == nil) != want {
				t.Errorf("stays %v: %s: %v", stays, name, err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
