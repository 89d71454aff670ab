// Package disktest creates small file systems for tests, on loop devices.
package disktest

import (
	"bytes"
	"os"
	"os/exec"
	"testing"
)

// Mount creates and mounts a file system of the given size, in truncate(1)'s
// syntax, until the test ends, and returns its directory. mkfs is the command
// that creates it; the image's name is appended. If that is not possible (it
// needs root, a loop device and the tools) the test is skipped, or fails in CI.
func Mount(t testing.TB, size string, mkfs ...string) (dir string) {
	t.Helper()
	without := t.Skip
	if os.Getenv("CI") != "" {
		without = t.Fatal
	}
	if os.Geteuid() != 0 {
		without("needs root to mount a file system")
	}
	image, dir := t.TempDir()+"/image", t.TempDir()
	for _, call := range [][]string{{"truncate", "-s", size, image}, append(mkfs, image), {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(call[0], call[1:]...).CombinedOutput(); err != nil {
			without(call[0] + ": " + err.Error() + ": " + string(bytes.TrimSpace(out)) + " (apt install e2fsprogs btrfs-progs mount)")
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v\n%s", err, out)
		}
	})
	return dir
}

// MountSharing mounts a file system whose files can share blocks (ioctl_ficlone(2)).
func MountSharing(t testing.TB) (dir string) {
	t.Helper()
	return Mount(t, "256M", "mkfs.btrfs", "-q")
}
