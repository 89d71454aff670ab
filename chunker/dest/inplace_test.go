package dest

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// TestInPlace: the file itself is written, gets the size and metadata of its entry, and loses
// at once the bits that the entry does not have. It has its time only when it is published.
func TestInPlace(t *testing.T) {
	dir := t.TempDir()
	for _, old := range []string{"", "short", strings.Repeat("long ", 100)} {
		path := dir + "/f"
		err := errors.Join(os.RemoveAll(path), os.WriteFile(path, []byte(old), 0o666), os.Chmod(path, 0o666))
		if err != nil {
			t.Fatal(err)
		}
		was := inodeAt(t, path)
		s := sinkInto(t, dir, Options{Keep: Keep{Times: true, Modes: true}})
		treetest.NoLeaks(t)
		e := fileEntry("f", "the new content")
		e.MtimeNs, e.Mode = 7_000_000_001, 0o604
		temp, err := s.OpenInPlace(e, nil)
		if err != nil || temp == nil || !temp.InPlace() || temp.IsHalfWritten() {
			t.Fatalf("%v, %v", temp, err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o604 {
			t.Errorf("%v, %v", st, err)
		}
		s.inPlaceWait.Store(0)
		if again, err := s.OpenInPlace(e, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("opened twice: %v, %v", again, err)
		}
		if _, err := temp.WriteAt([]byte("the new content"), 0); err != nil || !temp.IsHalfWritten() {
			t.Fatal(err)
		}
		if err := temp.Finish(); err != nil {
			t.Fatal(err)
		}
		if now, err := s.Look("f"); err != nil || now.HasTime(e.MtimeNs) {
			t.Errorf("it passes for the source's before it is on the disk: %+v, %v", now, err)
		}
		if err := s.Publish([]*Temp{temp})[0]; err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		st, err := os.Stat(path)
		if b, _ := os.ReadFile(path); err != nil || string(b) != "the new content" || st.ModTime().UnixNano() != e.MtimeNs || st.Mode().Perm() != 0o604 || inodeAt(t, path) != was {
			t.Errorf("%q, %v, %v", b, st, err)
		}
	}
}

// TestInPlaceOnAFullDisk: a write that fails after a part of it has changed the file.
func TestInPlaceOnAFullDisk(t *testing.T) {
	treetest.NoLeaks(t)
	dir := smallFileSystem(t, "128k")
	treetest.MakeTree(t, dir, "f="+strings.Repeat("o", 32<<10))
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	e := fileEntry("f", strings.Repeat("n", 1<<20))
	temp, err := s.OpenInPlace(e, nil)
	if err != nil || temp == nil {
		t.Fatal(temp, err)
	}
	if n, err := temp.WriteAt(nil, 0); n != 0 || err != nil || temp.IsHalfWritten() {
		t.Errorf("writing nothing: %d, %v", n, err)
	}
	if n, err := temp.WriteAt([]byte(strings.Repeat("n", 1<<20)), 0); n == 0 || !errors.Is(err, fileset.ErrNoSpace) {
		t.Errorf("wrote %d bytes: %v", n, err)
	}
	if !temp.IsHalfWritten() {
		t.Error("a part of the file is new, and it does not count as half-written")
	}
	if err := temp.Discard(); err != nil {
		t.Error(err)
	}
}

// inodeAt is the inode at a path.
func inodeAt(t *testing.T, path string) manifest.Inode {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return fileset.InodeOf(&st)
}

// TestInPlaceOfOneNameOfSeveral: the other names may be those of other entries, so nothing is
// written into the file that they share.
func TestInPlaceOfOneNameOfSeveral(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=old")
	if err := os.Link(dir+"/f", dir+"/other"); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	treetest.NoLeaks(t)
	if temp, err := s.OpenInPlace(fileEntry("f", "new"), nil); temp != nil || err != nil {
		t.Errorf("%v, %v", temp, err)
	}
	if now, err := s.Look("f"); err != nil || !now.HasOtherNames {
		t.Errorf("%+v, %v", now, err)
	}
}

// TestInPlaceKeepsItsMode: a file that was not written to keeps the set-ID bits of its mode,
// where modes are not those of the source.
func TestInPlaceKeepsItsMode(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		write bool
		want  uint32
	}{{false, 0o4755}, {true, 0o755}} {
		treetest.MakeTree(t, dir, "f=old")
		if err := unix.Chmod(dir+"/f", 0o4755); err != nil {
			t.Fatal(err)
		}
		s := sinkInto(t, dir, Options{})
		temp, err := s.OpenInPlace(fileEntry("f", "old"), nil)
		if err == nil && c.write {
			_, err = temp.WriteAt([]byte("old"), 0)
		}
		if err = errors.Join(err, temp.Finish(), s.Publish([]*Temp{temp})[0], s.Close()); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(dir+"/f", &st); err != nil || st.Mode&0o7777 != c.want {
			t.Errorf("written to %v: mode %o, %v", c.write, st.Mode, err)
		}
		if err := os.Remove(dir + "/f"); err != nil {
			t.Fatal(err)
		}
	}
}

// TestInPlaceLosesAttributes: what the source does not have goes.
func TestInPlaceLosesAttributes(t *testing.T) {
	dir := t.TempDir()
	needXattrs(t, dir)
	treetest.MakeTree(t, dir, "f=old")
	for _, name := range []string{"user.gone", "user.stays"} {
		if err := unix.Setxattr(dir+"/f", name, []byte("old"), 0); err != nil {
			t.Fatal(err)
		}
	}
	s := sinkInto(t, dir, Options{Keep: Keep{Xattrs: true}})
	temp, err := s.OpenInPlace(fileEntry("f", "old"), &Attributes{UID: -1, GID: -1, Xattrs: encodeXattrs(map[string]string{"user.stays": "new"})})
	if err == nil {
		err = errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0], s.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 100)
	if n, err := unix.Getxattr(dir+"/f", "user.gone", buf); err != unix.ENODATA {
		t.Errorf("user.gone is %q, %v", buf[:max(n, 0)], err)
	}
	if n, err := unix.Getxattr(dir+"/f", "user.stays", buf); err != nil || string(buf[:n]) != "new" {
		t.Errorf("user.stays is %q, %v", buf[:max(n, 0)], err)
	}
}

