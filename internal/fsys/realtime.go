package fsys

import (
	"bytes"
	"fmt"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// HasRealtimeDevice reports whether an XFS, by the device number of its files, keeps the
// data of files on a second device, its realtime device, as shown by the mount options
// (rtdev in xfs(5)). A syncfs(2) does not flush the cache of that disk (xfs_fs_sync_fs in
// fs/xfs/xfs_super.c writes the log), but an fsync(2) does (xfs_file_fsync in
// fs/xfs/xfs_file.c). If the mounts cannot be read the result is false.
func HasRealtimeDevice(dev uint64) bool {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	return err == nil && namesRealtimeDevice(mounts, dev)
}

// namesRealtimeDevice searches the text of proc_pid_mountinfo(5): the third
// field is the device number, the last has the options of the file system.
func namesRealtimeDevice(mounts []byte, dev uint64) bool {
	number := fmt.Sprintf("%d:%d", unix.Major(dev), unix.Minor(dev))
	for line := range bytes.Lines(mounts) {
		fields := bytes.Fields(line)
		if len(fields) < 3 || string(fields[2]) != number {
			continue
		}
		options := bytes.Split(fields[len(fields)-1], []byte(","))
		return slices.ContainsFunc(options, func(o []byte) bool { return bytes.HasPrefix(o, []byte("rtdev=")) })
	}
	return false
}
