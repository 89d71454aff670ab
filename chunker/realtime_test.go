package chunker

import (
	"testing"

	"golang.org/x/sys/unix"
)

// TestNamesRealtimeDevice: only the mount with the number of the device counts.
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

// TestFilesOnARealtimeDevice: each file of a batch is synced by itself.
func TestFilesOnARealtimeDevice(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, SinkOptions{})
	temps := beginAll(t, s, "a", "b", "c")
	for _, d := range s.devices {
		d.realtime = true
	}
	d := onDisk(t, s, dir)
	for _, err := range s.Publish(temps) {
		if err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"a", "b", "c"} {
		if n := d.asked["fsync"][d.at(name)]; n != 1 {
			t.Errorf("%s was synced %d times", name, n)
		}
	}
}
