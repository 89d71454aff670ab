package manifest

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestReplaces(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	err := errors.Join(
		os.WriteFile("file", nil, 0o644), os.Symlink("file", "link"), os.Mkdir("sub", 0o755), os.WriteFile("sub/file", nil, 0o644),
		os.Symlink(".", "here"), os.Link("file", "FILE"), os.Link("file", "hard"), syscall.Mkfifo("fifo", 0o644),
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, file   string
		follow, want bool
	}{
		{"file", filepath.Join(dir, "file"), false, true},
		{"here/file", "file", false, true},
		{"file", "FILE", false, true}, // as in a directory that folds case
		{"file", "hard", false, false},
		{"file", "link", false, false},
		{"file", "link", true, true},
		{"link", "link", true, true},
		{"link", "file", true, false},
		{"sub/file", "file", true, false},
		{"fifo", "fifo", false, false}, // it is written to
		{"none/file", "none/file", false, false},
	} {
		if got := Replaces(c.name, c.file, c.follow); got != c.want {
			t.Errorf("a manifest %s replaces %s (follow: %v): %v", c.name, c.file, c.follow, got)
		}
	}
}
