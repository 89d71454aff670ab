package dest

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// onNFS makes a sink take its file system for one on which locks may be local to a host,
// where later is the time that has gone by.
func onNFS(s *Sink, later time.Duration) *Sink {
	s.hosts.fsType = func(int) uint32 { return unix.NFS_SUPER_MAGIC }
	s.hosts.nowIn = func(dirfd int) (int64, bool) {
		now, ok := nowIn(dirfd)
		return now + int64(later), ok
	}
	return s
}

// otherHost is a sink of another host on such a file system.
func otherHost(t *testing.T, dir string, later time.Duration) *Sink {
	t.Helper()
	s := onNFS(sinkInto(t, dir, Options{}), later)
	s.hosts.boot[0]++
	return s
}

// unlocked takes the lock off a file as another host sees it: there is none.
func unlocked(t *testing.T, temp *Temp) {
	t.Helper()
	if err := unix.Flock(temp.fd, unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
}

func TestLocksMayBeLocal(t *testing.T) {
	for magic, want := range map[uint32]bool{
		0x65735546: true, 0x6969: true, 0x0BD00BD0: true, 0x01021997: true, 0xFF534D42: true, 0xFE534D42: true, 0x19830326: true,
		unix.EXT4_SUPER_MAGIC: false, unix.XFS_SUPER_MAGIC: false, unix.BTRFS_SUPER_MAGIC: false, unix.TMPFS_MAGIC: false, 0: false,
	} {
		if got := fsys.LocksMayBeLocal(magic); got != want {
			t.Errorf("%#x: %v", magic, got)
		}
	}
}

// TestTheTimeOfAFileSystem: it is found out without leaving anything.
func TestTheTimeOfAFileSystem(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	if now, ok := nowIn(s.base.FD); !ok || time.Since(time.Unix(0, now)).Abs() > time.Hour {
		t.Errorf("%v, %v", time.Unix(0, now), ok)
	}
	treetest.WantTree(t, dir)
	s.Close()
}

// TestFilesOfOtherHosts: a temporary file that another host writes, or has finished, is
// neither swept nor cleaned nor deleted. One that is an hour old is a leftover.
func TestFilesOfOtherHosts(t *testing.T) {
	for _, c := range []struct {
		name   string
		remove func(s *Sink, dir string)
	}{
		{"sweep", func(s *Sink, _ string) { sweepDir(s.hosts.in(s.base.FD), time.Now()) }},
		{"clean", func(s *Sink, dir string) {
			tree, err := chunker.OpenLocal([]chunker.Source{{Path: dir, Name: "."}}, false)
			if err == nil {
				err = errors.Join(cleanDir(tree, ".", s.hosts, nil, func(string, int64, int64) {}), tree.Close())
			}
			if err != nil {
				t.Error(err)
			}
		}},
		{"delete", func(s *Sink, dir string) {
			s.AllowDelete(DeleteRules{Most: -1, Told: func(Removal) {}})
			r := s.newRemover()
			r.unlink(s.base.FD, filepath.Base(only(t, dir, fileset.IsTemp)), "x")
			r.close()
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			treetest.NoLeaks(t)
			dir := t.TempDir()
			s := sinkInto(t, dir, Options{Keep: Keep{Times: true}})
			temp, err := begin(s, fileEntry("f", "content"), "content") // with a time long ago
			if err != nil {
				t.Fatal(err)
			}
			unlocked(t, temp)
			c.remove(otherHost(t, dir, elsewhereAge-time.Minute), dir)
			if err := s.Publish([]*Temp{temp})[0]; err != nil {
				t.Errorf("the file was taken away: %v", err)
			}
			treetest.WantTree(t, dir, "f=content")

			temp, err = begin(s, fileEntry("left", "content"), "content")
			if err != nil {
				t.Fatal(err)
			}
			fsys.CloseQuietly(temp.fd) // as a kill does
			last := otherHost(t, dir, elsewhereAge+time.Minute)
			c.remove(last, dir)
			treetest.WantTree(t, dir, "f=content")
			temp.fd = -1
			_ = temp.Discard()
			s.Close()
		})
	}
}

// TestPartialFilesOfOtherHosts: of a partial file that another host is writing nothing is
// cut, removed or gone on with, whatever the copy wants of it. The file that the other
// host then finishes has all of its bytes.
func TestPartialFilesOfOtherHosts(t *testing.T) {
	later := elsewhereAge - time.Minute
	for _, c := range []struct {
		name string
		do   func(s *Sink, f *partialFile)
	}{
		{"the same file", func(s *Sink, f *partialFile) {
			path := thePartial(t, s.dest)
			if err := os.Chmod(path, 0o644); err != nil { // as when it is being finished
				t.Error(err)
			}
			if temp, _, err := s.Resume(f.entry, nil, &f.partial); temp != nil || !errors.Is(err, unix.EWOULDBLOCK) {
				t.Errorf("gone on with, %v", err)
			}
			if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o644 {
				t.Errorf("its mode became %v, %v", st.Mode(), err)
			}
			if got := f.goOn(t, s, &f.partial); got != 0 {
				t.Errorf("%d pieces count", got)
			}
		}},
		{"another file of that name", func(s *Sink, f *partialFile) {
			p := f.partial
			p.Source[0]++
			if got := f.goOn(t, s, &p); got != 0 {
				t.Errorf("%d pieces count", got)
			}
		}},
		{"begun anew", func(s *Sink, f *partialFile) { s.DropPartial(f.entry) }},
		{"swept", func(s *Sink, _ *partialFile) {
			sweepDir(s.hosts.in(s.base.FD), time.Now().Add(leftoverPartialAge+time.Hour))
		}},
		{"swept with a torn journal", func(s *Sink, f *partialFile) {
			if err := os.Truncate(theJournal(t, s.dest), journalHeader/2); err != nil {
				t.Error(err)
			}
			sweepDir(s.hosts.in(s.base.FD), time.Now())
			theJournal(t, s.dest) // still there
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f := newPartialFile("f", 8)
			s := sinkInto(t, dir, Options{})
			temp, err := s.CreatePartial(f.entry, nil, &f.partial)
			if err != nil {
				t.Fatal(err)
			}
			f.write(t, temp, 0, 1, 2, 3)
			if err := temp.Mark(); err != nil {
				t.Fatal(err)
			}
			f.write(t, temp, 4, 5)
			unlocked(t, temp)
			c.do(otherHost(t, dir, later), f)
			f.write(t, temp, 6, 7)
			if err := temp.Finish(); err != nil {
				t.Fatal(err)
			}
			if err := s.Publish([]*Temp{temp})[0]; err != nil {
				t.Error(err)
			}
			f.wantPublished(t, dir)
		})
	}
}

// TestPartialFilesAcrossHosts: this host goes on at once with what it wrote itself. With
// what another host wrote, or this one before it was started anew, it goes on an hour later.
func TestPartialFilesAcrossHosts(t *testing.T) {
	for _, c := range []struct {
		name  string
		other bool
		later time.Duration
		want  uint64
	}{
		{"this host", false, 0, 6},
		{"another host", true, elsewhereAge - time.Minute, 0},
		{"another host, later", true, elsewhereAge + time.Minute, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			f := newPartialFile("f", 8)
			f.cutOff(t, sinkInto(t, dir, Options{}), 3, 6)
			s := onNFS(sinkInto(t, dir, Options{}), c.later)
			if c.other {
				s.hosts.boot[0]++
			}
			if got := f.goOn(t, s, &f.partial); got != c.want {
				t.Errorf("%d pieces count, not %d", got, c.want)
			}
			if c.want > 0 {
				f.wantPublished(t, dir)
			}
		})
	}
}

