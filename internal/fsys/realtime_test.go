package fsys

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestNamesRealtimeDevice: only the mount with the device number counts.
func TestNamesRealtimeDevice(t *testing.T) {
	const mounts = "36 35 8:1 / / rw,noatime shared:1 - ext4 /dev/sda1 rw\n" +
		"40 36 8:17 / /a\\040b rw shared:9 - xfs /dev/sdb1 rw,attr2,inode64,rtdev=/dev/sdc,noquota\n" +
		"41 36 8:18 / /rtdev=x rw - xfs /dev/rtdev=y rw,attr2\n41 36\n\n"
	for dev, want := range map[uint64]bool{unix.Mkdev(8, 1): false, unix.Mkdev(8, 17): true, unix.Mkdev(8, 18): false, unix.Mkdev(8, 2): false} {
		if got := namesRealtimeDevice([]byte(mounts), dev); got != want {
			t.Errorf("%d:%d: %v", unix.Major(dev), unix.Minor(dev), got)
		}
	}
}
