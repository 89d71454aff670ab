package dest

import (
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/disktest"
	"gdrcp/internal/treetest"
)

// TestJournalsOfExt4: it is found out whether an ext4 has a journal.
func TestJournalsOfExt4(t *testing.T) {
	for features, want := range map[string]bool{"has_journal": false, "^has_journal": true} {
		s := sinkInto(t, disktest.Mount(t, "64M", "mkfs.ext4", "-q", "-F", "-O", features), Options{})
		if got := s.deviceOf(s.base).flushesEarly; got != want {
			t.Errorf("%s: %t", features, got)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if s := sinkInto(t, treetest.FastDir(t), Options{}); s.deviceOf(s.base).rungs.fsType == unix.TMPFS_MAGIC && s.deviceOf(s.base).flushesEarly {
		t.Error("a tmpfs has nothing to flush")
	}
}

// TestSyncsThatFlushEarly: where a syncfs writes something behind its flush, an fsync flushes
// that, for the data and for the names of a batch.
func TestSyncsThatFlushEarly(t *testing.T) {
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	d := s.deviceOf(s.base)
	if d.syncsAlone() {
		t.Skip("syncfs does not tell whether files are on the disk, set TMPDIR to an ext4 or tmpfs")
	}
	disk := onDisk(t, s, dir)
	d.flushesEarly = true
	names := []string{"d1", "d2", "d3", "d4", "d5"} // more than are synced one by one
	mkdirs(t, s, names...)
	for i := range names {
		names[i] += "/f"
	}
	temps := beginAll(t, s, names...)
	wantFailed(t, temps, s.Publish(temps))
	if disk.calls["syncfs"] != 2 || disk.asked["fsync"][disk.at(".")] != 2 || disk.calls["fsync"] != 2 {
		t.Errorf("%v, the top %d times", disk.calls, disk.asked["fsync"][disk.at(".")])
	}
}