// TestGoingOnMakesNoFileYoung: a copy itself changes the old partial file of another host
// before it goes on with it.
func TestGoingOnMakesNoFileYoung(t *testing.T) {
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s := otherHost(t, dir, 0)
	f.cutOff(t, sinkInto(t, dir, Options{}), 3, 6)
	left, ok := nowIn(s.base.FD)
	for now := left; ok && now == left; now, ok = nowIn(s.base.FD) {
		time.Sleep(time.Millisecond) // the unit of such times is that of the kernel's clock
	}
	s.hosts.nowIn = func(int) (int64, bool) { return left + int64(elsewhereAge), ok }
	if got := f.goOn(t, s, &f.partial); got != 3 {
		t.Errorf("%d pieces count", got)
	}
	f.wantPublished(t, dir)
}

// TestTwoHostsGoOn: where two hosts find the same old partial file, the second one notices
// before it cuts anything that the first has gone on.
func TestTwoHostsGoOn(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	f := newPartialFile("f", 8)
	s := sinkInto(t, dir, Options{})
	f.cutOff(t, s, 3, 6)
	s.Close()
	first, second := otherHost(t, dir, elsewhereAge+time.Minute), otherHost(t, dir, elsewhereAge+time.Minute)
	second.hosts.boot[1]++
	temp, err := second.newTemp(f.entry, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := resumption{temp: temp, partial: &f.partial, journalFD: -1, at: journalHeader}
	if err := errors.Join(r.open(), r.load()); err != nil {
		t.Fatal(err)
	}
	unlocked(t, temp)
	gone, _, err := first.Resume(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, gone, 3, 4, 5, 6, 7)
	second.hosts.nowIn = nowIn // what the first has written is young
	if err := r.begin(); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Errorf("the second one goes on: %v", err)
	}
	r.giveUp()
	temp.leaveDirs()
	if err := errors.Join(gone.Finish(), first.Publish([]*Temp{gone})[0]); err != nil {
		t.Fatal(err)
	}
	f.wantPublished(t, dir)
	first.Close()
	second.Close()
}

