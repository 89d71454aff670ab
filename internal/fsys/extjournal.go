package fsys

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// MayLackJournal reports whether an ext2, ext3 or ext4 file system, by the device number
// of its files, has no journal. A syncfs(2) of such a file system flushes the disk's
// cache, and only then writes the block device's buffers: inodes, directories, maps of
// blocks (sync_filesystem in fs/sync.c calls ext4_sync_fs ahead of sync_blockdev, Linux
// 6.18). An fsync(2) flushes last. Unless the kernel reports a journal the result is true.
func MayLackJournal(dev uint64) bool {
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(dev), unix.Minor(dev)))
	if err != nil {
		return true
	}
	task, err := os.ReadFile(filepath.Join("/sys/fs/ext4", filepath.Base(device), "journal_task"))
	if err != nil {
		return true
	}
	_, err = strconv.Atoi(string(bytes.TrimSpace(task))) // or <none>
	return err != nil
}
