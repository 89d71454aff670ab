package dirsync

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func TestOutcome(t *testing.T) {
	tests := []struct {
		err   error
		fails bool
	}{
		{nil, false},
		{unix.EINVAL, false},
		{unix.EOPNOTSUPP, false},
		{unix.ENOSYS, false},
		{&os.PathError{Op: "sync", Path: "/mnt", Err: unix.EINVAL}, false},
		{unix.EIO, true},
		{unix.ENOSPC, true},
		{unix.EROFS, true},
		{unix.EBADF, true},
		{&os.PathError{Op: "sync", Path: "/mnt", Err: unix.EIO}, true},
	}
	for _, tt := range tests {
		if err := Outcome(tt.err); (err != nil) != tt.fails || err != nil && !errors.Is(err, tt.err) {
			t.Errorf("%v: %v", tt.err, err)
		}
	}
}

// Directories in /proc have no fsync: EINVAL.
func TestPath(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/proc/self"} {
		if err := Path(dir); err != nil {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if err := Path(filepath.Join(t.TempDir(), "missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a directory that is not there: %v", err)
	}
}
