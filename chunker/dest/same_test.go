package dest

import (
	"errors"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/disktest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// theNextOwner is an owner that only root can give a file to.
func theNextOwner(own Attributes) *Attributes { return &Attributes{UID: own.UID + 1, GID: -1} }

// A file that stays gets what a copy would give it, and keeps its data and inode.
func TestSettle(t *testing.T) {
	dir := t.TempDir()
	needXattrs(t, dir)
	isRoot, own := os.Geteuid() == 0, Attributes{UID: os.Geteuid(), GID: os.Getegid()}
	with := func(x map[string]string) *Attributes { return &Attributes{UID: -1, GID: -1, Xattrs: encodeXattrs(x)} }
	byRoot := func(then, otherwise int) int {
		if isRoot {
			return then
		}
		return otherwise
	}
	all := Keep{Modes: true, Xattrs: true}
	before, after := time.Unix(1_500_000_000, 5).UnixNano(), time.Unix(1_600_000_000, 7).UnixNano()
	for name, c := range map[string]struct {
		keep      Keep
		was, mode uint32
		a         *Attributes

		wantMode       uint32
		wantUID        int
		wantA, wantB   string
		wantTimeIsThen bool
	}{
		"nothing is kept":           {Keep{}, 0o640, 0o600, nil, 0o640, own.UID, "1", "", false},
		"all is the same":           {all, 0o640, 0o640, with(map[string]string{"user.a": "1"}), 0o640, own.UID, "1", "", false},
		"a mode":                    {Keep{Modes: true}, 0o640, 0o604, nil, 0o604, own.UID, "1", "", false},
		"a mode of no rights":       {Keep{Modes: true}, 0, 0o604, nil, 0o604, own.UID, "1", "", false},
		"an owner":                  {Keep{}, 0o640, 0o600, theNextOwner(own), 0o640, byRoot(own.UID+1, own.UID), "1", "", false},
		"an owner and a mode":       {Keep{Modes: true}, 0o666, 0o4640, theNextOwner(own), uint32(byRoot(0o4640, 0o640)), byRoot(own.UID+1, own.UID), "1", "", false},
		"a bit of an unkept owner":  {Keep{Modes: true}, 0o640, 0o4640, nil, 0o640, own.UID, "1", "", false},
		"a value":                   {all, 0o640, 0o640, with(map[string]string{"user.a": "2"}), 0o640, own.UID, "2", "", false},
		"one more, of no rights":    {all, 0, 0, with(map[string]string{"user.a": "1", "user.b": "3"}), 0, own.UID, "1", "3", false},
		"one less":                  {all, 0o440, 0o400, nil, 0o400, own.UID, "", "", false},
		"a module's":                {all, 0o640, 0o640, with(map[string]string{"user.a": "1", "security.selinux": "x"}), 0o640, own.UID, "1", "", false},
		"attributes that stay":      {Keep{Modes: true}, 0o640, 0o640, with(map[string]string{"user.a": "2"}), 0o640, own.UID, "1", "", false},
		"a time":                    {Keep{Times: true}, 0o640, 0o640, nil, 0o640, own.UID, "1", "", true},
		"a time and a mode of none": {Keep{Times: true, Modes: true}, 0o640, 0, nil, 0, own.UID, "1", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			treetest.NoLeaks(t)
			path := t.TempDir() + "/f"
			if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(unix.Setxattr(path, "user.a", []byte("1"), 0), unix.Chmod(path, c.was), os.Chtimes(path, time.Time{}, time.Unix(0, before))); err != nil {
				t.Fatal(err)
			}
			s := sinkInto(t, path[:len(path)-2], Options{Keep: c.keep})
			defer s.Close()
			now, err := s.Look("f")
			if err != nil {
				t.Fatal(err)
			}
			var old, st unix.Stat_t
			if err := errors.Join(unix.Lstat(path, &old),
				s.Settle(&manifest.Entry{Type: manifest.File, Path: "f", Mode: c.mode, Size: 4, MtimeNs: after}, c.a, now),
				unix.Lstat(path, &st)); err != nil {
				t.Fatal(err)
			}
			if st.Mode&0o7777 != c.wantMode || int(st.Uid) != c.wantUID || st.Ino != old.Ino || st.Size != 4 {
				t.Errorf("mode %o, owner %d, was %+v, is %+v", st.Mode, st.Uid, old, st)
			}
			wantNs := before
			if c.wantTimeIsThen {
				wantNs = after
			}
			if fsys.Nanoseconds(st.Mtim) != wantNs {
				t.Errorf("time %v", st.Mtim)
			}
			if err := os.Chmod(path, 0o600); err != nil {
				t.Fatal(err)
			}
			for attr, want := range map[string]string{"user.a": c.wantA, "user.b": c.wantB} {
				b := make([]byte, 8)
				n, _ := unix.Getxattr(path, attr, b)
				if got := string(b[:max(n, 0)]); got != want {
					t.Errorf("%s is %q, not %q", attr, got, want)
				}
			}
		})
	}
}