// TestInPlaceDiscarded: what was being written stays where it is.
func TestInPlaceDiscarded(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=old content")
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	temp, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err == nil {
		_, err = temp.WriteAt([]byte("new"), 0)
	}
	if err = errors.Join(err, temp.Discard()); err != nil {
		t.Fatal(err)
	}
	treetest.WantTree(t, dir, "f=new content")
}

// TestInPlaceGivenUp: a file that nobody has written to has the mode that it had, and one that
// was written to, or got its metadata, does not get set-ID bits back.
func TestInPlaceGivenUp(t *testing.T) {
	dir := t.TempDir()
	for name, c := range map[string]struct {
		meanwhile func(temp *Temp) error
		want      uint32
	}{
		"as it was": {func(*Temp) error { return nil }, 0o4775},
		"written":   {func(temp *Temp) error { _, err := temp.WriteAt([]byte("new"), 0); return err }, 0o644},
		"finished":  {func(temp *Temp) error { return temp.Finish() }, 0o644},
		"written by another": {func(*Temp) error {
			return errors.Join(os.WriteFile(dir+"/f", []byte("bad"), 0), os.Chtimes(dir+"/f", time.Time{}, time.Unix(1000, 0)))
		}, 0o644},
		"chmod by another": {func(*Temp) error { return unix.Chmod(dir+"/f", 0o700) }, 0o700},
	} {
		treetest.MakeTree(t, dir, "f=old")
		if err := unix.Chmod(dir+"/f", 0o4775); err != nil {
			t.Fatal(err)
		}
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}})
		temp, err := s.OpenInPlace(fileEntry("f", "new"), nil)
		if err == nil {
			waitForTick(t, temp)
			err = c.meanwhile(temp)
		}
		if err = errors.Join(err, temp.Discard(), s.Close()); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(dir+"/f", &st); err != nil || st.Mode&0o7777 != c.want {
			t.Errorf("%s: mode %o, %v; want %o", name, st.Mode, err, c.want)
		}
		if err := os.Remove(dir + "/f"); err != nil {
			t.Fatal(err)
		}
	}
}

