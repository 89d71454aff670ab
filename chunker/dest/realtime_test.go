package dest

import (
	"testing"
)

// TestFilesOnARealtimeDevice: each file of a batch is synced by itself.
func TestFilesOnARealtimeDevice(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
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