// What is not what Look saw stays as it is.
func TestSettleOfWhatHasChanged(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "other=data")
	path := dir + "/f"
	s := sinkInto(t, dir, Options{Keep: Keep{Modes: true}})
	defer s.Close()
	for _, c := range []struct {
		name   string
		change func() error
		want   error
	}{
		{"longer", func() error { return os.WriteFile(path, []byte("longer"), 0) }, fileset.ErrChanged},
		{"a link", func() error { return errors.Join(os.Remove(path), os.Symlink("other", path)) }, fileset.ErrChanged},
		{"a fifo", func() error { return errors.Join(os.Remove(path), unix.Mkfifo(path, 0o644)) }, fileset.ErrChanged},
		{"gone", func() error { return os.Remove(path) }, unix.ENOENT},
	} {
		treetest.MakeTree(t, dir, "f=data")
		now, err := s.Look("f")
		if err != nil {
			t.Fatal(err)
		}
		if err := c.change(); err != nil {
			t.Fatal(err)
		}
		if err := s.Settle(&manifest.Entry{Type: manifest.File, Path: "f", Mode: 0o600, Size: 4}, nil, now); !errors.Is(err, c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if st, err := os.Stat(path); err == nil && st.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v", c.name, st.Mode())
		}
		if err := os.Remove(path); err != nil && c.want != unix.ENOENT {
			t.Fatal(err)
		}
	}
	if st, err := os.Stat(dir + "/other"); err != nil || st.Mode().Perm() != 0o644 {
		t.Errorf("the other: %v, %v", st, err)
	}
}

// Times are the same as far as both are told.
func TestHasTime(t *testing.T) {
	at := func(sec, ns int64) int64 { return sec*1e9 + ns }
	for name, c := range map[string]struct {
		unit, there, here int64
		want              bool
	}{
		"the same":                      {0, at(100, 123_456_789), at(100, 123_456_789), true},
		"a nanosecond":                  {0, at(100, 123_456_788), at(100, 123_456_789), false},
		"other nanoseconds":             {0, at(100, 923_456_789), at(100, 123_456_789), false},
		"cut to microseconds":           {0, at(100, 123_456_000), at(100, 123_456_789), true},
		"other microseconds":            {0, at(100, 123_457_000), at(100, 123_456_789), false},
		"cut to 100 ns":                 {0, at(100, 123_456_700), at(100, 123_456_789), true},
		"cut to seconds":                {0, at(100, 0), at(100, 999_999_999), true},
		"a second of the source":        {0, at(100, 999_999_999), at(100, 0), true},
		"the next second":               {0, at(101, 0), at(100, 999_999_999), false},
		"the second before":             {0, at(99, 0), at(100, 0), false},
		"two seconds, and no FAT":       {0, at(100, 0), at(101, 500), false},
		"two seconds of a FAT":          {int64(coarsest), at(100, 0), at(101, 500), true},
		"the next two seconds of a FAT": {int64(coarsest), at(102, 0), at(101, 500), false},
		"before 1970":                   {0, at(-100, 0), at(-100, 5), true},
		"before 1970, a second less":    {0, at(-101, 0), at(-100, 5), false},
		"before 1970, on a FAT":         {int64(coarsest), at(-2, 0), at(-1, 0), true},
		"across 1970":                   {0, at(0, 0), at(-1, 5), false},
		"beyond":                        {0, 1<<63 - 1, 1<<63 - 1, false},
		"before all":                    {0, -1 << 63, -1 << 63, false},
	} {
		now := Standing{Exists: true, MtimeNs: c.there, timeUnitNs: c.unit}
		if got := now.HasTime(c.here); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A file system that keeps whole seconds has the times that it was given.
func TestHasTimeOnCoarseFileSystem(t *testing.T) {
	// Inodes without room for nanoseconds.
	dir := disktest.Mount(t, "1M", "mkfs.ext4", "-q", "-F", "-I", "128", "-O", "^has_journal")
	s := sinkInto(t, dir, Options{Keep: Keep{Times: true}})
	defer s.Close()
	e := &manifest.Entry{Type: manifest.File, Path: "f", Mode: 0o644, MtimeNs: 1_500_000_000_123_456_789}
	f, err := s.Create(e, nil)
	if err == nil {
		err = errors.Join(f.Finish(), errors.Join(s.Publish([]*Temp{f})...))
	}
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Look("f")
	if err != nil || now.MtimeNs != 1_500_000_000_000_000_000 || !now.HasTime(e.MtimeNs) || now.HasTime(e.MtimeNs+1e9) {
		t.Errorf("%+v, %v", now, err)
	}
}