// waitForTick waits until a change of a file gets another ctime than the last one.
func waitForTick(t *testing.T, temp *Temp) {
	t.Helper()
	now, err := fileset.StampNow(temp.fd, "")
	if err != nil {
		t.Fatal(err)
	}
	if err := now.AwaitAge(nil); err != nil {
		t.Fatal(err)
	}
}

// TestInPlaceOfWhatIsNoFile: there is nothing to write into.
func TestInPlaceOfWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "d/", "real=x", "link>real")
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	treetest.NoLeaks(t)
	for _, name := range []string{"d", "link", "fifo", "none"} {
		if temp, err := s.OpenInPlace(&manifest.Entry{Type: manifest.File, Path: name, Mode: 0o644}, nil); temp != nil || err != nil {
			t.Errorf("%s: %v, %v", name, temp, err)
		}
	}
}

// TestInPlaceOfWhatWasReplaced: a file that has lost its name meanwhile is not reported as
// being there.
func TestInPlaceOfWhatWasReplaced(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=old")
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	treetest.NoLeaks(t)
	temp, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err == nil {
		_, err = temp.WriteAt([]byte("new"), 0)
	}
	if err = errors.Join(err, temp.Finish(), os.Remove(dir+"/f"), os.WriteFile(dir+"/f", []byte("another"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish([]*Temp{temp})[0]; !errors.Is(err, fileset.ErrChanged) {
		t.Errorf("published: %v", err)
	}
	treetest.WantTree(t, dir, "f=another")
}

// TestInPlaceWaits: a copy that was cut off may still be ending.
func TestInPlaceWaits(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=old")
	s := sinkInto(t, dir, Options{})
	defer s.Close()
	first, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(3 * lockPause)
		_ = first.Discard()
	}()
	second, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Discard(); err != nil {
		t.Error(err)
	}
}

// A file in place on XFS is synced by itself: a syncfs may leave its data in the disk's cache,
// and it gets no name that would flush it.
func TestInPlaceIsSyncedByItself(t *testing.T) {
	for _, tc := range []struct {
		leaves, noFsync bool
		want            int
	}{{true, false, 1}, {true, true, 0}, {false, false, 0}} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "a=one", "b=two")
		s := sinkInto(t, dir, Options{NoFsync: tc.noFsync})
		on := s.deviceOf(s.base)
		if on.syncsAlone() {
			t.Skip("syncfs does not tell whether files are on the disk, set TMPDIR to an ext4 or tmpfs")
		}
		on.leavesOverwritten = tc.leaves
		d := onDisk(t, s, dir)
		temps := beginAll(t, s, "new")
		for _, name := range []string{"a", "b"} {
			temp, err := s.OpenInPlace(fileEntry(name, "new"), nil)
			if err == nil {
				_, err = temp.WriteAt([]byte("new"), 0)
			}
			if err == nil {
				err = temp.Finish()
			}
			if err != nil {
				t.Fatal(err)
			}
			temps = append(temps, temp)
		}
		if err := errors.Join(s.Publish(temps)...); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]int{"a": tc.want, "b": tc.want, "new": 0} {
			if n := d.asked["fsync"][d.at(name)]; n != want {
				t.Errorf("%+v: %s was synced %d times by itself", tc, name, n)
			}
		}
	}
}

// TestInPlaceLeavesNoLeftovers: what earlier copies have left in the directory goes as where a file
// is made there: temporary files when the first file is opened, and a partial file of this one,
// which no copy goes on with any more, when it is complete.
func TestInPlaceLeavesNoLeftovers(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	f, other := newPartialFile("f", 40), newPartialFile("other", 40)
	s := sinkInto(t, dir, Options{})
	for _, f := range []*partialFile{f, other} {
		f.cutOff(t, s, 2, 4)
	}
	treetest.MakeTree(t, dir, "f=old", fileset.TempName()+"=left")
	before := len(namesIn(t, dir))
	s = sinkInto(t, dir, Options{})
	temp, err := s.OpenInPlace(f.entry, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, dir); len(got) != before-1 {
		t.Errorf("there are %q", got)
	}
	if _, err := temp.WriteAt(f.data, 0); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0]); err != nil {
		t.Fatal(err)
	}
	if got := namesIn(t, dir); len(got) != before-3 {
		t.Errorf("there are %q", got)
	}
	if got := other.goOn(t, s, &other.partial); got != 4 {
		t.Errorf("%d pieces of another file were kept", got)
	}
}
