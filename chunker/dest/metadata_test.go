package dest

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// ownerOf is what lstat(2) tells of whose a file is, and its mode.
func ownerOf(t *testing.T, path string) (uid, gid, mode uint32) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatal(err)
	}
	return st.Uid, st.Gid, st.Mode & 0o7777
}

// putAll makes a file, a link and a directory with the same attributes and
// settles them.
func putAll(t *testing.T, s *Sink, mode uint32, a *Attributes) {
	t.Helper()
	const when = 1_500_000_000_987_654_321
	for _, e := range []manifest.Entry{
		{Type: manifest.Dir, Path: "dir", Mode: mode, MtimeNs: when},
		{Type: manifest.File, Path: "dir/file", Mode: mode, MtimeNs: when},
		{Type: manifest.Symlink, Path: "dir/link", Target: "file", Mode: 0o777, MtimeNs: when},
	} {
		var err error
		switch e.Type {
		case manifest.Dir:
			err = s.Mkdir(&e, a)
		case manifest.Symlink:
			err = s.Symlink(&e, a)
		default:
			var temp *Temp
			if temp, err = s.Create(&e, a); err == nil {
				err = temp.Finish()
			}
			if err == nil {
				err = s.Publish([]*Temp{temp})[0]
			}
		}
		if err != nil {
			t.Errorf("%s: %v", e.Path, err)
		}
	}
	if err := s.FinishDirs(); err != nil {
		t.Error(err)
	}
}

func needsRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give files away")
	}
}

// Root gives files away before their modes are set, for chown(2) takes set-ID
// bits away; and again, over what is there already.
func TestOwners(t *testing.T) {
	needsRoot(t)
	treetest.NoLeaks(t)
	for _, a := range []Attributes{{UID: 12, GID: 34}, {UID: 12, GID: -1}, {UID: -1, GID: 34}, {UID: -1, GID: -1}} {
		dir := t.TempDir()
		for range 2 {
			s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true}})
			putAll(t, s, 0o6755, &a)
			s.Close()
		}
		uid, gid, mode := uint32(0), uint32(0), uint32(0o755)
		if a.UID >= 0 {
			uid, mode = uint32(a.UID), mode|unix.S_ISUID
		}
		if a.GID >= 0 {
			gid, mode = uint32(a.GID), mode|unix.S_ISGID
		}
		for name, wantMode := range map[string]uint32{"dir": mode, "dir/file": mode, "dir/link": 0o777} {
			u, g, m := ownerOf(t, filepath.Join(dir, name))
			if u != uid || g != gid || m != wantMode {
				t.Errorf("%+v: %s is of %d:%d with mode %#o, want %d:%d and %#o", a, name, u, g, m, uid, gid, wantMode)
			}
			if info, err := os.Lstat(filepath.Join(dir, name)); err != nil || info.ModTime().UnixNano() != 1_500_000_000_987_654_321 {
				t.Errorf("%+v: %s has time %v, %v", a, name, info.ModTime(), err)
			}
		}
	}
}

// Set-ID bits of a peer that is held to a root are never kept.
func TestSetIDBelowRoot(t *testing.T) {
	needsRoot(t)
	dir := t.TempDir()
	s := openSink(t, Options{Root: treetest.OpenRoot(t, dir), Dest: "/", Keep: Keep{Modes: true}})
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	putAll(t, s, 0o6755, &Attributes{UID: 12, GID: 34})
	for _, name := range []string{"dir", "dir/file"} {
		if u, g, m := ownerOf(t, filepath.Join(dir, name)); u != 12 || g != 34 || m != 0o755 {
			t.Errorf("%s is of %d:%d with mode %#o", name, u, g, m)
		}
	}
}

// Who may not give files away keeps them, without an error; a set-ID bit for
// another owner than the source's is not kept.
func TestOwnersWithoutRights(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.AsNobody(t, dir, func() {
		s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}})
		defer s.Close()
		putAll(t, s, 0o6755, &Attributes{UID: 12, GID: 34})
	})
	wantUID, _, _ := ownerOf(t, dir)
	for _, name := range []string{"dir", "dir/file", "dir/link"} {
		u, g, m := ownerOf(t, filepath.Join(dir, name))
		if u != wantUID || g == 34 || m&setIDs != 0 {
			t.Errorf("%s is of %d:%d with mode %#o", name, u, g, m)
		}
	}
}

// withoutChown runs f on a thread that root has taken CAP_CHOWN from, as NFS
// without root's rights does.
func withoutChown(t *testing.T, f func()) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		defer close(done)
		header, caps := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, [2]unix.CapUserData{}
		err := unix.Capget(&header, &caps[0])
		caps[0].Effective &^= 1 << unix.CAP_CHOWN
		if err = errors.Join(err, unix.Capset(&header, &caps[0])); err != nil {
			done <- err
			return
		}
		f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Root has a copy of what it cannot give away, and is warned. The rights that the mode gives to
