package dest

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"gdrcp/internal/treetest"
)

// TestDirectoriesOfAnEarlierTryAreSynced: a copy that finds directories which an earlier try
// made, and could not sync any more, brings their names to the disk at its end.
func TestDirectoriesOfAnEarlierTryAreSynced(t *testing.T) {
	dir := t.TempDir()
	first := sinkInto(t, dir, Options{})
	mkdirs(t, first, "d", "d/e")
	if err := first.Close(); err != nil { // the connection is lost here
		t.Fatal(err)
	}
	for _, tells := range []bool{true, false} {
		for _, noFsync := range []bool{false, true} {
			s := sinkInto(t, dir, Options{NoFsync: noFsync})
			s.deviceOf(s.base).tells, s.deviceOf(s.base).keepsQuiet = tells, false
			disk := onDisk(t, s, dir)
			mkdirs(t, s, ".", "d", "d/e")
			if err := s.FinishDirs(); err != nil {
				t.Error(err)
			}
			want := map[string]int{"syncfs": 1}
			switch {
			case noFsync:
				want = nil
			case !tells:
				want = map[string]int{"fsync": 2} // "." and "d", in which there are names
			}
			if disk.calls["syncfs"] != want["syncfs"] || disk.calls["fsync"] != want["fsync"] {
				t.Errorf("tells %v, without fsync %v: calls %v, and not %v", tells, noFsync, disk.calls, want)
			}
		}
	}
}

// TestTopOfAnEarlierTryIsSynced: also where the top is not among the entries.
func TestTopOfAnEarlierTryIsSynced(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s := openSink(t, Options{Dest: dir + "/top", Itself: true})
		if err := s.Place(&topDir, "top"); err != nil {
			t.Fatal(err)
		}
		disk := onDisk(t, s, dir)
		if err := errors.Join(s.MakeTop(), s.FinishDirs()); err != nil {
			t.Error(err)
		}
		if disk.calls["syncfs"]+disk.calls["fsync"] == 0 {
			t.Error("the name of the top is not synced")
		}
	}
}

// TestOldDirectoriesAreNotSynced: a copy into a tree that nobody has changed lately syncs
// nothing that it has not made itself.
func TestOldDirectoriesAreNotSynced(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "d/e/", "d/e/f/")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Until(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)))
		s := sinkInto(t, dir, Options{})
		s.deviceOf(s.base).tells = false
		disk := onDisk(t, s, dir)
		mkdirs(t, s, ".", "d", "d/e", "d/e/f", "d/e/f/new")
		if err := s.FinishDirs(); err != nil {
			t.Error(err)
		}
		if want := disk.at("d/e/f"); len(disk.asked["fsync"]) != 1 || disk.asked["fsync"][want] != 1 {
			t.Errorf("%v were synced, and not %v alone", disk.asked["fsync"], want)
		}
	})
}