// TestTreesOfOtherHosts: a staging directory that another host may be filling is neither
// adopted nor removed. Each try of a copy goes on with its own.
func TestTreesOfOtherHosts(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	mine := fileset.NewStageID()
	left := wholeSink(t, dir, "tree", mine)
	putEach(t, left, "a=A")
	left.Close()
	adopts := func(id fileset.StageID, later time.Duration) bool {
		t.Helper()
		s := onNFS(openSink(t, Options{Dest: filepath.Join(dir, "other"), Whole: &Whole{ID: id, Force: true}}), later)
		s.leaf, s.stage.leaf = "tree", "tree"
		s.stage.name = fileset.StageStem("tree") + filepath.Base(s.stage.name)[len(fileset.StageStem("tree")):]
		if err := s.adoptStage(); err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		return s.IsAdopted()
	}
	if adopts(fileset.NewStageID(), elsewhereAge-time.Minute) {
		t.Error("another copy adopts it")
	}
	if !adopts(mine, 0) {
		t.Error("the same copy does not go on with it")
	}
	s := otherHost(t, dir, elsewhereAge-time.Minute)
	sweepDir(s.hosts.in(s.base.FD), time.Now().Add(leftoverPartialAge+time.Hour))
	if got := stagesIn(t, dir); len(got) != 1 {
		t.Errorf("a sweep left %q", got)
	}
	s.Close()
	if !adopts(fileset.NewStageID(), elsewhereAge+time.Minute) {
		t.Error("an old one is not adopted")
	}
	// One that is being removed is nobody's any more, whoever gets its lock.
	s = otherHost(t, dir, elsewhereAge+time.Minute)
	stop := make(chan struct{})
	close(stop)
	removeLeftoverStage(s.hosts.in(s.base.FD), stagesIn(t, dir)[0], 0, time.Now(), nil, nil, stop)
	s.Close()
	if len(stagesIn(t, dir)) != 1 || adopts(fileset.NewStageID(), elsewhereAge+time.Minute) {
		t.Error("one that is being removed is adopted")
	}
}

// Where no file can be made, as on a full disk, the clock of this host tells what is old.
// Where none may be made, none is.
func TestAgeWithoutTheFileSystemsClock(t *testing.T) {
	asked := 0
	hosts := &otherHosts{
		fsType: func(int) uint32 { return unix.NFS_SUPER_MAGIC },
		nowIn:  func(int) (int64, bool) { asked++; return 0, false },
	}
	for _, onlyLooks := range []bool{false, true} {
		for age, want := range map[time.Duration]bool{elsewhereAge: true, elsewhereAgeByUs + time.Hour: false} {
			then := unix.NsecToTimespec(time.Now().Add(-age).UnixNano())
			h := hosts.in(-1)
			h.onlyLooks = onlyLooks
			if got := h.mayUse(&unix.Stat_t{Mtim: then, Ctim: then}); got != want {
				t.Errorf("%v old: in use %v", age, got)
			}
		}
	}
	if asked != 2 {
		t.Errorf("the clock was asked for %d times", asked)
	}
}

// A journal of this host's boot tells nothing of a file by another mount, which may have
// locks of its own.
func TestPartialFilesOfAnotherMount(t *testing.T) {
	dir := t.TempDir()
	s := onNFS(sinkInto(t, dir, Options{}), 0)
	h := s.hosts.in(s.base.FD)
	f := newPartialFile("f", 8)
	temp, err := s.CreatePartial(f.entry, nil, &f.partial)
	if err != nil {
		t.Fatal(err)
	}
	f.write(t, temp, 0, 1)
	if err := errors.Join(temp.Mark(), temp.Keep()); err != nil {
		t.Fatal(err)
	}
	fd, head, seed, err := openJournalFile(s.base.FD, filepath.Base(theJournal(t, dir)), unix.O_RDONLY, false)
	if err != nil {
		t.Fatal(err)
	}
	defer fsys.CloseQuietly(fd)
	if h.mayUsePartial(fd, &head, seed) {
		t.Error("this host cannot go on with its own")
	}
	head.inode.Dev++
	if !h.mayUsePartial(fd, &head, seed) {
		t.Error("another mount's is taken")
	}
	s.Close()
}

// TestStagesStayYoung: a staging directory in which only directories below change stays
// younger than what counts as left.
func TestStagesStayYoung(t *testing.T) {
	dir := t.TempDir()
	s := wholeSink(t, dir, "tree", fileset.NewStageID())
	putEach(t, s, "d/")
	path := filepath.Join(dir, s.stage.name)
	old := time.Now().Add(-stageTouchAge)
	for _, entry := range []string{"d/a=A", "d/e/"} {
		if err := os.Chtimes(path, old, old); err != nil {
			t.Fatal(err)
		}
		s.stage.touched.Store(&old)
		putEach(t, s, entry)
		st, err := os.Stat(path)
		if err != nil || time.Since(st.ModTime()) >= stageTouchAge {
			t.Errorf("after %s it is %v old, %v", entry, time.Since(st.ModTime()), err)
		}
	}
	s.Close()
}