// the source's group are not those of the group that the copy has instead. If owners are
// required, nothing gets its name but the directory.
func TestOwnersDeniedToRoot(t *testing.T) {
	needsRoot(t)
	treetest.NoLeaks(t)
	for _, required := range []bool{false, true} {
		dir := t.TempDir()
		withoutChown(t, func() {
			s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}, RequireAttributes: required})
			defer s.Close()
			a := &Attributes{UID: 12, GID: 34}
			want := func(what string, err error, strict bool) {
				if strict != errors.Is(err, unix.EPERM) || !strict && err != nil {
					t.Errorf("%s: %v", what, err)
				}
			}
			for run := range 2 { // the second over what is there
				want("directory", s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "dir", Mode: 0o750}, a), required && run == 0)
				temp, err := s.Create(&manifest.Entry{Type: manifest.File, Path: "dir/file", Mode: 0o6640}, a)
				if err != nil {
					t.Error(err)
					return
				}
				err = temp.Finish()
				want("file", err, required)
				if err == nil {
					err = s.Publish([]*Temp{temp})[0]
				} else {
					err = temp.Discard()
				}
				want("file", err, false)
				want("link", s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: "dir/link", Target: "x", Mode: 0o777}, a), required)
				want("end", s.FinishDirs(), false)
				wantUnkept(t, s, !required, fileset.Unkept{Attribute: fileset.AttributeOwner, Dir: ".", Entries: 3, First: "dir/file", Reason: unix.EPERM.Error()})
			}
		})
		names := map[string]uint32{"dir": 0o700}
		if !required {
			names["dir/file"], names["dir/link"] = 0o600, 0o777
		}
		for name, mode := range names {
			if u, g, m := ownerOf(t, filepath.Join(dir, name)); u != 0 || g != 0 || m != mode {
				t.Errorf("%s is of %d:%d with mode %#o", name, u, g, m)
			}
		}
		if _, err := os.Lstat(dir + "/dir/file"); (err == nil) == required {
			t.Errorf("required %v: %v", required, err)
		}
	}
}

// wantUnkept checks what was not kept since the last call, if anything.
func wantUnkept(t *testing.T, s *Sink, any bool, want ...fileset.Unkept) {
	t.Helper()
	if !any {
		want = nil
	}
	if got := s.TakeUnkept(); !slices.Equal(got, want) {
		t.Errorf("not kept: %+v, want %+v", got, want)
	}
}

// While something is copied whose group is to be the source's, nobody but its owner may
// read it: its group is not yet the one that the mode is for. Nobody but its owner may
// write to what is not verified.
func TestWithheldUntilFinished(t *testing.T) {
	old := unix.Umask(0o027)
	defer unix.Umask(old)
	for _, c := range []struct {
		keep        Keep
		a           *Attributes
		file, dir   uint32 // while it is being made
		file1, dir1 uint32 // in the end
	}{
		{Keep{Modes: true}, &Attributes{UID: -1, GID: os.Getegid()}, 0o600, 0o700, 0o646, 0o757},
		{Keep{Modes: true}, nil, 0o640, 0o700, 0o646, 0o757},
		{Keep{}, &Attributes{UID: -1, GID: os.Getegid()}, 0o600, 0o700, 0o640, 0o750},
		{Keep{}, nil, 0o640, 0o750, 0o640, 0o750},
	} {
		dir := t.TempDir()
		s := sinkInto(t, dir, Options{Keep: c.keep})
		if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o757}, c.a); err != nil {
			t.Fatal(err)
		}
		temp, err := s.Create(&manifest.Entry{Type: manifest.File, Path: "d/f", Mode: 0o646}, c.a)
		if err != nil {
			t.Fatal(err)
		}
		wantMode(t, dir+"/d", c.dir)
		wantMode(t, dir+"/d/"+temp.name, c.file)
		if err := errors.Join(temp.Finish(), s.Publish([]*Temp{temp})[0], s.FinishDirs()); err != nil {
			t.Fatal(err)
		}
		wantMode(t, dir+"/d", c.dir1)
		wantMode(t, dir+"/d/f", c.file1)
		treetest.WantTree(t, dir, "d/", "d/f=")
	}
}

// Times without modes, and modes without times.
func TestKeepOneOfBoth(t *testing.T) {
	old := unix.Umask(0o022)
	defer unix.Umask(old)
	for _, keep := range []Keep{{Times: true}, {Modes: true}} {
		dir := t.TempDir()
		if err := os.Mkdir(dir+"/dir", 0o750); err != nil { // one that is there
			t.Fatal(err)
		}
		putAll(t, sinkInto(t, dir, Options{Keep: keep}), 0o777, nil)
		want := map[string]uint32{"dir": 0o750, "dir/file": 0o755}
		if keep.Modes {
			want = map[string]uint32{"dir": 0o777, "dir/file": 0o777}
		}
		for name, mode := range want {
			wantMode(t, filepath.Join(dir, name), mode)
		}
		for _, name := range []string{"dir", "dir/file", "dir/link"} {
			info, err := os.Lstat(filepath.Join(dir, name))
			if err != nil || (info.ModTime().Unix() == 1_500_000_000) != keep.Times {
				t.Errorf("%+v: %s has time %v, %v", keep, name, info.ModTime(), err)
			}
		}
	}
}
